# SPDX-License-Identifier: Apache-2.0
"""A stream to the resident worker, carried by single calls of the runtime server.

What is said goes as files, which the porter in the sandbox takes in their order;
what comes back is asked for from a place in the stream on, with a command that
waits a while for it. Each of the two can be asked again and does the same, so a
call that is cut or lost costs nothing but time. While no call of the worker is
under way, nothing is asked.
"""

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress

import anyio
import attrs

from .runtime_api import Executed, RuntimeApi, RuntimeFailed, RuntimeRefused

FILE_BYTES_MAX = 512 * 1024
UNSENT_BYTES_MAX = 1024 * 1024
"""While so much waits to be carried, nobody says more."""
RECEIVE_BYTES_MAX = 64 * 1024
TAKE_SECONDS = 15.0
"""How long one command waits for the next bytes; shorter than any known cut."""
TAKE_SECONDS_MIN = 0.25
TROUBLE_PAUSE_SECONDS = 0.25
IDLE_SECONDS = 30.0
"""After so long the porter is asked whether it is still there; it waits longer."""
END_SECONDS = 5.0

TAKE = """\
import _socket, binascii, os, sys
said = b"-"
try:
    os.chdir(sys.argv[1])
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.connect("line")
    line.send(" ".join(sys.argv[2:]).encode())
    said = b"".join(iter(lambda: line.recv(65536), b"")) or b"-"
except OSError:
    pass
os.write(1, said[:1])
packed = binascii.b2a_base64(said[1:])
while packed:
    packed = packed[os.write(1, packed):]
"""
"""Asks the porter: for what comes after a place, or for the end.

`_socket` alone: what `socket` is made of takes longer to load than all the rest.
"""


@attrs.frozen(kw_only=True)
class Trouble:
    """What a stream does while calls fail."""

    seconds: float = 5.0
    """How long they may fail in a row before the stream is given up."""
    is_lost: Callable[[], Awaitable[bool]]
    """Whether the sandbox was seen gone, so that trying again is no use."""


@attrs.frozen(kw_only=True)
class Line:
    """Where the porter of one stream is."""

    python: str
    folder: str
    """Its folder, as the sandbox knows it."""
    upload_folder: str
    """The same, as the runtime server's routes know it."""

    def words(self, *asked: str) -> tuple[str, ...]:
        """Return the command that asks the porter."""
        return (self.python, "-I", "-S", "-c", TAKE, self.folder, *asked)


