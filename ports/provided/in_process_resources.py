# SPDX-License-Identifier: Apache-2.0
"""Resources in this process: build a task's world, lend its sandbox, grade the work.

Everything is safe to ask again, also after a kill: what was built is found by the
claim's name, what was exported stands as an artifact, what was judged is replayed.
"""

import json
import logging
from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.activations import Outcome, Stillness
from ...domain.claims import Borrower, ClaimId, ClaimNotUsable
from ...domain.digests import Json, RequestDigest, digest_of
from ...domain.failures import (
    PROVIDER_QUOTA_EXHAUSTED,
    PROVIDER_UNAVAILABLE,
    REQUEST_REFUSED,
    SESSION_LOST,
    SESSION_RELEASE_FAILED,
    FailureKind,
)
from ...domain.refusals import Refusal
from ...domain.resources_sessions import (
    DECIDER,
    CloseResources,
    Command,
    FailResourcesClose,
    GiveVerdict,
    MarkBuilt,
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
from ..required.participants import Lent, ParticipantFailed, TaskState, Turn
from ..required.sandbox import SandboxLost
from ..required.sandbox_provider import CapacityExhausted, ClaimLabel, SandboxSpec
from ..required.world import TaskRefused, World
from .carry_out import Standing, carry_out, read_state
from .claim_sandbox import ClaimSandbox, HeldSandbox
from .grade_work import GRADER_CLAIMS_MAX, GradeWork, grader_claim
from .log_context import logged_as
from .place_files import place_files
from .release_claim import ReleaseClaim

log = logging.getLogger(__name__)

_FRESH: Final = Standing(DECIDER.initial, 0)


@attrs.define
class _Lent:
    """What this process holds of an open session."""

    standing: Standing[ResourcesSession]
    held: HeldSandbox | None = None


@attrs.frozen(kw_only=True)
class InProcessResources:
    """The `Resources` of one world and one sandbox provider."""

    journal: Journal
    clock: Clock
    world: World
    spec: SandboxSpec
    """The configured sandbox, which a task may bend."""
    claim: ClaimSandbox
    release: ReleaseClaim
    grade: GradeWork
    _open: dict[ResourcesSessionId, _Lent] = attrs.field(
        factory=dict[ResourcesSessionId, _Lent], init=False
    )

    async def seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        """Build the world; return what it lends.

        Raises:
            ParticipantFailed: It could not be built; what was made was given back.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                return await self._seed(session, episode, task)
            except (Fault, Refusal) as error:
                raise _failed("seed", error) from error

    async def task_state(self, session: ResourcesSessionId) -> TaskState:
        """Return that no call of a tool has finished: the world has none."""
        return TaskState()

    async def verify(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        task: Task,
        turn: Turn,
        *,
        stillness: Stillness | None,
        handed_back: Mapping[str, str] | None = None,
    ) -> Mapping[str, Json]:
        """Grade the work once; the first verdict is replayed from then on.

        Raises:
            ParticipantFailed: No verdict came of it.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                return await self._verify(session, episode, task, turn, stillness)
            except (Fault, Refusal) as error:
                raise _failed("verify", error) from error

    async def close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        """End the world and release every sandbox of it.

        Raises:
            ParticipantFailed: One is not seen gone; closing may be asked again.
        """
        with logged_as(episode=episode.key, session=session):
            try:
                await self._close(session, episode)
            except (Fault, Refusal) as error:
                raise _failed("close", error) from error

    async def _seed(
        self, session: ResourcesSessionId, episode: EpisodeId, task: Task
    ) -> Lent:
        self.world.check(task)
        seed = SeedResources(
            session=session,
            episode=episode,
            request=_task_digest(episode, task),
            at=self.clock.now(),
        )
        standing = await self._carry_out(session, seed, known=_FRESH)
        lent = self._open.setdefault(session, _Lent(standing))
        spec = self.world.sandbox(task, self.spec)
        if spec is not None and lent.held is None:
            lent.held = await self._hold(session, episode, spec, standing)
        if standing.state.phase is ResourcesPhase.SEEDING:
            if lent.held is not None:
                await place_files(lent.held.sandbox, self.world.files(task))
            built = MarkBuilt(
                claim=None if lent.held is None else lent.held.label.claim,
                at=self.clock.now(),
            )
            lent.standing = await self._carry_out(session, built, known=standing)
        return Lent(access=None if lent.held is None else lent.held.sandbox.access())

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
                _claim(session),
                spec,
                used_by=episode.key,
                lend_to=Borrower(episode.key),
            )
        except ClaimNotUsable:
            if standing.state.verification is None:
                raise
            return None

    async def _verify(
        self,
        session: ResourcesSessionId,
        episode: EpisodeId,
        task: Task,
        turn: Turn,
        stillness: Stillness | None,
    ) -> Mapping[str, Json]:
        lent = await self._lent(session)
        if stillness is None and turn.outcome is Outcome.FAILED:
            # The agent ended what watched it, so what it left running is ended the
            # only sure way. Its work goes with it, and that is its own doing.
            await self._take_back(session, lent)
            stillness = Stillness.SANDBOX_GONE
        start = StartVerification(
            request=digest_of(turn.response), stillness=stillness, at=self.clock.now()
        )
        lent.standing = await self._carry_out(session, start, known=lent.standing)
        verdict = lent.standing.state.verdict
        if verdict is not None:
            return _parsed(verdict)
        verification = lent.standing.state.verification
        assert verification is not None, "it was just started"
        reply = await self.grade(
            session=str(session),
            episode=episode,
            task=task,
            turn=turn,
            stillness=verification.stillness,
            held=lent.held,
            spec=self.world.sandbox(task, self.spec),
        )
        given = GiveVerdict(
            reply=json.dumps(reply, ensure_ascii=False), at=self.clock.now()
        )
        lent.standing = await self._carry_out(session, given, known=lent.standing)
        return reply

    async def _take_back(self, session: ResourcesSessionId, lent: _Lent) -> None:
        """Release the agent's sandbox before anything of it was graded."""
        if lent.held is not None:
            await lent.held.sandbox.disconnect()
        label = ClaimLabel(claim=_claim(session), owner=self.claim.owner)
        await self.release(label, reason="the agent ended what supervised it")
        lent.held = None

    async def _close(self, session: ResourcesSessionId, episode: EpisodeId) -> None:
        lent = await self._lent(session)
        start = StartResourcesClose(episode=episode, at=self.clock.now())
        standing = await self._carry_out(session, start, known=lent.standing)
        if standing.state.phase is ResourcesPhase.CLOSING:
            await self._release_all(session, lent, standing)
        done = CloseResources(episode=episode, at=self.clock.now())
        await self._carry_out(session, done, known=standing)
        self._open.pop(session, None)

    async def _release_all(
        self,
        session: ResourcesSessionId,
        lent: _Lent,
        standing: Standing[ResourcesSession],
    ) -> None:
        if lent.held is not None:
            await lent.held.sandbox.disconnect()
        claims = [_claim(session)]
        if standing.state.verification is not None and standing.state.verdict is None:
            # A grader's claim is released by whoever graded, unless that was cut off.
            claims += [grader_claim(str(session), n) for n in range(GRADER_CLAIMS_MAX)]
        failure: Fault | None = None
        for claim in claims:
            label = ClaimLabel(claim=claim, owner=self.claim.owner)
            known = None
            if lent.held is not None and lent.held.label == label:
                known = lent.held.standing
            try:
                await self.release(label, reason="the episode is over", known=known)
            except Fault as fault:
                failure = failure or fault
        if failure is not None:
            failed = FailResourcesClose(reason=str(failure), at=self.clock.now())
            await self._carry_out(session, failed, known=standing)
            raise failure

    async def _lent(self, session: ResourcesSessionId) -> _Lent:
        lent = self._open.get(session)
        if lent is not None:
            return lent
        stream = resources_session_stream(session)
        return _Lent(await read_state(self.journal, stream, DECIDER))

    async def _carry_out(
        self,
        session: ResourcesSessionId,
        *commands: Command,
        known: Standing[ResourcesSession],
    ) -> Standing[ResourcesSession]:
        stream = resources_session_stream(session)
        return await carry_out(self.journal, stream, DECIDER, *commands, known=known)


def _claim(session: ResourcesSessionId) -> ClaimId:
    return ClaimId(str(session))


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


def _failed(step: str, error: Fault | Refusal) -> ParticipantFailed:
    return ParticipantFailed(
        participant="resources",
        step=step,
        failure_kind=_kind(step, error),
        reason=str(error),
        terminal=not _is_lost(error)
        and not (isinstance(error, Fault) and error.can_retry),
    )


def _is_lost(error: Fault | Refusal) -> bool:
    """Tell whether the sandbox is gone, or its claim given back by another process."""
    return isinstance(error, SandboxLost | ClaimNotUsable)


def _kind(step: str, error: Fault | Refusal) -> FailureKind:
    if step == "close":
        return SESSION_RELEASE_FAILED
    if isinstance(error, CapacityExhausted):
        return PROVIDER_QUOTA_EXHAUSTED
    if _is_lost(error):
        return SESSION_LOST
    if isinstance(error, Refusal | TaskRefused):
        return REQUEST_REFUSED
    return PROVIDER_UNAVAILABLE
