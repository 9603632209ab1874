# SPDX-License-Identifier: Apache-2.0
"""A proxy that passes HTTP/1.1 on byte for byte, and goes wrong now and then.

It listens on loopback or on a unix socket, and has a connection of its own to the
server for each request. What upgrades (a hijacked stream of the Docker Engine) becomes
a tunnel, whose ends can be closed one by one. A caller who leaves is followed at once.
"""

import errno
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.abc
import attrs

from livery.adapters.docker_engine.engine_address import EngineAddress
from livery.adapters.docker_engine.engine_socket import EngineSocket, connect

from .chances import Chances, Fault, FaultKind
from .http_messages import Ended, Head, Reader

BACKLOG: Final = 256
REPEATED_BYTES_MAX: Final = 64 * 1024
REPEAT_SECONDS_MAX: Final = 120.0
PIECES: Final = 16
"""In how many a slow message comes."""
UNKNOWN_BYTES: Final = 4096
"""How long a message counts as whose length nobody told, where it is cut."""
BUSY_SECONDS: Final = 0.1

Found = TypeVar("Found")


class Cut(Exception):
    """The connection is to be cut here."""


@attrs.define
class _Flow:
    """Bytes on their way, which a fault may hold up or end."""

    fault: Fault | None
    size: int | None = None
    """How many there will be, where it is known."""
    sent: int = 0

    async def send(self, target: EngineSocket, piece: bytes) -> None:
        """Send a piece; raises `Cut` at the place where all ends."""
        match self.fault:
            case Fault(FaultKind.CUT_REPLY | FaultKind.CUT_REQUEST, part=part):
                left = int(part * (self.size or UNKNOWN_BYTES)) - self.sent
                if left < len(piece):
                    await target.send(piece[:left])
                    raise Cut
                await target.send(piece)
            case Fault(FaultKind.SLOW, seconds=seconds):
                step = max(1, (self.size or len(piece)) // PIECES)
                for at in range(0, len(piece), step):
                    if self.sent + at < step * PIECES:
                        await anyio.sleep(seconds / PIECES)
                    await target.send(piece[at : at + step])
            case _:
                await target.send(piece)
        self.sent += len(piece)


@attrs.define
class FaultProxy:
    """Stands before one server on one hop."""

    chances: Chances
    server: EngineAddress
    _group: anyio.abc.TaskGroup

    async def accept(self, listener: socket.socket) -> None:
        """Take connections until cancelled."""
        while True:
            await anyio.wait_readable(listener)
            try:
                near, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError as failure:
                if failure.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                await anyio.sleep(BUSY_SECONDS)
                continue
            near.setblocking(False)
            self._group.start_soon(self._serve, EngineSocket(near))

    async def _serve(self, near: EngineSocket) -> None:
        reader = Reader(near)
        try:
            while await self._exchange(reader):
                pass
        except (Cut, Ended, OSError):
            return
        finally:
            near.close()

    async def _exchange(self, near: Reader) -> bool:
        """Pass one request and its reply on; False when the connection is to be closed."""
        asked = await near.head()
        if asked is None:
            return False
        small = not asked.is_chunked and (asked.length or 0) <= REPEATED_BYTES_MAX
        fault = self.chances.next(can_repeat=small and not asked.upgrades)
        if fault is not None and fault.kind is FaultKind.REFUSE:
            self.chances.note(fault)
            return False
        if fault is not None and fault.kind is FaultKind.DROP:
            self.chances.note(fault)
            with anyio.move_on_after(fault.seconds):
                while await near.fill():
                    near.held.clear()
            return False
        far = Reader(await connect(self.server))
        try:
            return await self._passed(asked, near, far, fault)
        finally:
            far.socket.close()

    async def _passed(
        self, asked: Head, near: Reader, far: Reader, fault: Fault | None
    ) -> bool:
        kind = None if fault is None else fault.kind
        if fault is not None and kind is FaultKind.STALL and fault.part < 0.5:
            self.chances.note(fault)
            await anyio.sleep(fault.seconds)
            fault = None
        if fault is not None and kind is FaultKind.DUPLICATE:
            body = b"".join([piece async for piece in near.sized(asked.length or 0)])
            self.chances.under_way += 1
            self._group.start_soon(self._repeat, asked, body, fault)
            await far.socket.send(asked.raw + body)
            return await self._replied(asked, near, far, None)
        is_whole = await self._request(asked, near, far, fault)
        return await self._replied(asked, near, far, fault) and is_whole

    async def _request(
        self, asked: Head, near: Reader, far: Reader, fault: Fault | None
    ) -> bool:
        """Pass the request on; False when its end did not come."""
        is_cut = fault is not None and fault.kind is FaultKind.CUT_REQUEST
        size = None if asked.is_chunked else len(asked.raw) + (asked.length or 0)
        flow = _Flow(fault if is_cut else None, size)
        body = near.chunks() if asked.is_chunked else near.sized(asked.length or 0)
        try:
            await self._pass_on(asked, body, far.socket, flow)
        except Ended:
            # Who sends no more may still wait for what the server makes of it.
            far.socket.send_end()
            return False
        except (BrokenPipeError, ConnectionResetError):
            # A server that says no stops reading, and its answer tells why.
            return False
        return True

    async def _replied(
        self, asked: Head, near: Reader, far: Reader, fault: Fault | None
    ) -> bool:
        """Pass the reply on; False when the connection is to be closed."""
        if asked.upgrades:
            # Whoever closes one end may have said all that goes into the tunnel.
            reply = await self._reply_head(near, far, fault)
        else:
            reply = await _while_there(near, lambda: self._reply_head(near, far, fault))
        if reply is None:
            return False
        if _is_stream(asked, reply):
            await self._tunnel(reply, near, far, fault)
            return False
        passed = await _while_there(
            near, lambda: self._reply(asked, reply, near, far, fault)
        )
        return passed is True

    async def _reply_head(
        self, near: Reader, far: Reader, fault: Fault | None
    ) -> Head | None:
        """Return the head of the reply proper, after all that comes before it."""
        reply = await far.head()
        while reply is not None and 100 <= reply.status < 200 and reply.status != 101:
            await near.socket.send(reply.raw)
            reply = await far.head()
        if fault is not None and fault.kind is FaultKind.STALL:
            self.chances.note(fault)
            await anyio.sleep(fault.seconds)
        return reply

    async def _reply(
        self, asked: Head, reply: Head, near: Reader, far: Reader, fault: Fault | None
    ) -> bool:
        body, length = far.reply_body(asked, reply)
        flow = self._flow(fault, None if length is None else len(reply.raw) + length)
        await self._pass_on(reply, body, near.socket, flow)
        ends = length is None and not reply.is_chunked
        return not ends and reply.value(b"connection") != b"close"

    async def _pass_on(
        self,
        head: Head,
        body: AsyncGenerator[bytes],
        target: EngineSocket,
        flow: _Flow,
    ) -> None:
        """Send a head and its body, and note where they were cut off."""
        try:
            async with aclosing(body):
                await flow.send(target, head.raw)
                async for piece in body:
                    await flow.send(target, piece)
        except Cut:
            assert flow.fault is not None
            self.chances.note(flow.fault)
            raise

    def _flow(self, fault: Fault | None, size: int | None) -> _Flow:
        if fault is None or fault.kind not in (FaultKind.CUT_REPLY, FaultKind.SLOW):
            return _Flow(None)
        if fault.kind is FaultKind.SLOW:
            self.chances.note(fault)
        return _Flow(fault, size)

    async def _tunnel(
        self, reply: Head, near: Reader, far: Reader, fault: Fault | None
    ) -> None:
        """Pass bytes on both ways until both ends have closed, or one is lost."""
        flow, back = self._flow(fault, None), _Flow(None)
        if fault is not None and fault.part < 0.5:
            flow, back = back, flow

        async def pump(source: Reader, target: EngineSocket, flow: _Flow) -> None:
            try:
                async with aclosing(source.rest()) as pieces:
                    async for piece in pieces:
                        await flow.send(target, piece)
                target.send_end()
            except Cut:
                assert fault is not None
                self.chances.note(fault)
                group.cancel_scope.cancel()
            except OSError:
                group.cancel_scope.cancel()

        await near.socket.send(reply.raw)
        async with anyio.create_task_group() as group:
            group.start_soon(pump, near, far.socket, flow)
            group.start_soon(pump, far, near.socket, back)

    async def _repeat(self, asked: Head, body: bytes, fault: Fault) -> None:
        """Ask once more, a little later, and drop the reply."""
        try:
            await anyio.sleep(fault.seconds)
            self.chances.note(fault)
            with anyio.move_on_after(REPEAT_SECONDS_MAX):
                far = Reader(await connect(self.server))
                try:
                    await far.socket.send(asked.raw + body)
                    await self._dropped(asked, far)
                finally:
                    far.socket.close()
        except (Ended, OSError):
            return
        finally:
            self.chances.under_way -= 1

    async def _dropped(self, asked: Head, far: Reader) -> None:
        reply = await far.head()
        if reply is None:
            return
        body, _ = far.reply_body(asked, reply)
        async with aclosing(body):
            async for _ in body:
                pass


async def _while_there(
    near: Reader, act: Callable[[], Awaitable[Found]]
) -> Found | None:
    """Carry out `act` for as long as the caller is there; None when it left."""
    if near.ended:
        return await act()
    found: Found | None = None
    failure: Exception | None = None
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            try:
                while await near.fill():
                    pass
            except OSError:
                near.ended = True
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            found = await act()
        except (Cut, Ended, OSError) as raised:
            failure = raised
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found


def _is_stream(asked: Head, reply: Head) -> bool:
    return reply.status == 101 or (asked.upgrades and reply.status == 200)


@asynccontextmanager
async def fault_proxy(
    chances: Chances, server: EngineAddress, path: Path | None = None
) -> AsyncGenerator[EngineAddress]:
    """Listen before `server` inside the block: at a path, or on a port of loopback."""
    if path is None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        address = EngineAddress(host="127.0.0.1", port=listener.getsockname()[1])
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(BACKLOG)
        address = EngineAddress(path=str(path))
    listener.setblocking(False)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(FaultProxy(chances, server, group).accept, listener)
            yield address
            group.cancel_scope.cancel()
    finally:
        listener.close()
        if path is not None:
            path.unlink(missing_ok=True)
