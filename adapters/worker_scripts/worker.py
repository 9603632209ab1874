# SPDX-License-Identifier: Apache-2.0
"""The resident worker: runs commands and moves files for the host.

One loop, no threads, frames on standard input and output (`wire.py`). No
command can end it by accident: it has a session of its own, ignores the signals
that it can, and keeps root where it has it while commands drop to their user.
When its input ends, the host is gone: it ends everything that it runs, and then
itself. What a command detached (`detaches`) is let live, and such a command is let
come to its end.
"""

from __future__ import annotations

import collections
import gc
import os
import selectors
import signal
import sys
import time
from typing import Callable, Iterator

from .accounts import NoSuchAccount
from .jobs import Job, not_started
from .processes import (
    KILL_SECONDS,
    MARKER,
    become_subreaper,
    descendants,
    drain,
    initial_environment,
    is_alive,
    marked,
    process_table,
    send,
    stop_and_kill,
    wake_on_child,
)
from .spares import Spare
from .system import hello, ignore_signals, raise_open_files, widen
from .transfers import Reading, Transfers
from .wire import (
    CHUNK,
    CREDIT,
    END,
    EXEC,
    FAILED,
    GET,
    HELLO,
    KILL,
    PUT,
    RENAME,
    STAT,
    FrameReader,
    FrameTooLong,
    frame,
    told,
    words_of,
)

INPUT_BYTES = 256 * 1024
SWEEP_SECONDS = 0.02


