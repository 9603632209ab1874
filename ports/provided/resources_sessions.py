# SPDX-License-Identifier: Apache-2.0
"""Resources sessions: a task's world built, called, graded once, and given back.

Everything is safe to ask again, also after a kill: what was built is found by the
claim's name, what was exported stands as an artifact, what was judged is replayed.
One thing at a time is done for a session: a call holds it from reading attachments to
saving results, so grading waits for the call under way, and a later one is refused.
"""

import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

import anyio
import attrs

from ...domain.activations import Outcome, Stillness
from ...domain.claims import Borrower, ClaimId, ClaimNotUsable
from ...domain.digests import Json, RequestDigest, digest_of
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
from ..required.journal import Journal, resources_session_stream
from ..required.participants import TaskState, Turn
from ..required.sandbox import Sandbox
from ..required.sandbox_provider import ClaimLabel, SandboxSpec
from ..required.world import World
from .call_apps import WorkspaceUnavailable
from .carry_out import Standing, carry_out, read_state
from .claim_sandbox import ClaimSandbox, HeldSandbox
from .grade_work import GRADER_CLAIMS_MAX, GradeWork, grader_claim
from .keyed_locks import KeyedLocks
from .place_files import place_files
from .release_claim import ReleaseClaim
from .session_apps import OpenApps, SessionApps
from .stop_processes import StopProcesses

log = logging.getLogger(__name__)

WHICH_CHARACTERS: Final = 8

_FRESH: Final = Standing(DECIDER.initial, 0)


