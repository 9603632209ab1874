# SPDX-License-Identifier: Apache-2.0
"""Run an episode: seed, act, verify, clean up, each step safe to repeat.

What must be closed is written down before it is made, and closed in reverse order,
shielded, each participant with its own share of the time, also when the caller has
gone. An episode that a killed process left behind goes on where it stood when it is
asked for again: its session ids come from its name and the moment that it was queued.
Where several processes may be asked for it, one has it in hand.
"""

import hashlib
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from functools import cached_property
from typing import Final

import anyio
import attrs

from ...domain.activations import Outcome
from ...domain.agent_sessions import AgentSessionId
from ...domain.deciders import Instant
from ...domain.digests import Json
from ...domain.episodes import (
    DECIDER,
    Admit,
    Command,
    EndTurn,
    Episode,
    EpisodeConflict,
    EpisodeElsewhere,
    EpisodeOutOfStep,
    EpisodePhase,
    Event,
    Fail,
    Finish,
    NoteClosed,
    NoteSeeded,
    NoteStep,
    NoteUnclosed,
    NoteVerified,
    Participant,
    QueueEpisode,
    StartSeed,
    StartTurn,
    StartVerifying,
)
from ...domain.failures import (
    AGENT_RUN_ERROR,
    CANCELLED,
    INTERRUPTED,
    SESSION_LOST,
    SESSION_RELEASE_FAILED,
    TRANSPORT_TIMEOUT,
    Failure,
    FailureKind,
)
from ...domain.refusals import Refusal
from ...domain.resources_sessions import ResourcesSessionId
from ...domain.tasks import EpisodeId, Task
from ..required.clock import Clock
from ..required.faults import Fault
from ..required.holders import Holders
from ..required.journal import Journal, JournalUnusable, Stream, episode_stream
from ..required.participants import (
    Agent,
    AgentClosed,
    ParticipantFailed,
    Resources,
    Turn,
)
from .carry_out import Standing, carry_out, read_state
from .episode_rows import (
    Row,
    failure_of,
    from_result,
    from_turn,
    stage_of,
    to_result,
    to_row,
    to_turn,
)
from .episode_steps import asks_for_more, next_request, turn_of_steps
from .log_context import logged_as
from .stage_times import StageTimed, count_whole_turn

log = logging.getLogger(__name__)

EPISODE_SECONDS: Final = 21600.0
CLEANUP_SECONDS: Final = 180.0
"""What each participant has for its close."""
CLOSES_MAX: Final = 2
"""How often a participant is asked to close in its share of the time."""

_FRESH: Final = Standing(DECIDER.initial, 0)
_ENDED: Final = (EpisodePhase.CLEANING, EpisodePhase.DONE)


@attrs.frozen(kw_only=True)
class RunEpisode:
    """The use case, for the two participants of one run."""

    journal: Journal
    clock: Clock
    run: str
    """The id of the run that the episodes belong to."""
    resources: Resources
    agent: Agent
    episode_seconds: float = EPISODE_SECONDS
    cleanup_seconds: float = CLEANUP_SECONDS
    max_steps: int | None = None
    """Into how many steps at most a turn is cut; None: it is one activation."""
    holders: Holders | None = None
    """Where other processes may be asked for the same episode."""

    def __call__(
        self, episode: EpisodeId, task: Task, *, scope: anyio.CancelScope | None = None
    ) -> Coroutine[object, None, Row]:
        """Run the episode to its end and return its row.

        Cancelling `scope` ends it early: cleaned up, with the failure `cancelled`.

        Raises:
            EpisodeConflict: The episode's name stands for another request.
            EpisodeElsewhere: Another process has it in hand; nothing was done.
            JournalUnusable: Nothing can be written down any more.
        """
        running = _Running(
            use=self,
            episode=episode,
            task=task,
            stream=episode_stream(self.run, episode.key),
            scope=scope or anyio.CancelScope(),
        )
        return running.to_the_end()

    def session(
        self, participant: Participant, episode: EpisodeId, queued_at: Instant
    ) -> str:
        """Return the session id of a participant, the same after a restart.

        An episode that is queued anew, since it failed, has new sessions.
        """
        name = f"{self.run}/{episode.key}/{queued_at!r}".encode()
        return f"{participant}-session-{hashlib.sha256(name).hexdigest()[:32]}"


