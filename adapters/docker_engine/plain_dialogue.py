# SPDX-License-Identifier: Apache-2.0
"""A script of ours in an exec of its own, and what it tells beside its output.

The script's word travels in by its input before anything else; only lines that
begin with it, on standard error, are the script's. A stream that ends without
the last of them says that the script was ended, never that it succeeded.
"""

import secrets
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager

import anyio
import attrs

from .attached_exec import STDERR, AttachedExec
from .engine_connection import BadAnswer


@attrs.frozen
class ScriptEnded(Exception):
    """A script was ended, or stalled, before it told its last."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class InputClosed(Exception):
    """A script takes no more input; what it told says why."""


@attrs.frozen
class Told:
    """A line of the script itself: a word and what belongs to it."""

    word: str
    rest: str

    @property
    def numbers(self) -> list[int]:
        """What belongs to the word, as whole numbers."""
        return [int(part) for part in self.rest.split()]


@attrs.frozen
class Printed:
    """A piece of what the command printed."""

    is_stderr: bool
    piece: bytes


class Dialogue:
    """The host's end of one script."""

    def __init__(self, attached: AttachedExec) -> None:
        """Own `attached`, in which the script waits for its word."""
        self._attached = attached
        self._word = secrets.token_hex(16).encode()
        self._held = b""
        self.has_begun = False

    async def begin(self) -> None:
        """Give the script its word; from here on it acts.

        Raises:
            InputClosed: It was ended already.
        """
        self.has_begun = True
        await self.send(self._word + b"\n")

    async def send(self, data: bytes) -> None:
        """Send input.

        Raises:
            InputClosed: Nobody takes it any more.
        """
        try:
            await self._attached.send(data)
        except OSError as failure:
            raise InputClosed from failure

    async def offer(self, data: bytes) -> Told | None:
        """Send input, unless the script tells something first, which is returned.

        The engine goes on taking input for a script that has ended, for seconds.

        Raises:
            InputClosed: Nobody takes it any more.
        """
        told: list[Told] = []
        is_closed = False
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                async for part in self.heard():
                    if isinstance(part, Told):
                        told.append(part)
                        break
                tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            try:
                await self.send(data)
            except InputClosed:
                is_closed = True  # Raised below: a task group would wrap it.
            tasks.cancel_scope.cancel()
        if told:
            return told[0]
        if is_closed:
            raise InputClosed
        return None

    def send_end(self) -> None:
        """Say that the input is at its end.

        Raises:
            InputClosed: Nobody takes it any more.
        """
        try:
            self._attached.send_end()
        except OSError as failure:
            raise InputClosed from failure

    async def heard(self) -> AsyncIterator[Told | Printed]:
        """Yield what comes until the stream's end."""
        while True:
            try:
                got = await self._attached.receive()
            except BadAnswer:
                got = None
            if got is None:
                if self._held:
                    yield Printed(True, self._held)
                return
            stream, piece = got
            if stream != STDERR:
                yield Printed(False, piece)
                continue
            self._held += piece
            for part in self._parts():
                yield part

    def close(self) -> None:
        """Close the streams."""
        self._attached.close()

    def _parts(self) -> list[Told | Printed]:
        """Take apart what is held; a line of ours may have come by half."""
        parts: list[Told | Printed] = []
        while (at := self._held.find(self._word)) >= 0:
            end = self._held.find(b"\n", at)
            if at:
                parts.append(Printed(True, self._held[:at]))
                self._held = self._held[at:]
            if end < 0:
                return parts
            end -= at
            line = self._held[len(self._word) : end].decode(errors="replace")
            self._held = self._held[end + 1 :]
            word, _, rest = line.strip().partition(" ")
            parts.append(Told(word, rest))
        safe = len(self._held) - len(self._word) + 1
        if safe > 0:
            parts.append(Printed(True, self._held[:safe]))
            self._held = self._held[safe:]
        return parts


@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Say that a script stalls when what is inside takes longer.

    Raises:
        ScriptEnded: It did.
    """
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise ScriptEnded(f"it said and took nothing for {seconds:g} s")


async def answer(dialogue: Dialogue, *, seconds: float) -> Told | None:
    """Return the last thing that a script tells; None when it was ended.

    Raises:
        ScriptEnded: It takes longer than `seconds`.
    """
    last: Told | None = None
    with bounded(seconds):
        async for part in dialogue.heard():
            if isinstance(part, Told):
                last = part
    return last
