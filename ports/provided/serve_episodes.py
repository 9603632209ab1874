# SPDX-License-Identifier: Apache-2.0
"""Serve episodes to callers that come and go, beside other processes that do the same.

The same episode with the same request is run once: who asks meanwhile joins it, who
asks later gets its result again, for a while. A failure is not kept; asked again, the
episode is run anew. An episode that waits for its place holds nothing.
"""

import itertools
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs

from ...domain.admissions import AdmissionFull, AdmissionIsShut, Ticket
from ...domain.digests import RequestDigest
from ...domain.episodes import (
    DECIDER,
    Episode,
    EpisodeConflict,
    EpisodeElsewhere,
    EpisodePhase,
    Event,
    QueueEpisode,
    TakeOverEpisode,
)
from ...domain.failures import QUEUE_TIMEOUT, Failure, Stage
from ...domain.tasks import EpisodeId, Task
from ..required.faults import Fault
from ..required.holders import Holders
from ..required.journal import Stream, StreamMoved, episode_stream
from ..required.participants import ParticipantFailed
from .admit_episodes import AdmitEpisodes
from .carry_out import Standing, carry_out, read_most_likely_absent, read_state
from .episode_rows import Row, failure_of, to_row, with_seconds
from .log_context import logged_as
from .run_episode import RunEpisode
from .shared_calls import SharedCalls, open_shared_calls

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""How often who waits for another process looks whether that one is alive."""
SWEEPS: Final = 4
"""How often within the time of keeping the sweeper looks."""
SWEEP_SECONDS_MAX: Final = 30.0


@attrs.frozen(kw_only=True)
class EpisodePatience:
    """The times and numbers that bound what is served. All times are in seconds."""

    disconnect_grace_seconds: float = 30.0
    """How long an episode goes on that nobody waits for."""
    keep_seconds: float = 3600.0
    """How long a result is given again."""
    kept_max: int = 10_000
    finish_seconds: float = 20.0
    """How long after shutdown began episodes may still come to their end."""


@attrs.frozen(kw_only=True)
class ServedEpisodes:
    """The episodes that this process serves."""

    run_episode: RunEpisode
    holders: Holders
    admit: AdmitEpisodes
    patience: EpisodePatience
    calls: SharedCalls
    once: bool = True
    """Whether the same request is run once; otherwise each one is an episode anew."""
    _asked: dict[str, tuple[RequestDigest, int]] = attrs.field(
        factory=dict[str, tuple[RequestDigest, int]], init=False
    )
    """What is under way here, by the episode's key, and for how many callers."""
    _running: dict[anyio.CancelScope, anyio.Event] = attrs.field(
        factory=dict[anyio.CancelScope, anyio.Event], init=False
    )
    """What cancels each episode under way, and what tells its end."""
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _kept: OrderedDict[str, float] = attrs.field(
        factory=OrderedDict[str, float], init=False
    )
    _draining: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @property
    def draining(self) -> bool:
        """Whether shutdown has begun."""
        return self._draining.is_set()

    @property
    def remembered(self) -> int:
        """How many episodes this process holds anything of, the finished included."""
        return len({*self._asked, *self._kept})

    async def __call__(self, episode: EpisodeId, task: Task) -> Row:
        """Return the episode's row, run now, joined or given again.

        Raises:
            EpisodeConflict: It stands for another request.
            AdmissionIsShut: Shutdown has begun.
            JournalUnusable: Nothing can be written down.
        """
        if self.draining:
            raise AdmissionIsShut(ticket=Ticket(episode.key))
        if not self.once:
            return await self._anew(episode, task)
        with self._noted(episode, task.request):
            return await self.calls(
                (episode, task.task_id, task.request),
                lambda: self._run(episode, task),
                linger_seconds=self.patience.disconnect_grace_seconds,
            )

    async def drain(self) -> None:
        """Begin no episode any more; end what runs when its time is over, and clean up."""
        if self.draining:
            return
        self._draining.set()
        self.admit.shut()
        with anyio.move_on_after(self.patience.finish_seconds):
            await self._all_ended()
        for scope in tuple(self._running):
            scope.cancel()
        await self._all_ended()

    async def sweep(self) -> None:
        """Forget what was kept for long enough, until cancelled."""
        keep = self.patience.keep_seconds
        while True:
            await self.run_episode.clock.sleep(min(keep / SWEEPS, SWEEP_SECONDS_MAX))
            try:
                while self._kept and (
                    len(self._kept) > self.patience.kept_max
                    or next(iter(self._kept.values())) <= self._now() - keep
                ):
                    await self._forget(next(iter(self._kept)))
            except Fault as fault:
                log.warning("What is old was not swept: %s", fault)

    def _noted(self, episode: EpisodeId, digest: RequestDigest) -> "_Noted":
        return _Noted(asked=self._asked, episode=episode, digest=digest)

    async def _run(self, episode: EpisodeId, task: Task) -> Row:
        with logged_as(episode=episode.key):
            followed = False
            while True:
                standing = await self._standing(episode, task)
                state = standing.state
                if state.phase is EpisodePhase.DONE and (followed or not _old(state)):
                    return await self._again(episode, task)
                if state.phase is EpisodePhase.DONE:
                    await self._forget(episode.key)
                elif await self._is_elsewhere(episode, standing):
                    followed = True
                    continue
                try:
                    return await self._admitted(self.run_episode, episode, task)
                except EpisodeElsewhere:
                    followed = True

    async def _admitted(self, run: RunEpisode, episode: EpisodeId, task: Task) -> Row:
        """Run the episode in its place; waiting too long for one is a failure."""
        ticket = Ticket(f"{self.run_episode.run}/{episode.key}")
        began = run.clock.monotonic()
        scope = anyio.CancelScope()
        try:
            async with self.admit.place(ticket):
                waited = run.clock.monotonic() - began
                ended = self._running[scope] = anyio.Event()
                try:
                    row = await run(episode, task, scope=scope)
                finally:
                    del self._running[scope]
                    ended.set()
                    self._kept[episode.key] = self._now()
                    self._kept.move_to_end(episode.key)
        except AdmissionFull:
            seconds = self.admit.patience_seconds
            return _failed_in_queue(episode, task, seconds)
        except ParticipantFailed as failed:
            # Whom it is to be run with cannot be asked, or is not what is needed.
            failure = failure_of(failed)
            return to_row(
                episode, task.task_id, result=None, failure=failure, response=None
            )
        return with_seconds(row, "queue", waited)

    async def _again(self, episode: EpisodeId, task: Task) -> Row:
        self._kept.setdefault(episode.key, self._now())
        return await self.run_episode(episode, task)

    async def _anew(self, episode: EpisodeId, task: Task) -> Row:
        """Run the episode as one that nobody can ask for again."""
        name = f"{self.run_episode.run}-{self.holders.own}-{next(self._numbers)}"
        fresh = attrs.evolve(self.run_episode, run=name)
        try:
            return await self.calls(
                fresh.run,
                lambda: self._admitted(fresh, episode, task),
                linger_seconds=0.0,
            )
        finally:
            self._kept.pop(episode.key, None)
            with anyio.CancelScope(shield=True):
                await self._forget_stream(episode_stream(fresh.run, episode.key))

    async def _standing(self, episode: EpisodeId, task: Task) -> Standing[Episode]:
        """Return what the journal knows; raises `EpisodeConflict`."""
        run = self.run_episode
        stream = episode_stream(run.run, episode.key)
        standing = await read_most_likely_absent(run.journal, stream, DECIDER)
        queue = QueueEpisode(
            episode=episode,
            task=task.task_id,
            request=task.request,
            at=run.clock.now(),
        )
        DECIDER.decide(standing.state, queue)
        return standing

    async def _is_elsewhere(
        self, episode: EpisodeId, standing: Standing[Episode]
    ) -> bool:
        """Tell whether another process has it in hand, having waited for that a while.

        The episode of a dead process is taken over.
        """
        state, own = standing.state, self.holders.own
        if state.phase is EpisodePhase.ABSENT or state.holder == own:
            return False
        run = self.run_episode
        stream = episode_stream(run.run, episode.key)
        if state.holder is not None and await self.holders.alive(state.holder):
            with anyio.move_on_after(LOOK_SECONDS):
                await run.journal.moved(stream, after=standing.version)
            return True
        take = TakeOverEpisode(taken_from=state.holder, holder=own, at=run.clock.now())
        taken = await carry_out(run.journal, stream, DECIDER, take, known=standing)
        return taken.state.holder != own

    async def _all_ended(self) -> None:
        for ended in tuple(self._running.values()):
            await ended.wait()

    async def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        try:
            await self._forget_stream(episode_stream(self.run_episode.run, key))
        except BaseException:
            # A later sweep tries again, and the others first.
            if kept is not None:
                self._kept.setdefault(key, kept)
            raise

    async def _forget_stream(self, stream: Stream[Event]) -> None:
        journal = self.run_episode.journal
        standing = await read_state(journal, stream, DECIDER)
        if standing.state.phase is not EpisodePhase.DONE:
            return
        try:
            await journal.forget(stream, expected_version=standing.version)
        except StreamMoved:
            log.info("Another process has forgotten %s", stream.key)

    def _now(self) -> float:
        return self.run_episode.clock.monotonic()