class Worker:
    """The loop and what it looks after."""

    def __init__(self, *, subreaper: bool) -> None:
        self._subreaper = subreaper
        self._environment = initial_environment()
        self._open_files = raise_open_files()
        self._token = os.urandom(8).hex()
        self._selector = selectors.DefaultSelector()
        self._wake = wake_on_child()
        self._reader = FrameReader()
        self._outgoing: collections.deque[Iterator[bytes]] = collections.deque()
        self._unsent = memoryview(b"")
        self._sending = False
        self._jobs: dict[int, Job] = {}
        self._keepers: dict[int, Job] = {}
        self._spare: Spare | None = None
        self._spare_wanted = False
        self._let_live: dict[int, int] = {}
        self._transfers = Transfers()
        self._host_is_there = True

    def run(self) -> None:
        """Serve until the host is gone and everything that ran was ended."""
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)
            widen(descriptor)
        self._watch(self._wake, self._see_children)
        self._watch(0, self._receive)
        self._offer(told(HELLO, 0, hello(subreaper=self._subreaper)))
        while self._host_is_there or self._jobs:
            for key, _ in self._selector.select(self._pause()):
                # One turn may close what a later one of the same round was for.
                if key.fd in self._selector.get_map():
                    key.data()
            self._look_after_jobs()
            self._make_spare()
        self._transfers.abort_all()

    def _watch(self, descriptor: int, turn: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, turn)

    def _unwatch(self, descriptor: int) -> None:
        if descriptor >= 0 and descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    # What goes out: one frame of each in turn, so that no call waits for another.

    def _offer(self, *frames: bytes) -> None:
        self._offer_all(iter(frames))

    def _offer_all(self, frames: Iterator[bytes]) -> None:
        self._outgoing.append(frames)
        if not self._sending and self._host_is_there:
            self._selector.register(1, selectors.EVENT_WRITE, self._transmit)
            self._sending = True

    def _transmit(self) -> None:
        if not self._unsent:
            self._unsent = memoryview(self._next_frame())
        if not self._unsent:
            self._selector.unregister(1)
            self._sending = False
            return
        try:
            self._unsent = self._unsent[os.write(1, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._lose_host()

    def _next_frame(self) -> bytes:
        while self._outgoing:
            frames = self._outgoing.popleft()
            found = next(frames, b"")
            if found:
                self._outgoing.append(frames)
                return found
        return b""

    # What comes in.

    def _receive(self) -> None:
        try:
            piece = os.read(0, INPUT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._lose_host()
            return
        try:
            for kind, call, payload in self._reader.feed(piece):
                self._take(kind, call, payload)
        except FrameTooLong:
            self._lose_host()

    def _take(self, kind: int, call: int, payload: bytes) -> None:
        try:
            if kind == EXEC:
                self._exec(call, words_of(payload))
            elif kind == CHUNK and call in self._jobs:
                self._feed(self._jobs[call], payload)
            elif kind == KILL and call in self._jobs:
                self._jobs[call].stop()
            elif kind in (PUT, GET, STAT, RENAME):
                self._begin_transfer(kind, call, words_of(payload))
            elif kind in (CHUNK, END, KILL, CREDIT):
                self._go_on_with_transfer(kind, call, payload)
        except Exception as fault:  # a call may fail; the worker has the others
            reason = "%s: %s" % (type(fault).__name__, fault)
            self._offer(told(FAILED, call, {"kind": "failed", "reason": reason}))

    def _begin_transfer(self, kind: int, call: int, words: dict[str, object]) -> None:
        if kind == STAT:
            self._offer(self._transfers.stat(call, words))
        elif kind == RENAME:
            self._offer(self._transfers.rename(call, words))
        elif kind == PUT:
            self._offer(*self._transfers.begin_put(call, words))
        else:
            self._offer(*self._transfers.begin_get(call, words))
            self._go_on_reading(call)

    def _go_on_with_transfer(self, kind: int, call: int, payload: bytes) -> None:
        if kind == CHUNK:
            self._offer(*self._transfers.write(call, payload))
        elif kind == END:
            self._offer(*self._transfers.end_put(call))
        elif kind == KILL:
            self._offer(*self._transfers.abort(call))
        else:
            self._transfers.credit(call, int.from_bytes(payload, "big"))
            self._go_on_reading(call)

    def _go_on_reading(self, call: int) -> None:
        reading = self._transfers.reading(call)
        if isinstance(reading, Reading) and not reading.is_offered:
            reading.is_offered = True
            self._offer_all(self._transfers.chunks(call))

    # Commands.

    def _exec(self, call: int, words: dict[str, object]) -> None:
        mark = ("%s.%d" % (self._token, call)).encode()
        job = Job(call, words, mark)
        spare, self._spare = self._spare, None
        try:
            job.start(
                words,
                self._environment,
                self._open_files,
                subreaper=self._subreaper,
                spare=spare,
            )
        except NoSuchAccount as refusal:
            self._offer(not_started(call, str(refusal)))
            return
        except OSError as fault:
            reason = "no room for its pipes or its keeper: %s" % fault.strerror
            self._offer(not_started(call, reason))
            return
        finally:
            if spare is not None and spare.pid != job.keeper:
                spare.close()
        self._jobs[call] = job
        self._keepers[job.keeper] = job
        self._watch(job.channel, lambda: self._hear(job))
        for which in (0, 1):
            self._watch(job.outputs[which], self._reading(job, which))

    def _reading(self, job: Job, which: int) -> Callable[[], None]:
        def turn() -> None:
            if not job.read(which):
                self._unwatch(job.outputs[which])

        return turn

    def _feed(self, job: Job, payload: bytes) -> None:
        if job.stdin < 0:
            self._offer(frame(CREDIT, job.call, len(payload).to_bytes(4, "big")))
            return
        if not job.stdin_held:
            self._selector.register(
                job.stdin, selectors.EVENT_WRITE, lambda: self._write_stdin(job)
            )
        job.stdin_held += payload

    def _write_stdin(self, job: Job) -> None:
        taken = job.write_stdin()
        if taken:
            self._offer(frame(CREDIT, job.call, taken.to_bytes(4, "big")))
        if job.stdin_held:
            return
        self._unwatch(job.stdin)
        if job.stdin_left <= 0:
            os.close(job.stdin)
            job.stdin = -1

    def _hear(self, job: Job) -> None:
        if job.hear():
            for pid, begun in job.let_live():
                self._let_live[pid] = begun
            self._finish(job)
        elif job.is_keeper_silent:
            # It has closed its end without a report: it was killed.
            self._unwatch(job.channel)
            self._orphan(job)

    def _orphan(self, job: Job) -> None:
        send(signal.SIGKILL, {job.keeper} & set(self._keepers))
        job.orphaned_until = time.monotonic() + KILL_SECONDS

    def _finish(self, job: Job, unknown: str = "") -> None:
        for descriptor in (job.channel, job.stdin, *job.outputs):
            self._unwatch(descriptor)
        job.read_last()
        job.close()
        del self._jobs[job.call]
        self._offer_all(job.answer(unknown))
        self._spare_wanted = True

    def _make_spare(self) -> None:
        """Fork the next keeper once all is answered, and never beside a command.

        A command may be there to end every process: it would find new ones for ever.
        """
        busy = self._jobs or self._sending or not self._host_is_there
        if busy or self._spare is not None or not self._spare_wanted:
            return
        self._spare_wanted = False
        try:
            self._spare = Spare(subreaper=self._subreaper)
        except OSError:
            pass  # No room: the next keeper is forked when it is needed.

    # Children: keepers, the spare, and the orphans of keepers that were killed.

    def _see_children(self) -> None:
        drain(self._wake)
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    return
                if os.WIFSTOPPED(status):
                    # By its command, say: it has a deadline to keep.
                    send(signal.SIGCONT, {pid} & self._own())
                    continue
                self._keepers.pop(pid, None)
                self._let_live.pop(pid, None)
                if self._spare is not None and self._spare.pid == pid:
                    self._spare.close()
                    self._spare = None
        except ChildProcessError:
            return

    def _own(self) -> set[int]:
        spare = () if self._spare is None else (self._spare.pid,)
        return {*self._keepers, *spare}

    def _look_after_jobs(self) -> None:
        now = time.monotonic()
        for job in [job for job in self._jobs.values() if job.watch_until < now]:
            if job.orphaned_until is None:
                self._unwatch(job.channel)
                self._orphan(job)
        orphaned = [job for job in self._jobs.values() if job.orphaned_until]
        if not orphaned:
            return
        self._see_children()
        killed = stop_and_kill(lambda: self._orphans(orphaned))
        for job in orphaned:
            if job.keeper in self._keepers:
                continue
            if not killed:
                self._finish(job, "its keeper was killed, and the tree was ended")
            elif job.orphaned_until is not None and job.orphaned_until < now:
                alive = "its keeper was killed; processes %s could not be ended"
                self._finish(job, alive % sorted(killed))

    def _orphans(self, jobs: list[Job]) -> set[int]:
        table = process_table()
        spared = {
            pid
            for pid, begun in self._let_live.items()
            if pid in table and table[pid].begun == begun
        }
        own = os.getpid()
        kept = spared | self._own()
        roots = {pid for pid, seen in table.items() if seen.parent == own} - kept
        if not self._subreaper:
            for job in jobs:
                roots |= marked(MARKER + b"=" + job.mark, table)
        found = roots | descendants(roots, table)
        return {pid for pid in found - kept if is_alive(table[pid])}

    def _pause(self) -> float | None:
        if any(job.orphaned_until for job in self._jobs.values()):
            return SWEEP_SECONDS
        if not self._jobs:
            return None
        first = min(job.watch_until for job in self._jobs.values())
        return max(0.0, min(first - time.monotonic(), 3600.0)) + SWEEP_SECONDS

    def _lose_host(self) -> None:
        if not self._host_is_there:
            return
        self._host_is_there = False
        self._unwatch(0)
        self._unwatch(1)
        for job in self._jobs.values():
            # The launch of a supervisor is let come to its end: what it has begun
            # by now would be cut off, and its run is there to outlive the host.
            if not job.detaches:
                job.stop()


def main(arguments: list[str]) -> int:
    """Serve the host at standard input and output; the end is a success."""
    ignore_signals()
    try:
        os.setsid()
    except OSError:
        pass  # It leads a session or group already.
    wanted = "--without-subreaper" not in arguments
    worker = Worker(subreaper=wanted and become_subreaper())
    gc.freeze()  # What was loaded is shared with every fork and never collected.
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
