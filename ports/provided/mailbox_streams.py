# SPDX-License-Identifier: Apache-2.0
"""A relay's stream through files, for a sandbox that cannot attach one.

Every piece is a file with a number, put down whole and taken by a command that
waits for it. A put or a take whose reply was lost is done again: the number makes
the second the same as the first. It is slower than a stream, and says the same.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import attrs

from ..required.byte_stream import ByteStream
from ..required.faults import Fault
from ..required.sandbox import Ended, Exited, Sandbox, SandboxFailed
from .relay_connections import OpenStream, RelayFailed
from .sandbox_programs import SandboxProgram, Unreadable

ATTEMPTS_MAX = 3
FILE_BYTES_MAX = 512 * 1024
RECEIVE_BYTES_MAX = 64 * 1024
TAKE_SECONDS = 2.0
"""How long one command waits for the next piece."""
COMMAND_SECONDS = 30.0
NOTHING_YET, ENDED = 3, 4
"""What the mailbox's `take` says when it printed nothing."""


def through_files(
    sandbox: Sandbox, mailbox_program: bytes, *, python: str = "python3"
) -> OpenStream:
    """Return what starts a relay whose bytes go through files."""
    program = SandboxProgram(
        sandbox=sandbox, name="mailbox", text=mailbox_program, python=python
    )

    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        try:
            told = await program.ask(
                "carry",
                sandbox.scratch,
                *map(str, ports),
                timeout_seconds=COMMAND_SECONDS,
                detaches=True,
            )
        except Unreadable as fault:
            raise RelayFailed(str(fault)) from fault
        stream = MailboxStream(program, str(told["folder"]))
        try:
            yield stream
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()

    return opened


@attrs.define(eq=False)
class MailboxStream:
    """A `ByteStream` over the numbered files of one folder."""

    _program: SandboxProgram
    _folder: str
    _sent: int = attrs.field(default=0, init=False)
    _taken: int = attrs.field(default=0, init=False)
    _held: bytes = attrs.field(default=b"", init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when it cannot be put down."""
        async with self._turn:
            for begin in range(0, len(data), FILE_BYTES_MAX):
                if self._is_closed:
                    raise BrokenPipeError("the mailbox is closed")
                await self._put(data[begin : begin + FILE_BYTES_MAX])

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        while not self._held and not self._is_closed:
            ended = await self._take()
            if ended.how == Exited(0):
                self._held = ended.stdout.head + ended.stdout.tail
                self._taken += 1
            elif ended.how == Exited(ENDED):
                return b""
            elif ended.how != Exited(NOTHING_YET):
                raise BrokenPipeError(f"the mailbox cannot be read: {ended.how}")
        piece, self._held = (
            self._held[:RECEIVE_BYTES_MAX],
            self._held[RECEIVE_BYTES_MAX:],
        )
        return piece

    async def aclose(self) -> None:
        """Tell the relay to end; a pending `receive` ends with its command."""
        if self._is_closed:
            return
        self._is_closed = True
        with anyio.move_on_after(COMMAND_SECONDS), suppress(OSError):
            await self._put(b"")

    async def _put(self, piece: bytes) -> None:
        self._sent += 1
        path = f"{self._folder}/in/{self._sent:010}"
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                await self._program.sandbox.put(
                    path, _once(piece), size=len(piece), mode=0o600
                )
                return
            except Fault as fault:
                if attempt == ATTEMPTS_MAX or not isinstance(fault, SandboxFailed):
                    raise BrokenPipeError(str(fault)) from fault

    async def _take(self) -> Ended:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                ended = await self._program.run(
                    "take",
                    self._folder,
                    str(self._taken + 1),
                    str(TAKE_SECONDS),
                    timeout_seconds=COMMAND_SECONDS,
                    output_bytes_max=2 * FILE_BYTES_MAX,
                )
            except SandboxFailed:
                continue
            except Fault as fault:
                raise BrokenPipeError(f"the mailbox cannot be read: {fault}") from fault
            if isinstance(ended.how, Exited) or attempt == ATTEMPTS_MAX:
                return ended
        raise BrokenPipeError(f"no command ran in {ATTEMPTS_MAX} attempts")


async def _once(piece: bytes) -> AsyncIterator[bytes]:
    if piece:
        yield piece
