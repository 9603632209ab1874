# SPDX-License-Identifier: Apache-2.0
"""Resources sessions: a task's world built, called, graded once, and given back.

Everything is safe to ask again, also after a kill: what was built is found by the
claim's name, what was exported stands as an artifact, what was judged is replayed.
One thing at a time is done for a session: a call holds it from reading attachments to
saving results, so grading waits for the call under way, and a later one is refused.
"""

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs

from ...domain.activations import Stillness
from ...domain.digests import Json
from ...domain.refusals import Refusal
from ...domain.resources_sessions import (
    DECIDER,
    AbandonBuild,
    CallsEnded,
    CloseResources,
    Command,
    FailResourcesClose,
    GiveVerdict,
    MarkBuilt,
    NoteProviderFailure,
    ResourcesClosed,
    ResourcesPhase,
    ResourcesSession,
    ResourcesSessionId,
    SeedResources,
    StartResourcesClose,
    StartVerification,
)
from ...domain.tasks import EpisodeId, Task
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.journal import Journal, StreamMoved, resources_session_stream
from ..required.participants import TaskState, Turn
from ..required.sandbox_provider import SandboxSpec
from ..required.world import World
from .build_resources import BuildResources
from .call_apps import WorkspaceUnavailable, state_after
from .carry_out import (
    ATTEMPTS_MAX,
    Standing,
    carry_out,
    carry_out_at_once,
    read_state,
)
from .claim_sandbox import ClaimSandbox
from .give_back_resources import GiveBackResources
from .grade_work import GradeWork
from .json_texts import to_json
from .keyed_locks import KeyedLocks
from .open_resources import Equip, OpenResources, episode_of, task_digest
from .release_claim import ReleaseClaim
from .session_apps import OpenApps, SessionApps, close_apps
from .stop_processes import StopProcesses

log = logging.getLogger(__name__)

ABANDON_SECONDS: Final = 60.0
"""How long giving back the sandbox of a build that came to nothing may take."""

CLOSES_MAX: Final = 16
"""How often a close begins anew, since something was written while it ended all."""

_FRESH: Final = Standing(DECIDER.initial, 0)