class CarriedStream:
    """A `ByteStream` to a worker."""

    def __init__(
        self, api: RuntimeApi, line: Line, *, trouble: Trouble, first: bytes = b""
    ) -> None:
        """Carry between here and the porter at `line`, which has said `first`."""
        self._api = api
        self._line = line
        self._trouble = trouble
        self._sent = 0
        self._unsent = bytearray()
        self._said = anyio.Event()
        self._progress = anyio.Event()
        self._broken = ""
        self._taken = len(first)
        self._held = first
        self._calls = 0
        self._needed = anyio.Event()
        self._is_closed = False
        self._take_seconds = TAKE_SECONDS
        self._last = time.monotonic()
        self._taking: anyio.CancelScope | None = None

    @contextmanager
    def needed(self) -> Generator[None]:
        """Ask for what comes back, for as long as something is expected to."""
        self._calls += 1
        self._needed.set()
        try:
            yield
        finally:
            self._calls -= 1
            if self._calls == 0:
                self._needed = anyio.Event()

    async def is_there(self) -> bool:
        """Whether the porter still carries; it is asked only after a long silence."""
        if self._is_closed:
            return False
        if self._calls or time.monotonic() - self._last < IDLE_SECONDS:
            return True
        try:
            said = await self._ask(self._taken, 0.0)
        except OSError:
            return False
        return said is not None

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when the other end is gone.

        It is taken along with whatever else is said meanwhile, up to a bound.
        """
        while True:
            if self._is_closed:
                raise BrokenPipeError(self._broken or "the stream is closed")
            if len(self._unsent) < UNSENT_BYTES_MAX:
                break
            await self._progress.wait()
        self._unsent += data
        self._said.set()

    async def carry_out(self) -> None:
        """Carry what is said, for as long as the stream is open."""
        while not self._is_closed:
            if not self._unsent:
                self._said = anyio.Event()
                await self._said.wait()
                continue
            piece = bytes(self._unsent[:FILE_BYTES_MAX])
            name = f"{self._sent:020d}-{len(piece)}"
            try:
                await self._put(f"{self._line.upload_folder}/in/{name}", piece)
            except OSError as failure:
                self._broken = str(failure)
                self.cut()
                return
            self._sent += len(piece)
            del self._unsent[: len(piece)]
            self._progress.set()
            self._progress = anyio.Event()

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        while not self._held:
            if self._is_closed:
                if self._broken:
                    raise ConnectionError(self._broken)
                return b""
            if not self._calls:
                await self._until_needed()
                continue
            said = await self._take()
            if said is None:
                return b""
            self._held = said
        piece, self._held = (
            self._held[:RECEIVE_BYTES_MAX],
            self._held[RECEIVE_BYTES_MAX:],
        )
        return piece

    def cut(self) -> None:
        """End the stream here at once; nothing is asked any more."""
        self._is_closed = True
        for event in (self._needed, self._said, self._progress):
            event.set()
        if self._taking is not None:
            self._taking.cancel()

    async def aclose(self) -> None:
        """Close both directions; a pending `receive` ends, and so does the worker."""
        if self._is_closed:
            return
        self.cut()
        words = self._line.words("end", "end")
        with anyio.move_on_after(END_SECONDS), suppress(RuntimeFailed, RuntimeRefused):
            await self._api.execute(words, seconds=END_SECONDS)

    async def _until_needed(self) -> None:
        # Set by `cut` too, while nothing is needed.
        await self._needed.wait()

    async def _take(self) -> bytes | None:
        """Return what comes next, empty when nothing came yet, None at the end."""
        with anyio.CancelScope() as self._taking:
            try:
                said = await self._ask(self._taken, self._take_seconds)
            finally:
                self._taking = None
            if said is not None:
                self._taken += len(said)
            return said
        return None

    async def _ask(self, place: int, seconds: float) -> bytes | None:
        words = self._line.words(str(place), f"{seconds:g}")
        until = None
        while True:
            begun = time.monotonic()
            try:
                told = await self._api.execute(words, seconds=seconds)
            except RuntimeRefused as refused:
                raise ConnectionError(str(refused)) from refused
            except RuntimeFailed as failed:
                reason = failed.reason
            else:
                said = _read(told)
                if said is not None:
                    self._last = time.monotonic()
                    return said.content
                reason = told.stderr.strip() or f"it ended with {told.exit_code}"
                self._wait_less(time.monotonic() - begun)
            until = await self._go_on(reason, until)

    def _wait_less(self, lasted: float) -> None:
        """Keep below what the server lets a command last, when it was cut."""
        if lasted >= TAKE_SECONDS_MIN:
            shorter = min(self._take_seconds, lasted) / 2
            self._take_seconds = max(TAKE_SECONDS_MIN, shorter)

    async def _put(self, path: str, piece: bytes) -> None:
        until = None
        while True:
            if self._is_closed:
                raise BrokenPipeError("the stream is closed")
            try:
                await self._api.upload(path, piece)
                return
            except RuntimeRefused as refused:
                raise ConnectionError(str(refused)) from refused
            except RuntimeFailed as failed:
                until = await self._go_on(failed.reason, until)

    async def _go_on(self, reason: str, until: float | None) -> float:
        """Wait before the next try; return until when there may be tries.

        Raises:
            ConnectionError: There is no use in another.
        """
        now = time.monotonic()
        until = now + self._trouble.seconds if until is None else until
        if self._is_closed or now > until or await self._trouble.is_lost():
            raise ConnectionError(reason)
        await anyio.sleep(TROUBLE_PAUSE_SECONDS)
        return until


@attrs.frozen
class _Said:
    content: bytes | None


def _read(told: Executed) -> _Said | None:
    """Read what the porter said; None when the command was ended before it could."""
    if told.exit_code != 0:
        return None
    word, packed = told.stdout[:1], told.stdout[1:].strip()
    if word == "-":
        return _Said(None)
    if word == ".":
        return _Said(b"")
    if word != "+":
        return None
    try:
        return _Said(base64.b64decode(packed, validate=True))
    except binascii.Error:
        return None


def said_last(told: Executed) -> bytes | None:
    """Read what the porter said in the last line of what a command printed."""
    lines = told.stdout.splitlines()
    said = _read(attrs.evolve(told, stdout=lines[-1])) if lines else None
    return None if said is None else said.content
