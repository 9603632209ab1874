# SPDX-License-Identifier: Apache-2.0
"""A thread with one database connection, which answers many askers at once.

Whoever asks hands over a piece of work and waits. What is asked goes to the thread
together, once a round of the event loop brings no more; the thread takes all that is
waiting, runs it as one batch, and wakes the loop once for all of them. So what a batch
costs but once (a commit, a wake-up) is shared by those who ask at the same time, those
whom a batch woke go on together, and nobody waits for company while the loop is idle.

An asker that gives up either takes its work back before the thread has it, or
waits for the batch to end: afterwards it is settled whether it was done.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

import anyio
import attrs

from ...ports.required.faults import Fault

BATCH_MAX: Final = 256
"""How many pieces of work go to the thread together; a batch takes no more once it has
so many. How many may wait has no bound of its own: there is one for each task that asks,
and no task asks twice at once."""
GATHER_SECONDS_MAX: Final = 0.005
"""For how long a batch is gathered while each round of the loop brings more."""
END_SECONDS_MAX: Final = 5.0

W = TypeVar("W")
R = TypeVar("R")


class Connection(Protocol):
    """A connection to a database, as far as its thread cares."""

    def close(self) -> None:
        """Close it; what was committed is kept, whatever it raises."""
        ...


C = TypeVar("C", bound=Connection)


@attrs.define(eq=False)
class _Job(Generic[W, R]):
    work: W
    then: Callable[[R | Exception], None]
    """Told of the answer, on the event loop."""
    taken: bool = False
    withdrawn: bool = False


@attrs.define(eq=False)
class _Asker(Generic[R]):
    """One task that waits for an answer."""

    answer: R | Exception | None = None
    _woken: "asyncio.Future[None] | None" = attrs.field(default=None, init=False)

    def tell(self, answer: R | Exception) -> None:
        self.answer = answer
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def wait(self) -> None:
        # The loop's own future: an anyio.Event costs five times as much, for each
        # of the dozens of times that an episode asks. Cut off, it is cancelled, and
        # the next wait has another one.
        if self.answer is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken


@attrs.define(eq=False)
class DatabaseThread(Generic[C, W, R]):
    """One thread, which opens its connection, uses it and closes it."""

    name: str
    connect: Callable[[], C]
    run: Callable[[C, Sequence[W]], Sequence[R | Exception]]
    """Answers a batch, one answer for each piece; what it raises answers them all."""
    answered: Callable[[W, R], None] = lambda _work, _answer: None
    """Told on the event loop of each answer, also where the asker gave up."""
    _round: list[_Job[W, R]] = attrs.field(factory=list["_Job[W, R]"], init=False)
    """What was asked in these rounds of the loop."""
    _queue: "SimpleQueue[list[_Job[W, R]] | None]" = attrs.field(
        factory=SimpleQueue["list[_Job[W, R]] | None"], init=False
    )
    _taking: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _opened: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _ended: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _refused: Exception | None = attrs.field(default=None, init=False)
    _closing: bool = attrs.field(default=False, init=False)

    async def open(self) -> None:
        """Start the thread and wait until it is connected.

        Raises:
            Exception: What `connect` raised; the thread is gone.
        """
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
        self._thread.start()
        with anyio.CancelScope(shield=True):
            await self._opened.wait()
        if self._refused is not None:
            await self.aclose()
            raise self._refused

    async def aclose(self) -> None:
        """Let the thread finish what it was asked, close and end."""
        self._closing = True
        self._pass_on()
        self._queue.put(None)
        # Bounded by the batches that still wait, each by the bounds of `run`.
        with anyio.CancelScope(shield=True):
            await self._ended.wait()
        if self._thread is not None:
            # It has nothing left to do but to return.
            self._thread.join(END_SECONDS_MAX)

    def post(self, work: W, then: Callable[[R | Exception], None]) -> None:
        """Hand over work whose answer nobody waits for, but `then` is told."""
        self._hand_over(_Job(work, then))

    async def ask(self, work: W) -> R:
        """Return the answer to `work`; raise it when it is an exception."""
        asker: _Asker[R] = _Asker()  # Made by way of an alias it costs thrice as much.
        job: _Job[W, R] = _Job(work, asker.tell)
        self._hand_over(job)
        try:
            await asker.wait()
        except BaseException:
            if not self._withdraw(job):
                # Bounded as the batch is: it is in the thread's hands.
                with anyio.CancelScope(shield=True):
                    await asker.wait()
            raise
        answer = asker.answer
        assert answer is not None, "who is woken was answered"
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _hand_over(self, job: _Job[W, R]) -> None:
        if self._closing:
            # Nobody would ever answer.
            raise AssertionError(f"{self.name} was asked after it was closed")
        if not self._round:
            assert self._loop is not None, "who asks has opened it"
            until = self._loop.time() + GATHER_SECONDS_MAX
            self._loop.call_soon(self._gather, 0, until)
        self._round.append(job)

    def _gather(self, before: int, until: float) -> None:
        """Pass on what was asked, once a round has brought no more."""
        assert self._loop is not None, "who asks has opened it"
        now = len(self._round)
        if before < now < BATCH_MAX and self._loop.time() < until:
            self._loop.call_soon(self._gather, now, until)
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        for start in range(0, len(self._round), BATCH_MAX):
            self._queue.put(self._round[start : start + BATCH_MAX])
        self._round.clear()

    def _withdraw(self, job: _Job[W, R]) -> bool:
        with self._taking:
            job.withdrawn = not job.taken
        return job.withdrawn

    def _live(self) -> None:
        try:
            connection = self.connect()
        except Exception as refused:  # Whoever opens is told, whatever it was.
            self._refused = refused
        else:
            self._tell(self._opened.set)
            self._serve(connection)
        finally:
            self._tell(self._end)

    def _serve(self, connection: C) -> None:
        try:
            while batch := self._take():
                self._tell(self._deliver, batch, self._answers(connection, batch))
        finally:
            # What was committed is kept; tidying up is for the next one.
            with suppress(Exception):
                connection.close()

    def _take(self) -> list[_Job[W, R]]:
        """Return all that waits, at least one; nothing when the end is asked for."""
        batch: list[_Job[W, R]] = []
        jobs = self._queue.get()
        while jobs is not None:
            batch += jobs
            if len(batch) >= BATCH_MAX:
                break
            try:
                jobs = self._queue.get_nowait()
            except Empty:
                break
        if jobs is None and batch:
            self._queue.put(None)  # The end comes after the last batch.
        with self._taking:
            for each in batch:
                each.taken = not each.withdrawn
        return batch

    def _answers(
        self, connection: C, batch: Sequence[_Job[W, R]]
    ) -> Sequence[R | Exception]:
        works = [job.work for job in batch if job.taken]
        try:
            return self.run(connection, works) if works else ()
        except Fault as fault:
            # A copy each: an exception that is raised twice mixes its tracebacks.
            return [attrs.evolve(fault) for _ in works]
        except Exception as broken:  # The thread outlives it; the askers are told.
            return [broken for _ in works]

    def _deliver(
        self, batch: Sequence[_Job[W, R]], answers: Sequence[R | Exception]
    ) -> None:
        taken = [job for job in batch if job.taken]
        for job, answer in zip(taken, answers, strict=True):
            job.then(answer)
            if not isinstance(answer, Exception):
                self.answered(job.work, answer)

    def _end(self) -> None:
        self._opened.set()
        self._ended.set()

    def _tell(self, act: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None, "the thread was started by a loop"
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act, *arguments)
