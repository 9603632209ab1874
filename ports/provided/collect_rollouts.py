# SPDX-License-Identifier: Apache-2.0
"""Collect rollouts: run what a run owes, so many at a time, and keep every row.

Episodes start in the order they are owed. Stopping admits no more, ends what runs,
and keeps a row of it. An attempt of a process that was killed, or was told twice to
stop, and that cannot be gone on with is followed by the next attempt at once.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
import attrs

from ...domain.failures import (
    CANCELLED,
    INTERRUPTED,
    VERIFIER_ERROR,
    Failure,
    Stage,
)
from ...domain.rollouts import ATTEMPTS_MAX, Owed, Record, RecordKind
from ...domain.tasks import EpisodeId, Task, TaskId
from ..required.result_log import ResultLog, RowRefused
from .episode_rows import Row, to_row

log = logging.getLogger(__name__)

CONCURRENCY: Final = 4


@attrs.define(kw_only=True)
class Progress:
    """How far a run is. Changes under the reader's eyes."""

    total: int
    running: int = 0
    passed: int = 0
    failed: int = 0
    masked: int = 0
    broken: int = 0

    @property
    def done(self) -> int:
        """How many have a row."""
        return self.passed + self.failed + self.masked + self.broken

    def note(self, record: Record) -> None:
        """Count one finished episode."""
        counted = str(record.kind)
        setattr(self, counted, getattr(self, counted) + 1)


class RunsEpisodes(Protocol):
    """Runs one episode after the other: in this process, or at a server."""

    def __call__(
        self, episode: EpisodeId, task: Task, *, scope: anyio.CancelScope | None = None
    ) -> Awaitable[Row]:
        """Run the episode to its end and return its row; `scope` ends it early."""
        ...


@attrs.define(kw_only=True)
class CollectRollouts:
    """The use case, for one run."""

    run_episode: RunsEpisodes
    results: ResultLog
    task: Callable[[TaskId], Task]
    """Gives a task by its name."""
    concurrency: int = CONCURRENCY
    on_progress: Callable[[Progress], None] = lambda progress: None
    _stopped: bool = attrs.field(default=False, init=False)
    _scopes: set[anyio.CancelScope] = attrs.field(
        factory=set[anyio.CancelScope], init=False
    )

    async def __call__(self, owed: Sequence[Owed]) -> Progress:
        """Run the owed episodes and return the counts.

        Raises:
            ResultLogUnusable, JournalUnusable: Nothing can be kept any more; what
                ran was cleaned up.
        """
        queue = deque(owed)
        progress = Progress(total=len(queue))
        self.on_progress(progress)
        async with anyio.create_task_group() as group:
            for _ in range(min(self.concurrency, len(queue))):
                group.start_soon(self._work, queue, progress)
        return progress

    def stop(self) -> None:
        """Admit no more, and end what runs; safe to call from a signal's handler."""
        self._stopped = True
        for scope in tuple(self._scopes):
            scope.cancel()

    async def _work(self, queue: deque[Owed], progress: Progress) -> None:
        while queue and not self._stopped:
            owed = queue.popleft()
            record = await self._one(owed, progress)
            if self._is_followed(record):
                following = EpisodeId(owed.episode.rollout_id, owed.episode.attempt + 1)
                queue.appendleft(Owed(episode=following, task=owed.task))
                progress.total += 1

    def _is_followed(self, record: Record) -> bool:
        """Whether it says how a process of before ended, and nothing of the work."""
        return (
            not self._stopped
            and record.kind is RecordKind.BROKEN
            and record.failure_kind in (INTERRUPTED, CANCELLED)
            and record.episode.attempt + 1 < ATTEMPTS_MAX
        )

    async def _one(self, owed: Owed, progress: Progress) -> Record:
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        progress.running += 1
        self.on_progress(progress)
        try:
            row = await self.run_episode(
                owed.episode, self.task(owed.task), scope=scope
            )
            record = await self._kept(owed, row)
        finally:
            progress.running -= 1
            self._scopes.discard(scope)
        progress.note(record)
        self.on_progress(progress)
        return record

    async def _kept(self, owed: Owed, row: Row) -> Record:
        """Keep the row; one that is none is its episode's failure, and not the run's."""
        try:
            return await self.results.append(row)
        except RowRefused as refused:
            log.warning("Episode %s: %s", owed.episode.key, refused)
            failure = Failure(
                stage=Stage.VERIFICATION,
                kind=VERIFIER_ERROR,
                reason=str(refused),
                terminal=True,
            )
            name, task = owed.episode, owed.task
            told = to_row(name, task, result=None, failure=failure, response=None)
            return await self.results.append(told)
