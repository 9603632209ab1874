# SPDX-License-Identifier: Apache-2.0
"""The exec channel: one resident worker script in a sandbox, many commands.

The worker answers over one byte stream that the provider attached to it. It
runs commands, ends their whole process trees, bounds their output and moves
files, each in about a millisecond. `run` reads the stream and belongs in a task
group of the provider; the other methods may be called from anywhere while it
runs. When the stream ends, every call under way and every later one raises
`ChannelEnded`; whether the sandbox is lost is then the provider's to find out.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from ..required.byte_stream import ByteStream
from ..required.sandbox import Command, Ended, FileStat, NotStarted, PathRefused
from .worker_answers import (
    WorkerHello,
    to_ended,
    to_fault,
    to_file_stat,
    to_hello,
)
from .worker_calls import Call, Chunks, in_pieces
from .worker_faults import ChannelEnded, WorkerFailed
from .worker_frames import (
    CHUNK_BYTES,
    FRAME_BYTES_MAX,
    WINDOW_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    FramesBroken,
    from_payload,
    to_payload,
)

__all__ = ["ChannelEnded", "WorkerChannel", "WorkerFailed", "WorkerHello"]

HELLO_SECONDS = 30.0
SEND_SECONDS = 60.0
ANSWER_SECONDS = 120.0
"""How long the worker may take over one step of a transfer."""
ENDING_SECONDS = 25.0
"""What a command may take beyond its deadline and grace, to be seen gone."""
KILLED_SECONDS = 5.0
"""How long the end of a command that is late already is waited for."""


class WorkerChannel:
    """The host's end of the channel."""

    def __init__(
        self,
        stream: ByteStream,
        *,
        ending_seconds: float = ENDING_SECONDS,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        """Speak over `stream`, to a worker that starts up at its other end."""
        self._stream = stream
        self._ending_seconds = ending_seconds
        self._send_seconds = send_seconds
        self._turn = anyio.Lock()
        self._calls: dict[int, Call] = {}
        self._last_number = 0
        self._ended: str | None = None

    async def run(
        self,
        *,
        task_status: anyio.abc.TaskStatus[WorkerHello] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read the stream until its end; started once the worker said hello.

        Raises:
            ChannelEnded: The stream ended, or told something else, before the hello.
        """
        reader = FrameReader()
        try:
            hello = await self._read_hello(reader)
            task_status.started(hello)
            while piece := await self._stream.receive():
                for frame in reader.feed(piece):
                    self._take(frame)
            self._end("its stream ended")
        except (FramesBroken, OSError) as fault:
            self._end(str(fault))
        finally:
            self._end("the channel was closed")

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended:
        """Run a command; cancelling the call ends its tree in the sandbox.

        `cwd` and `user` are the ones that count, whatever `command` says. `env` is
        laid over the worker's own environment, and that of `command` over both.

        Raises:
            ChannelEnded, WorkerFailed: How the command ended is unknown.
        """
        payload = to_payload(
            {
                "argv": command.argv,
                "cwd": cwd,
                "env": {**env, **command.env},
                "user": user,
                "stdin_size": len(command.stdin),
                "timeout_seconds": command.timeout_seconds,
                "grace_seconds": command.grace_seconds,
                "output_bytes_max": command.output_bytes_max,
                "detaches": command.detaches,
            }
        )
        if not command.argv:
            return Ended(how=NotStarted("no program was named"))
        if len(payload) > FRAME_BYTES_MAX:
            return Ended(how=NotStarted("the argument list is too long"))
        ending_seconds = command.grace_seconds + self._ending_seconds
        patience = command.timeout_seconds + ending_seconds
        async with self._call(
            "exec",
            bytes_max=2 * command.output_bytes_max,
            ending_seconds=ending_seconds,
        ) as call:
            await self._ask(call, FrameKind.EXEC, payload)
            await self._feed(call, command.stdin, seconds=patience)
            words = await call.answered(seconds=patience)
            return to_ended(words, call.content())

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        mode: int,
        user: str | None,
    ) -> None:
        """Write a file at an absolute path, as `Sandbox.put` promises.

        Raises:
            ChannelEnded, WorkerFailed: Nothing stands under the name for certain.
        """
        _check_path(path)
        words = {"path": path, "size": size, "mode": mode, "user": user}
        async with self._call("put", path=path) as call:
            await self._ask(call, FrameKind.PUT, to_payload(words))
            async for piece in in_pieces(chunks, CHUNK_BYTES):
                await call.until(
                    lambda: call.credit > 0 or call.is_over, seconds=ANSWER_SECONDS
                )
                if call.is_over:
                    break
                call.credit -= len(piece)
                await self._send(Frame(FrameKind.CHUNK, call.number, piece))
            if not call.is_over:
                await self._send(Frame(FrameKind.END, call.number))
            await call.answered(seconds=ANSWER_SECONDS)

    @asynccontextmanager
    async def get(
        self, path: str, *, user: str | None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Read a file at an absolute path, as `Sandbox.get` promises.

        Raises:
            ChannelEnded, WorkerFailed: The file is not had as a whole.
        """
        _check_path(path)
        async with self._call("get", path=path, bytes_max=WINDOW_BYTES) as call:
            payload = to_payload({"path": path, "user": user})
            await self._ask(call, FrameKind.GET, payload)
            await call.until(
                lambda: call.is_opened or call.is_over, seconds=ANSWER_SECONDS
            )
            if not call.is_opened:
                await call.answered(seconds=0.0)
            yield Chunks(call, self._give_credit, seconds=ANSWER_SECONDS)

    async def stat(self, path: str, *, user: str | None) -> FileStat:
        """Look at an absolute path, as `Sandbox.stat` promises.

        Raises:
            ChannelEnded, WorkerFailed: What is there is unknown.
        """
        _check_path(path)
        async with self._call("stat", path=path) as call:
            payload = to_payload({"path": path, "user": user})
            await self._ask(call, FrameKind.STAT, payload)
            return to_file_stat(await call.answered(seconds=ANSWER_SECONDS))

    async def rename(self, source: str, path: str, *, user: str | None) -> None:
        """Give a whole file that lies at `source` its name, as `Sandbox.put` does.

        Raises:
            ChannelEnded: Whether it has the name is unknown.
            WorkerFailed: It has not, for one because it lies on another file system.
        """
        _check_path(path)
        async with self._call("rename", path=path) as call:
            words = {"source": source, "path": path, "user": user}
            await self._ask(call, FrameKind.RENAME, to_payload(words))
            await call.answered(seconds=ANSWER_SECONDS)

    async def aclose(self) -> None:
        """Close the stream; the worker ends what runs and exits."""
        self._end("the channel was closed")
        await self._stream.aclose()

    @asynccontextmanager
    async def _call(
        self,
        operation: str,
        *,
        path: str = "",
        bytes_max: int = 0,
        ending_seconds: float | None = None,
    ) -> AsyncGenerator[Call]:
        """Open a call; one that is left before its answer is ended over there."""
        self._last_number += 1
        call = Call(
            number=self._last_number,
            operation=operation,
            to_fault=lambda words: to_fault(words, operation=operation, path=path),
            bytes_max=bytes_max,
            credit=WINDOW_BYTES,
        )
        self._calls[call.number] = call
        seconds = ending_seconds or self._ending_seconds
        try:
            yield call
        except WorkerFailed:
            # It was given all the time that it has for its end.
            seconds = min(seconds, KILLED_SECONDS)
            raise
        finally:
            try:
                if call.is_asked and not call.is_over:
                    await self._end_call(call, seconds=seconds)
            finally:
                del self._calls[call.number]

    async def _end_call(self, call: Call, *, seconds: float) -> None:
        """Ask for the end of a call, and wait until the worker has seen it."""
        with anyio.CancelScope(shield=True):
            try:
                await self._send(Frame(FrameKind.KILL, call.number))
                await call.until(lambda: call.is_over, seconds=seconds)
            except ChannelEnded:
                return  # What made us leave the call is told, not this.
            except WorkerFailed as fault:
                # It may have been stopped. What is asked of it has no end any more.
                self._end(f"it does not end what it is told to: {fault.reason}")
                await self._stream.aclose()

    async def _ask(self, call: Call, kind: FrameKind, payload: bytes) -> None:
        await self._send(Frame(kind, call.number, payload), asks=call)

    async def _feed(self, call: Call, stdin: bytes, *, seconds: float) -> None:
        for begin in range(0, len(stdin), CHUNK_BYTES):
            await call.until(lambda: call.credit > 0 or call.is_over, seconds=seconds)
            if call.is_over:
                return
            piece = stdin[begin : begin + CHUNK_BYTES]
            call.credit -= len(piece)
            await self._send(Frame(FrameKind.CHUNK, call.number, piece))

    async def _give_credit(self, call: Call, size: int) -> None:
        credit = Frame(FrameKind.CREDIT, call.number, size.to_bytes(4, "big"))
        await self._send(credit)

    async def _send(self, frame: Frame, *, asks: Call | None = None) -> None:
        """Send a whole frame: a cancellation waits until it is out."""
        async with self._turn:
            if self._ended is not None:
                raise ChannelEnded(self._ended)
            if asks is not None:
                asks.is_asked = True
            try:
                with anyio.move_on_after(self._send_seconds, shield=True) as scope:
                    await self._stream.send(frame.to_bytes())
            except OSError as fault:
                self._end(str(fault))
                raise ChannelEnded(str(fault)) from fault
            if scope.cancelled_caught:
                reason = f"it took no more bytes for {self._send_seconds:g} s"
                self._end(reason)
                raise ChannelEnded(reason)

    async def _read_hello(self, reader: FrameReader) -> WorkerHello:
        with anyio.move_on_after(HELLO_SECONDS):
            while piece := await self._receive_first():
                try:
                    for frame in reader.feed(piece):
                        if frame.kind is not FrameKind.HELLO:
                            raise FramesBroken("its first words are no hello")
                        return to_hello(from_payload(frame.payload))
                except FramesBroken as fault:
                    raise ChannelEnded(f"{fault}: {piece[:200]!r}") from fault
            raise ChannelEnded("its stream ended before it said hello")
        raise ChannelEnded(f"it said no hello for {HELLO_SECONDS:g} s")

    async def _receive_first(self) -> bytes:
        try:
            return await self._stream.receive()
        except OSError as fault:
            raise ChannelEnded(str(fault)) from fault

    def _take(self, frame: Frame) -> None:
        call = self._calls.get(frame.call)
        if call is None:
            return  # Of a call that was left; its last frames still come.
        if frame.kind is FrameKind.CHUNK:
            call.take_chunk(frame.payload)
        elif frame.kind is FrameKind.CREDIT:
            call.take_credit(int.from_bytes(frame.payload, "big"))
        elif frame.kind is FrameKind.OPENED:
            call.take_opened()
        elif frame.kind is FrameKind.ANSWER:
            call.take_answer(from_payload(frame.payload))
        elif frame.kind is FrameKind.FAILED:
            call.take_failure(from_payload(frame.payload))
        else:
            raise FramesBroken(f"it sent {frame.kind.name}, which is ours to say")

    def _end(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
        for call in self._calls.values():
            call.take_end(self._ended)


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        raise PathRefused(path, "it is not absolute")
    if "\0" in path:
        raise PathRefused(path, "it holds a NUL")
    if ".." in path.split("/"):
        raise PathRefused(path, "it holds '..'")