@attrs.define(eq=False)
class OpenResources:
    """What this process holds of an open session."""

    standing: Standing[ResourcesSession]
    held: HeldSandbox | None = None
    opened: OpenApps | None = None
    state: TaskState = attrs.field(factory=TaskState)
    """What the last finished call left."""
    ended: bool = False
    """Whether it takes no more calls."""

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox that is lent."""
        return None if self.held is None else self.held.sandbox


class Equip(Protocol):
    """Puts into a lent sandbox what an agent needs there beside the task's files."""

    async def __call__(
        self, session: ResourcesSessionId, sandbox: Sandbox, apps: OpenApps | None
    ) -> None:
        """Put it there; raises `Fault`."""
        ...

    async def let_go(self, session: ResourcesSessionId) -> None:
        """Let go of what was kept for the session."""
        ...


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

    @property
    def making(self) -> frozenset[ResourcesSessionId]:
        """The sessions that are being seeded now."""
        return frozenset(self._making)

    @property
    def in_hand(self) -> int:
        """How many sessions have something under way."""
        return len(self._locks)

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
                yield opened
            except WorkspaceUnavailable as failed:
                log.error("A call failed for the provider: %s", failed.reason)
                await self._note(session, opened, failed.reason)
                raise
            finally:
                if opened.opened is not None:
                    opened.state = await opened.opened.apps.state()

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

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        """End the world and release every sandbox of it.

        Raises:
            Refusal: It is another episode's.
            Fault: A sandbox is not seen gone; closing may be asked again.
        """
        async with self._locks.holding(session):
            await self._close(session, episode)

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
                await self._take_back(session, opened, "the server is shutting down")
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
            if self.apps is None:
                return None
            task, apps = await self.apps.reopen(session)
            opened = OpenResources(standing, opened=apps)
            spec = self._spec(task)
            if spec is not None:
                opened.held = await self._hold(session, built.episode, spec, standing)
            if opened.sandbox is not None and self.equip is not None:
                await self.equip(session, opened.sandbox, apps)
            opened.state = await apps.apps.state()
            self._open[session] = opened
            return opened

    async def _seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> OpenResources:
        seed = SeedResources(
            session=session,
            episode=episode,
            request=_task_digest(episode, task),
            at=self.clock.now(),
        )
        standing = await self._carry_out(session, seed, known=_FRESH)
        opened = self._open.setdefault(session, OpenResources(standing))
        seeding = standing.state.phase is ResourcesPhase.SEEDING
        try:
            if self.apps is not None and seeding:
                opened.opened = await self.apps.build(session, task)
                opened.state = await opened.opened.apps.state()
            spec = self._spec(task)
            if spec is not None and opened.held is None:
                self.check()
                opened.held = await self._hold(session, episode, spec, standing)
            if seeding:
                await self._finish_build(session, task, opened, standing)
        except BaseException as error:
            if seeding and opened.held is None:
                with anyio.CancelScope(shield=True):
                    await self._abandon(session, opened, standing, error)
            raise
        return opened

    async def _finish_build(
        self,
        session: ResourcesSessionId,
        task: Task,
        opened: OpenResources,
        standing: Standing[ResourcesSession],
    ) -> None:
        if opened.held is not None:
            if self.equip is not None:
                await self.equip(session, opened.held.sandbox, opened.opened)
            # What the task brings goes over what every sandbox has.
            await place_files(opened.held.sandbox, self.world.files(task))
        built = MarkBuilt(
            claim=None if opened.held is None else opened.held.label.claim,
            at=self.clock.now(),
        )
        opened.standing = await self._carry_out(session, built, known=standing)

    async def _abandon(
        self,
        session: ResourcesSessionId,
        opened: OpenResources,
        standing: Standing[ResourcesSession],
        error: BaseException,
    ) -> None:
        """Leave nothing of a build that came to nothing; the id may be seeded again."""
        if opened.opened is not None:
            await opened.opened.apps.close()
        if self.apps is not None:
            await self.apps.remove(session)
        self._open.pop(session, None)
        reason = str(error) if isinstance(error, Fault | Refusal) else "it was given up"
        try:
            abandon = AbandonBuild(reason=reason, at=self.clock.now())
            await self._carry_out(session, abandon, known=standing)
        except (Refusal, Fault) as left:
            log.warning("The build of %s is still open: %s", session, left)

    def _spec(self, task: Task) -> SandboxSpec | None:
        if not self.lends and self.apps is not None:
            return None
        return self.world.sandbox(task, self.spec)

    async def _hold(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        spec: SandboxSpec,
        standing: Standing[ResourcesSession],
    ) -> HeldSandbox | None:
        """Claim the sandbox; none once grading has given it back before a restart."""
        try:
            return await self.claim(
                claim_of(session, standing.state),
                spec,
                used_by=episode.key,
                lend_to=Borrower(episode.key),
            )
        except ClaimNotUsable:
            if standing.state.verification is None:
                raise
            return None

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
            await self._find_again(session, task, opened)
            stillness = await self._still(session, opened, turn, stillness)
        start = StartVerification(
            request=digest_of(turn.response), stillness=stillness, at=self.clock.now()
        )
        opened.standing = await self._carry_out(session, start, known=opened.standing)
        verdict = opened.standing.state.verdict
        if verdict is not None:
            return _parsed(verdict)
        verification = opened.standing.state.verification
        assert verification is not None, "it was just started"
        if self.apps is not None and opened.opened is None:
            _, opened.opened = await self.apps.reopen(session)
        reply = await self.grade(
            session=str(session),
            episode=_episode(opened.standing.state),
            task=task,
            turn=turn,
            stillness=verification.stillness,
            held=opened.held,
            spec=self._spec(task),
            apps=None if opened.opened is None else opened.opened.apps,
            provider_failure=opened.standing.state.provider_failure,
        )
        given = GiveVerdict(
            reply=json.dumps(reply, ensure_ascii=False), at=self.clock.now()
        )
        opened.standing = await self._carry_out(session, given, known=opened.standing)
        return reply

    async def _find_again(
        self, session: ResourcesSessionId, task: Task, opened: OpenResources
    ) -> None:
        """Reach the sandbox that another process lent, to grade what is in it."""
        state = opened.standing.state
        spec = self._spec(task)
        if opened.held is None and state.claim is not None and spec is not None:
            episode = _episode(state)
            opened.held = await self._hold(session, episode, spec, opened.standing)

    async def _still(
        self,
        session: ResourcesSessionId,
        opened: OpenResources,
        turn: Turn,
        stillness: Stillness | None,
    ) -> Stillness | None:
        """Return why nothing of the agent can write any more, making it so if need be."""
        if self.apps is not None:
            # The apps alone are graded, so the sandbox goes, with whatever runs in it.
            await self._take_back(session, opened, "the apps are graded")
            return Stillness.SANDBOX_GONE
        if stillness is None and opened.sandbox is not None and self.stop is not None:
            stillness = await self.stop(opened.sandbox)
            if stillness is None:
                await self._take_back(session, opened, "what ran in it did not end")
                return Stillness.SANDBOX_GONE
        if stillness is None and turn.outcome is Outcome.FAILED:
            # The agent ended what watched it, so what it left running is ended the
            # only sure way. Its work goes with it, and that is its own doing.
            await self._take_back(session, opened, "the agent ended what supervised it")
            return Stillness.SANDBOX_GONE
        if stillness is None and not self.lends:
            return Stillness.NOTHING_RAN
        return stillness

    async def _take_back(
        self, session: ResourcesSessionId, opened: OpenResources, reason: str
    ) -> None:
        """Release the sandbox that the session lends."""
        known = None
        await self._let_go(session)
        if opened.held is not None:
            await opened.held.sandbox.disconnect()
            known = opened.held.standing
        claim = claim_of(session, opened.standing.state)
        label = ClaimLabel(claim=claim, owner=self.claim.owner)
        await self.release(label, reason=reason, known=known)
        opened.held = None

    async def _let_go(self, session: ResourcesSessionId) -> None:
        if self.equip is not None:
            await self.equip.let_go(session)

    async def _close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        opened = await self._opened(session)
        opened.ended = True
        start = StartResourcesClose(episode=episode, at=self.clock.now())
        standing = await self._carry_out(session, start, known=opened.standing)
        if standing.state.phase is ResourcesPhase.CLOSING:
            await self._release_all(session, opened, standing)
        if opened.opened is not None:
            await opened.opened.apps.close()
        if self.apps is not None:
            await self.apps.remove(session)
        done = CloseResources(episode=episode, at=self.clock.now())
        await self._carry_out(session, done, known=standing)
        self._open.pop(session, None)

    async def _release_all(
        self,
        session: ResourcesSessionId,
        opened: OpenResources,
        standing: Standing[ResourcesSession],
    ) -> None:
        await self._let_go(session)
        if opened.held is not None:
            await opened.held.sandbox.disconnect()
        claims = [claim_of(session, standing.state)]
        if standing.state.verification is not None and standing.state.verdict is None:
            # A grader's claim is released by whoever graded, unless that was cut off.
            claims += [grader_claim(str(session), n) for n in range(GRADER_CLAIMS_MAX)]
        failure: Fault | None = None
        for claim in claims:
            label = ClaimLabel(claim=claim, owner=self.claim.owner)
            known = None
            if opened.held is not None and opened.held.label == label:
                known = opened.held.standing
            try:
                await self.release(label, reason="the episode is over", known=known)
            except Fault as fault:
                failure = failure or fault
        if failure is not None:
            failed = FailResourcesClose(reason=str(failure), at=self.clock.now())
            await self._carry_out(session, failed, known=standing)
            raise failure

    async def _opened(self, session: ResourcesSessionId) -> OpenResources:
        opened = self._open.get(session)
        if opened is not None:
            return opened
        return OpenResources(await self.standing(session))

    async def _carry_out(
        self,
        session: ResourcesSessionId,
        *commands: Command,
        known: Standing[ResourcesSession],
    ) -> Standing[ResourcesSession]:
        stream = resources_session_stream(session)
        return await carry_out(self.journal, stream, DECIDER, *commands, known=known)


def claim_of(session: ResourcesSessionId, state: ResourcesSession) -> ClaimId:
    """Return the name of the claim of the sandbox that a session lends.

    A seed that is made anew, after one that came to nothing, has a claim of its own.
    """
    built = state.built
    if built is None:
        return ClaimId(str(session))
    which = hashlib.sha256(f"{built.request} {built.at!r}".encode()).hexdigest()
    return ClaimId(f"{session}-{which[:WHICH_CHARACTERS]}")


def _episode(state: ResourcesSession) -> EpisodeId:
    assert state.built is not None, "what is graded was built"
    return state.built.episode


def _task_digest(episode: EpisodeId, task: Task) -> RequestDigest:
    return digest_of(
        {
            "episode": [episode.rollout_id, episode.attempt],
            "task": [task.task_id.taskset, task.task_id.task_id],
            "task_data": task.task_data,
        }
    )


def _parsed(reply: str) -> Mapping[str, Json]:
    parsed: Mapping[str, Json] = json.loads(reply)
    return parsed