@attrs.frozen(kw_only=True)
class ResourcesSessions:
    """The sessions of one world and one sandbox provider."""

    journal: Journal
    clock: Clock
    world: World
    spec: SandboxSpec
    """The configured sandbox, which a task may bend."""
    claim: ClaimSandbox
    release: ReleaseClaim
    grade: GradeWork
    lends: bool = True
    """Whether there is a provider; a world with apps can do without."""
    apps: SessionApps | None = None
    """Set for a world that has some."""
    equip: Equip | None = None
    stop: StopProcesses | None = None
    """How what an agent left running is ended, where nobody saw that it is over."""
    closes_tools_on_task_end: bool = False
    check: Callable[[], None] = lambda: None
    """Raises when nothing is to be built or made any more."""
    _open: dict[ResourcesSessionId, OpenResources] = attrs.field(
        factory=dict[ResourcesSessionId, OpenResources], init=False
    )
    _making: set[ResourcesSessionId] = attrs.field(
        factory=set[ResourcesSessionId], init=False
    )
    _locks: KeyedLocks = attrs.field(factory=KeyedLocks, init=False)

    @property
    def open_here(self) -> tuple[ResourcesSessionId, ...]:
        """The sessions that this process holds something of."""
        return tuple(self._open)

    def is_open_here(self, session: ResourcesSessionId) -> bool:
        """Whether this process holds something of a session, however many are open."""
        return session in self._open

    @property
    def making(self) -> frozenset[ResourcesSessionId]:
        """The sessions that are being seeded now."""
        return frozenset(self._making)

    @property
    def in_hand(self) -> int:
        """How many sessions have something under way."""
        return len(self._locks)

    def is_in_hand(self, session: ResourcesSessionId) -> bool:
        """Whether something of a session is under way, or waits."""
        return self._locks.users(session) > 0

    @property
    def _build(self) -> BuildResources:
        return BuildResources(
            world=self.world,
            configured=self.spec,
            claim=self.claim,
            apps=self.apps,
            equip=self.equip,
            lends=self.lends,
            check=self.check,
        )

    @property
    def _back(self) -> GiveBackResources:
        return GiveBackResources(
            owner=self.claim.owner,
            release=self.release,
            equip=self.equip,
            stop=self.stop,
            looks_inside=lambda task: (
                self.apps is None and self.grade.looks_inside(task)
            ),
        )

    async def standing(self, session: ResourcesSessionId) -> Standing[ResourcesSession]:
        """Return what the journal knows of a session."""
        opened = self._open.get(session)
        known = None if opened is None else opened.standing
        stream = resources_session_stream(session)
        return await read_state(self.journal, stream, DECIDER, known)

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> OpenResources:
        """Build the world; return what is open of it.

        Raises:
            TaskRefused: The world cannot build it.
            Refusal, Fault: It could not be built; what was made was given back.
        """
        self.world.check(task)
        async with self._locks.holding(session):
            self._making.add(session)
            try:
                return await self._seed(session, episode, task)
            finally:
                self._making.discard(session)

    @asynccontextmanager
    async def calling(
        self, session: ResourcesSessionId
    ) -> AsyncGenerator[OpenResources]:
        """Hold a session for one whole call, which may not be cut in two.

        Raises:
            CallsEnded: It takes no more calls.
            WorkspaceUnavailable: Raised inside; it is noted before it goes on.
        """
        self._check_calls(session)
        async with self._locks.holding(session):
            # Grading or the close may have come while it waited.
            opened = self._check_calls(session)
            try:
                try:
                    yield opened
                finally:
                    if opened.opened is not None:
                        opened.state = await state_after(opened.opened)
            except WorkspaceUnavailable as failed:
                log.error("A call failed for the provider: %s", failed.reason)
                await self._note(session, opened, failed.reason)
                raise

    def apps_of(self, session: ResourcesSessionId) -> OpenApps | None:
        """Return a session's apps, to tell of them, while it is open here."""
        opened = self._open.get(session)
        return None if opened is None else opened.opened

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return what the last finished call left; the beginning for others."""
        opened = self._open.get(session)
        return TaskState() if opened is None else opened.state

    async def verify(
        self,
        session: ResourcesSessionId,
        task: Task,
        turn: Turn,
        *,
        stillness: Stillness | None,
    ) -> Mapping[str, Json]:
        """Grade the work once; the first verdict is replayed from then on.

        Raises:
            Refusal, Fault: No verdict came of it.
        """
        if (known := self._open.get(session)) is not None:
            known.ended = True
        async with self._locks.holding(session):
            return await self._verify(session, task, turn, stillness)

    async def close(
        self, session: ResourcesSessionId, episode: EpisodeId
    ) -> ResourcesClosed:
        """End the world and release every sandbox of it; the same answer each time.

        Raises:
            Refusal: It is another episode's.
            Fault: A sandbox is not seen gone; closing may be asked again.
        """
        async with self._locks.holding(session):
            return await self._close(session, episode)

    async def seed_over(self, session: ResourcesSessionId) -> None:
        """Return when nothing is under way for a session."""
        async with self._locks.holding(session):
            return

    async def give_back(self, session: ResourcesSessionId) -> None:
        """Release the sandbox that a session lends; the session itself stays open.

        Raises:
            Fault: It is not seen gone; its claim stays open.
        """
        async with self._locks.holding(session):
            opened = self._open.get(session)
            if opened is not None:
                opened.ended = True
                await self._back.sandbox(session, opened, "the server is shutting down")
                self._open.pop(session, None)

    async def reopen(self, session: ResourcesSessionId) -> OpenResources | None:
        """Open a session again that another process left open, if it was built.

        Raises:
            Refusal, Fault: It cannot be gone on with.
        """
        async with self._locks.holding(session):
            standing = await self.standing(session)
            built = standing.state.built
            if standing.state.phase is not ResourcesPhase.READY or built is None:
                return None
            if self.apps is None or not self.apps.stands(session):
                return None  # Nothing to go on with, or of a run that is no server's.
            task, apps = await self.apps.reopen(session)
            opened = OpenResources(standing, opened=apps)
            await self._build.again(session, task, opened)
            if opened.sandbox is not None and self.equip is not None:
                await self.equip(session, opened.sandbox, apps)
            opened.state = await state_after(apps)
            self._open[session] = opened
            return opened

    async def _seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> OpenResources:
        seed = SeedResources(
            session=session,
            episode=episode,
            request=task_digest(episode, task),
            at=self.clock.now(),
        )
        if self.apps is None and self._build.spec(task) is None:
            # Nothing is made outside, so no intent of it is needed.
            nothing = MarkBuilt(claim=None, at=self.clock.now())
            built_at_once = await self._at_once(session, seed, nothing, known=_FRESH)
            if built_at_once is not None:
                return self._open.setdefault(session, OpenResources(built_at_once))
        standing = await self._carry_out(session, seed, known=_FRESH)
        opened = self._open.setdefault(session, OpenResources(standing))
        seeding = standing.state.phase is ResourcesPhase.SEEDING
        try:
            await self._build(session, episode, task, opened, standing)
            if seeding:
                built = MarkBuilt(
                    claim=None if opened.held is None else opened.held.label.claim,
                    at=self.clock.now(),
                )
                opened.standing = await self._carry_out(session, built, known=standing)
        except BaseException as error:
            if seeding and opened.held is None:
                with anyio.CancelScope(shield=True):
                    await self._abandon(session, opened, standing, error)
            raise
        return opened

    async def _abandon(
        self,
        session: ResourcesSessionId,
        opened: OpenResources,
        standing: Standing[ResourcesSession],
        error: BaseException,
    ) -> None:
        """Leave nothing of a build that came to nothing; the id may be seeded again."""
        if opened.opened is not None:
            await close_apps(opened.opened)
        if self.apps is not None:
            await self.apps.remove(session)
        self._open.pop(session, None)
        reason = str(error) if isinstance(error, Fault | Refusal) else "it was given up"
        with anyio.move_on_after(ABANDON_SECONDS):
            try:
                # A claim that failed was undone, but not one that was found lost.
                await self._back.sandbox(session, opened, reason)
            except (Refusal, Fault) as left:
                log.error("The sandbox of %s is not given back: %s", session, left)
        try:
            abandon = AbandonBuild(reason=reason, at=self.clock.now())
            await self._carry_out(session, abandon, known=standing)
        except (Refusal, Fault) as left:
            log.warning("The build of %s is still open: %s", session, left)

    def _check_calls(self, session: ResourcesSessionId) -> OpenResources:
        opened = self._open.get(session)
        if opened is None or opened.ended:
            raise CallsEnded
        if opened.standing.state.phase is not ResourcesPhase.READY:
            raise CallsEnded
        if opened.state.complete and self.closes_tools_on_task_end:
            raise CallsEnded
        return opened

    async def _note(
        self, session: ResourcesSessionId, opened: OpenResources, reason: str
    ) -> None:
        note = NoteProviderFailure(reason=reason, at=self.clock.now())
        opened.standing = await self._carry_out(session, note, known=opened.standing)

    async def _verify(
        self,
        session: ResourcesSessionId,
        task: Task,
        turn: Turn,
        stillness: Stillness | None,
    ) -> Mapping[str, Json]:
        opened = await self._opened(session)
        if opened.standing.state.phase is ResourcesPhase.READY:
            await self._build.again(session, task, opened)
            stillness = await self._back.still(session, task, opened, turn, stillness)
        start = StartVerification(
            request=turn.answer, stillness=stillness, at=self.clock.now()
        )
        if stillness is not None and self._is_judged_at_once(task, opened):
            # Nothing outside has a part in it, so no intent of it is needed.
            reply = await self._graded(session, task, turn, opened, stillness)
            given = self._verdict(reply)
            done = await self._at_once(session, start, given, known=opened.standing)
            if done is not None:
                opened.standing = done
                return reply
        opened.standing = await self._carry_out(session, start, known=opened.standing)
        verdict = opened.standing.state.verdict
        if verdict is not None:
            return _parsed(verdict)
        verification = opened.standing.state.verification
        assert verification is not None, "it was just started"
        if self.apps is not None and opened.opened is None:
            _, opened.opened = await self.apps.reopen(session)
        still = verification.stillness
        reply = await self._graded(session, task, turn, opened, still)
        given = self._verdict(reply)
        opened.standing = await self._carry_out(session, given, known=opened.standing)
        return reply

    def _is_judged_at_once(self, task: Task, opened: OpenResources) -> bool:
        """Whether the verdict comes from the turn alone, and is not begun yet."""
        return (
            self.apps is None
            and opened.standing.state.phase is ResourcesPhase.READY
            and not self.grade.looks_inside(task)
        )

    def _graded(
        self,
        session: ResourcesSessionId,
        task: Task,
        turn: Turn,
        opened: OpenResources,
        stillness: Stillness,
    ) -> Awaitable[Mapping[str, Json]]:
        return self.grade(
            session=str(session),
            episode=episode_of(opened.standing.state),
            task=task,
            turn=turn,
            stillness=stillness,
            held=opened.held,
            spec=self._build.spec(task),
            apps=None if opened.opened is None else opened.opened.apps,
            provider_failure=opened.standing.state.provider_failure,
        )

    def _verdict(self, reply: Mapping[str, Json]) -> GiveVerdict:
        return GiveVerdict(reply=to_json(reply), at=self.clock.now())

    async def _close(
        self, session: ResourcesSessionId, episode: EpisodeId
    ) -> ResourcesClosed:
        for attempt in range(1, CLOSES_MAX + 1):
            opened = await self._opened(session)
            opened.ended = True
            try:
                closed = await self._closed_at_once(session, episode, opened)
                return closed or await self._end(session, episode, opened)
            except StreamMoved:
                if attempt == CLOSES_MAX:
                    raise
                # Perhaps another process built it meanwhile: then there is more to end.
                opened.standing = await self.standing(session)
        raise AssertionError("the loop returns or raises")

    async def _closed_at_once(
        self, session: ResourcesSessionId, episode: EpisodeId, opened: OpenResources
    ) -> ResourcesClosed | None:
        """Close a session that has nothing outside that is to be ended."""
        if self.apps is not None or not self._back.owes_nothing(opened):
            return None
        await self._back.let_go(session)
        at = self.clock.now()
        standing = await self._at_once(
            session,
            StartResourcesClose(episode=episode, at=at),
            CloseResources(episode=episode, at=at),
            known=opened.standing,
        )
        if standing is None:
            return None
        self._open.pop(session, None)
        return standing.state.closed

    async def _end(
        self, session: ResourcesSessionId, episode: EpisodeId, opened: OpenResources
    ) -> ResourcesClosed:
        """End all that is known of the session, and write down that nothing is left.

        Raises:
            StreamMoved: Something was written meanwhile that this knew nothing of.
        """
        start = StartResourcesClose(episode=episode, at=self.clock.now())
        standing = await self._carry_out(session, start, known=opened.standing)
        if standing.state.phase is ResourcesPhase.CLOSING:
            try:
                await self._back.everything(session, opened, standing)
            except Fault as fault:
                failed = FailResourcesClose(reason=str(fault), at=self.clock.now())
                await self._carry_out(session, failed, known=standing)
                raise
        if opened.opened is not None:
            await close_apps(opened.opened)
        if self.apps is not None:
            await self.apps.remove(session)
        done = CloseResources(episode=episode, at=self.clock.now())
        standing = await self._carry_out(session, done, known=standing, attempts_max=1)
        self._open.pop(session, None)
        assert standing.state.closed is not None, "it was just closed"
        return standing.state.closed

    async def _opened(self, session: ResourcesSessionId) -> OpenResources:
        opened = self._open.get(session)
        if opened is not None:
            return opened
        return OpenResources(await self.standing(session))

    async def _at_once(
        self,
        session: ResourcesSessionId,
        *commands: Command,
        known: Standing[ResourcesSession],
    ) -> Standing[ResourcesSession] | None:
        stream = resources_session_stream(session)
        return await carry_out_at_once(
            self.journal, stream, DECIDER, *commands, known=known
        )

    async def _carry_out(
        self,
        session: ResourcesSessionId,
        *commands: Command,
        known: Standing[ResourcesSession],
        attempts_max: int = ATTEMPTS_MAX,
    ) -> Standing[ResourcesSession]:
        stream = resources_session_stream(session)
        return await carry_out(
            self.journal,
            stream,
            DECIDER,
            *commands,
            known=known,
            attempts_max=attempts_max,
        )


def _parsed(reply: str) -> Mapping[str, Json]:
    parsed: Mapping[str, Json] = json.loads(reply)
    return parsed