@attrs.define(kw_only=True)
class _Running:
    """One episode under way."""

    use: RunEpisode
    episode: EpisodeId
    task: Task
    stream: Stream[Event]
    scope: anyio.CancelScope
    standing: Standing[Episode] = _FRESH
    seconds: dict[str, float] = attrs.field(factory=dict[str, float])
    """How long each stage took; a turn that was taken over, also before that."""

    async def to_the_end(self) -> Row:
        failure: Failure | None = None
        with logged_as(episode=self.episode.key):
            try:
                with self.scope:
                    failure = await self._act()
                if self.scope.cancelled_caught:
                    failure = self._failure(CANCELLED, "the run was stopped")
            except anyio.get_cancelled_exc_class():
                await self._end(self._failure(CANCELLED, "the caller went away"))
                raise
            return await self._end(failure)

    async def _act(self) -> Failure | None:
        """Go through the stages; return the failure that ended them, if one did."""
        with anyio.move_on_after(self.use.episode_seconds):
            try:
                return await self._stages()
            except ParticipantFailed as failed:
                return failure_of(failed)
            except (JournalUnusable, EpisodeConflict, EpisodeElsewhere):
                raise
            except (Refusal, Fault) as error:
                again = isinstance(error, Fault) and error.can_retry
                return self._failure(AGENT_RUN_ERROR, str(error), terminal=not again)
            except Exception as error:
                # A mistake of ours in one episode must not end the others.
                log.exception("Episode %s hit an unexpected fault", self.episode.key)
                reason = f"unexpected {type(error).__name__}: {error}"
                return self._failure(AGENT_RUN_ERROR, reason, terminal=True)
        reason = f"the episode took longer than {self.use.episode_seconds:g} s"
        return self._failure(TRANSPORT_TIMEOUT, reason)

    async def _stages(self) -> Failure | None:
        await self._begin()
        phase = self.standing.state.phase
        if phase in _ENDED:
            return None
        with self._timed("seed"):
            lent = await self.use.resources.seed(
                self._resources_session, self.episode, self.task
            )
            if phase is EpisodePhase.SEEDING:
                await self._do(
                    NoteSeeded(participant=Participant.RESOURCES, at=self._now()),
                    StartSeed(
                        participant=Participant.AGENT,
                        session=self._agent_session,
                        at=self._now(),
                    ),
                )
            if self.standing.state.response is None:
                await self.use.agent.seed(
                    self._agent_session, self.episode, self.task.task_id, lent
                )
        turn = await self._turn()
        if turn.outcome is Outcome.SANDBOX_ERROR:
            return self._failure(SESSION_LOST, turn.reason or "the sandbox was lost")
        if turn.outcome is Outcome.CANCELLED:
            return self._failure(INTERRUPTED, turn.reason or "the run was cut off")
        await self._verify(turn)
        return None

    async def _begin(self) -> None:
        queue = QueueEpisode(
            episode=self.episode,
            task=self.task.task_id,
            request=self.task.request,
            holder=None if self.use.holders is None else self.use.holders.own,
            at=self._now(),
        )
        seed = StartSeed(
            participant=Participant.RESOURCES,
            session=self.use.session(Participant.RESOURCES, self.episode, queue.at),
            at=self._now(),
        )
        try:
            await self._do(queue, Admit(at=self._now()), seed)
        except EpisodeOutOfStep:
            # It was begun before a restart: go on where it stands.
            self.standing = await carry_out(
                self.use.journal, self.stream, DECIDER, queue
            )
            state = self.standing.state
            if state.holder != queue.holder and state.phase is not EpisodePhase.DONE:
                assert state.holder is not None, "where there are holders, it has one"
                raise EpisodeElsewhere(self.episode, state.holder) from None

    async def _turn(self) -> Turn:
        before = self.standing.state
        turn = None if before.response is None else to_turn(before.response)
        if is_ours := before.phase is EpisodePhase.SEEDING:
            seeded = NoteSeeded(participant=Participant.AGENT, at=self._now())
            await self._do(seeded, StartTurn(at=self._now()))
        if turn is None:
            with self._timed("act"):
                turn = await self._acted()
            await self._do(EndTurn(response=from_turn(turn), at=self._now()))
        if not is_ours:
            count_whole_turn(self.seconds, self.standing.state, turn)
        return turn

    def _acted(self) -> Awaitable[Turn]:
        """Have the agent act, in one activation or step by step."""
        if self.use.max_steps is None:
            return self._activate(self.task.responses_create_params)
        return self._acted_in_steps(self.use.max_steps)

    async def _acted_in_steps(self, max_steps: int) -> Turn:
        asked = self.task.responses_create_params
        steps = [to_turn(step) for step in self.standing.state.steps]
        while not (steps and await self._is_over(steps, max_steps)):
            turn = await self._activate(next_request(asked, steps))
            note = NoteStep(number=len(steps), step=from_turn(turn), at=self._now())
            await self._do(note)
            steps.append(turn)
        return turn_of_steps(steps)

    def _activate(self, parameters: Mapping[str, Json]) -> Awaitable[Turn]:
        return self.use.agent.activate(self._agent_session, self.episode, parameters)

    async def _is_over(self, steps: list[Turn], max_steps: int) -> bool:
        if len(steps) >= max_steps or not asks_for_more(steps[-1]):
            return True
        state = await self.use.resources.task_state(self._resources_session)
        return state.complete

    async def _verify(self, turn: Turn) -> None:
        closed = await self._close_agent()
        if self.standing.state.phase is EpisodePhase.ACTING:
            await self._do(
                NoteClosed(participant=Participant.AGENT, at=self._now()),
                StartVerifying(at=self._now()),
            )
        with self._timed("verify"):
            reply = await self.use.resources.verify(
                self._resources_session,
                self.episode,
                self.task,
                turn,
                stillness=closed.stillness,
                handed_back=closed.handed_back,
            )
        text = from_result(reply, closed.observations, self.seconds)
        await self._do(NoteVerified(result=text, at=self._now()))

    async def _close_agent(self) -> AgentClosed:
        """Close the agent, twice if need be: a finished turn is worth it."""
        for attempt in range(1, CLOSES_MAX + 1):
            try:
                with anyio.fail_after(self.use.cleanup_seconds):
                    return await self.use.agent.close(self._agent_session, self.episode)
            except (ParticipantFailed, TimeoutError) as error:
                if attempt == CLOSES_MAX:
                    raise ParticipantFailed(
                        participant=Participant.AGENT,
                        step="close",
                        failure_kind=SESSION_RELEASE_FAILED,
                        reason=str(error) or "closing took too long",
                        terminal=False,
                    ) from error
        raise AssertionError("the loop returns or raises")

    async def _end(self, failure: Failure | None) -> Row:
        with anyio.CancelScope(shield=True):
            if failure is not None and not self.standing.version:
                await self._look_again()
            if failure is not None and not self.standing.version:
                return self._row(failure, None)  # Stopped before anything was begun.
            await self._clean_up(failure)
        state = self.standing.state
        return self._row(state.failure, state.result)

    async def _look_again(self) -> None:
        """Know what stands of an episode of ours whose first write was cut off."""
        found = await read_state(self.use.journal, self.stream, DECIDER)
        own = None if self.use.holders is None else self.use.holders.own
        if found.state.holder == own:
            self.standing = found

    async def _clean_up(self, failure: Failure | None) -> None:
        if failure is not None and self.standing.state.phase not in _ENDED:
            await self._do(Fail(failure=failure, at=self._now()))
        settled: list[Command] = []
        if owed := self.standing.state.owed:
            with self._timed("clean"):
                settled = [await self._close(*each) for each in reversed(owed)]
        await self._do(*settled, Finish(at=self._now()))

    async def _close(self, participant: Participant, session: str) -> Command:
        """Close one participant within its own share of the time."""
        reason = f"closing took longer than {self.use.cleanup_seconds:g} s"
        with anyio.move_on_after(self.use.cleanup_seconds, shield=True):
            for _ in range(CLOSES_MAX):
                try:
                    await self._asked_to_close(participant, session)
                    return NoteClosed(participant=participant, at=self._now())
                except (Fault, Refusal) as error:
                    reason = str(error)
                except Exception as error:
                    # A mistake in one participant must not cost the other its close.
                    log.exception("Closing %s hit an unexpected fault", participant)
                    reason = f"unexpected {type(error).__name__}: {error}"
        log.error("%s of %s is not closed: %s", participant, self.episode.key, reason)
        return NoteUnclosed(participant=participant, reason=reason, at=self._now())

    async def _asked_to_close(self, participant: Participant, session: str) -> None:
        if participant is Participant.AGENT:
            await self.use.agent.close(AgentSessionId(session), self.episode)
        else:
            await self.use.resources.close(ResourcesSessionId(session), self.episode)

    async def _do(self, *commands: Command) -> None:
        self.standing = await carry_out(
            self.use.journal, self.stream, DECIDER, *commands, known=self.standing
        )

    def _row(self, failure: Failure | None, result: str | None) -> Row:
        response = self.standing.state.response
        turn = None if response is None else to_turn(response)
        return to_row(
            self.episode,
            self.task.task_id,
            result=to_result(result, self.seconds, turn),
            failure=failure,
            response=None if turn is None else turn.response,
        )

    def _failure(
        self, kind: FailureKind, reason: str, *, terminal: bool = False
    ) -> Failure:
        stage = stage_of(self.standing.state.phase)
        return Failure(stage=stage, kind=kind, reason=reason, terminal=terminal)

    def _now(self) -> Instant:
        return self.use.clock.now()

    def _timed(self, stage: str) -> StageTimed:
        return StageTimed(clock=self.use.clock, seconds=self.seconds, stage=stage)

    @cached_property
    def _resources_session(self) -> ResourcesSessionId:
        return ResourcesSessionId(self._session(Participant.RESOURCES))

    @cached_property
    def _agent_session(self) -> AgentSessionId:
        return AgentSessionId(self._session(Participant.AGENT))

    def _session(self, participant: Participant) -> str:
        queued = self.standing.state.queued
        assert queued is not None, "it was queued before anybody is seeded"
        return self.use.session(participant, self.episode, queued.at)
