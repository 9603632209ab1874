# SPDX-License-Identifier: Apache-2.0
"""A job: one command of the worker's, with its pipes and its keeper.

running → reported → over, or running → orphaned → over when the keeper was
killed: then the worker itself ends what is left, and how the command ended is
unknown.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Iterator, cast

from .accounts import find_account
from .capture import Capture
from .keeper import Order, how_it_ended, keep
from .launching import Program
from .processes import KILL_SECONDS, MARKER
from .spares import Spare
from .wire import ANSWER, CHUNK, CHUNK_BYTES, frame, told

READ_BYTES = 64 * 1024
LAST_READS_MAX = 64
"""Reads of a pipe after its writers were seen gone; the largest pipe holds fewer."""
WATCH_MARGIN_SECONDS = 5.0
"""What a keeper may be late by before it is taken for stuck."""


class Job:
    """The worker's view of one command."""

    def __init__(self, call: int, words: dict[str, object], mark: bytes) -> None:
        self.call = call
        self.mark = mark
        self.stdin_left = _whole(words["stdin_size"])
        self.stdin_held = bytearray()
        kept = _whole(words["output_bytes_max"])
        self.captures = (Capture(kept), Capture(kept))
        self.detaches = bool(words["detaches"])
        self.begun = time.monotonic()
        self.grace_seconds = _number(words["grace_seconds"])
        self.timeout_seconds = _number(words["timeout_seconds"])
        self.watch_until = self.begun + self.timeout_seconds + self._ending_seconds()
        self.keeper = 0
        self.channel = -1
        self.stdin = -1
        self.outputs = [-1, -1]
        self.is_keeper_silent = False
        self.orphaned_until: float | None = None
        self._socket: socket.socket | None = None
        self._report = b""

    def _ending_seconds(self) -> float:
        return self.grace_seconds + KILL_SECONDS + WATCH_MARGIN_SECONDS

    def start(
        self,
        words: dict[str, object],
        environment: dict[bytes, bytes],
        open_files: tuple[int, int],
        *,
        subreaper: bool,
        spare: Spare | None,
    ) -> None:
        """Have the spare keep it, or fork a keeper where there is none.

        Raises:
            NoSuchAccount: The command's user cannot be had.
            OSError: There is no room for its pipes or its keeper.
        """
        order = self._order(words, environment, open_files, subreaper=subreaper)
        opened: list[int] = []
        try:
            stdin = self._stdin_pair(opened)
            stdout = _pipe(opened)
            stderr = _pipe(opened)
            streams = (stdin[0], stdout[1], stderr[1])
            if spare is not None and spare.takes(order, streams):
                self.keeper, here = spare.pid, spare.channel
            else:
                self.keeper, here = _forked(order, streams)
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        for descriptor in streams:
            os.close(descriptor)
        self._socket = here
        here.setblocking(False)
        self.channel = here.fileno()
        self.stdin = stdin[1]
        self.outputs = [stdout[0], stderr[0]]
        for descriptor in (self.stdin, *self.outputs):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)

    def _order(
        self,
        words: dict[str, object],
        environment: dict[bytes, bytes],
        open_files: tuple[int, int],
        *,
        subreaper: bool,
    ) -> Order:
        user = words.get("user")
        account = find_account(None if user is None else str(user))
        env = dict(environment)
        if account is not None:
            env[b"HOME"] = os.fsencode(account.home)
        for name, value in cast("dict[str, object]", words["env"]).items():
            env[to_bytes(name)] = to_bytes(value)
        env[MARKER] = self.mark
        program = Program(
            argv=[to_bytes(word) for word in cast("list[object]", words["argv"])],
            cwd=to_bytes(words["cwd"]),
            env=env,
            account=account,
        )
        return Order(
            program=program,
            mark=MARKER + b"=" + self.mark,
            timeout_seconds=self.timeout_seconds,
            grace_seconds=self.grace_seconds,
            detaches=self.detaches,
            open_files=open_files,
            subreaper=subreaper,
        )

    def _stdin_pair(self, opened: list[int]) -> tuple[int, int]:
        if self.stdin_left:
            return _pipe(opened)
        empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        opened.append(empty)
        return empty, -1

    def stop(self) -> None:
        """Have the keeper end the tree; it reports as always."""
        self.watch_until = min(
            self.watch_until, time.monotonic() + self._ending_seconds()
        )
        if self._socket is not None:
            try:
                self._socket.send(b"k")
            except OSError:
                pass  # The keeper is just going; its end is seen.

    def hear(self) -> bool:
        """Read what the keeper says; tell whether its report is complete."""
        assert self._socket is not None
        try:
            piece = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        self._report += piece
        self.is_keeper_silent = not piece
        return self._report.endswith(b"\n")

    def let_live(self) -> list[tuple[int, int]]:
        """Return the processes (with start times) that the command detached."""
        found = json.loads(self._report).get("let_live", [])
        if self._socket is not None and found:
            try:
                self._socket.send(b"y")
            except OSError:
                pass
        return [(pid, begun) for pid, begun in found]

    def read(self, which: int) -> bool:
        """Take what an output holds; tell whether it has more to come."""
        try:
            piece = os.read(self.outputs[which], READ_BYTES)
        except BlockingIOError:
            return True
        self.captures[which].feed(piece)
        return bool(piece)

    def write_stdin(self) -> int:
        """Give the command what it takes of its input; return how much.

        A command that closed its input is given nothing more: the rest is dropped.
        """
        try:
            taken = os.write(self.stdin, memoryview(self.stdin_held)[:READ_BYTES])
        except BlockingIOError:
            return 0
        except OSError:
            taken = len(self.stdin_held)
        del self.stdin_held[:taken]
        self.stdin_left -= taken
        return taken

    def read_last(self) -> None:
        """Take what the pipes still hold now that nobody is left to write."""
        for which, descriptor in enumerate(self.outputs):
            for _ in range(LAST_READS_MAX):
                if descriptor < 0:
                    break
                before = self.captures[which].size
                if not self.read(which) or self.captures[which].size == before:
                    break

    def close(self) -> None:
        """Close every descriptor of the job."""
        for descriptor in (self.stdin, *self.outputs):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdin, self.outputs = -1, [-1, -1]
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def answer(self, unknown: str = "") -> Iterator[bytes]:
        """Return the frames that tell the host how it ended and what it wrote."""
        seconds = time.monotonic() - self.begun
        report: dict[str, object] = {"how": "stopped", "seconds": seconds}
        if self._report.endswith(b"\n"):
            report = json.loads(self._report)
        how, number, reason = how_it_ended(report)
        kept = [part for capture in self.captures for part in capture.kept()]
        for part in kept:
            for begin in range(0, len(part), CHUNK_BYTES):
                chunk = part[begin : begin + CHUNK_BYTES]
                yield frame(CHUNK, self.call, bytes(chunk))
        yield told(
            ANSWER,
            self.call,
            {
                "how": how,
                "number": number,
                "reason": unknown or reason,
                "seconds": report["seconds"],
                "leftovers": report.get("leftovers", 0),
                "sizes": [capture.size for capture in self.captures],
                "lengths": [len(part) for part in kept],
            },
        )


def not_started(call: int, reason: str) -> bytes:
    """Return the answer for a command that never ran."""
    words: dict[str, object] = {
        "how": "not_started",
        "number": None,
        "reason": reason,
        "seconds": 0.0,
        "leftovers": 0,
        "sizes": [0, 0],
        "lengths": [0, 0, 0, 0],
    }
    return told(ANSWER, call, words)


def to_bytes(word: object) -> bytes:
    """Return the bytes that a word of the host stands for."""
    assert isinstance(word, str)
    return word.encode("utf-8", "surrogateescape")


def _whole(word: object) -> int:
    assert isinstance(word, int)
    return word


def _number(word: object) -> float:
    assert isinstance(word, (int, float))
    return float(word)


def _pipe(opened: list[int]) -> tuple[int, int]:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    opened += [reading, writing]
    return reading, writing


def _forked(order: Order, streams: tuple[int, int, int]) -> tuple[int, socket.socket]:
    here, there = socket.socketpair()
    with there:
        try:
            keeper = os.fork()
        except OSError:
            here.close()
            raise
        if keeper == 0:
            keep(order, streams, there)
    return keeper, here