@attrs.frozen
class _Noted:
    """Keeps another request under the same name out while one is under way."""

    asked: dict[str, tuple[RequestDigest, int]]
    episode: EpisodeId
    digest: RequestDigest

    def __enter__(self) -> None:
        standing, callers = self.asked.get(self.episode.key, (self.digest, 0))
        if standing != self.digest:
            raise EpisodeConflict(episode=self.episode)
        self.asked[self.episode.key] = (standing, callers + 1)

    def __exit__(self, *_: object) -> None:
        standing, callers = self.asked[self.episode.key]
        if callers == 1:
            del self.asked[self.episode.key]
        else:
            self.asked[self.episode.key] = (standing, callers - 1)


@asynccontextmanager
async def serve_episodes(
    run_episode: RunEpisode,
    admit: AdmitEpisodes,
    patience: EpisodePatience,
    *,
    once: bool = True,
) -> AsyncGenerator[ServedEpisodes]:
    """Serve episodes inside the block; on leaving, what runs is ended and cleaned up."""
    assert run_episode.holders is not None, "other processes may serve the same"
    async with anyio.create_task_group() as group, open_shared_calls() as calls:
        served = ServedEpisodes(
            run_episode=run_episode,
            holders=run_episode.holders,
            admit=admit,
            patience=patience,
            calls=calls,
            once=once,
        )
        group.start_soon(served.sweep)
        group.start_soon(admit.tidy)
        try:
            yield served
        finally:
            with anyio.CancelScope(shield=True):
                await served.drain()
            group.cancel_scope.cancel()


def _old(state: Episode) -> bool:
    """Whether what is done is not to be given again."""
    return state.failure is not None


def _failed_in_queue(episode: EpisodeId, task: Task, seconds: float) -> Row:
    failure = Failure(
        stage=Stage.ADMISSION,
        kind=QUEUE_TIMEOUT,
        reason=f"no place became free within {seconds:g} s",
        terminal=False,
    )
    return to_row(episode, task.task_id, result=None, failure=failure, response=None)
