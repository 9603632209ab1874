# SPDX-License-Identifier: Apache-2.0
"""Relay connections: a sandbox without a network reaches what we let it reach.

A relay worker script listens on the sandbox's loopback, one port for each target,
and its connections are carried over the provider's own channel to where `dial`
leads. Nothing else is reached. A relay that is lost is closed connections inside;
it is started again under the same ports a bounded number of times, and each loss
is in the record.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import ClassVar, cast

import anyio
import anyio.abc
import attrs

from ..required.byte_stream import ByteStream
from ..required.faults import Fault
from ..required.sandbox import SandboxLost
from ..required.sandbox_streams import Dial, DuplexStream, StreamingSandbox
from .relay_links import Link
from .worker_frames import Frame, FrameKind, FrameReader, FramesBroken, from_payload

STARTS_MAX = 5
PAUSE_SECONDS = 0.2
"""Before a relay is started again; doubled each time."""
HELLO_SECONDS = 30.0
DIAL_SECONDS = 10.0
SEND_SECONDS = 60.0
"""How long the channel may take no bytes before it counts as lost."""
TOLD_MAX = 50
"""So many losses and failed dials are kept in words; all are counted."""

_log = logging.getLogger(__name__)

OpenStream = Callable[[tuple[int, ...]], AbstractAsyncContextManager[ByteStream]]
"""Starts a relay on these ports (0: any) and attaches its two streams."""
RelayStart = Callable[[tuple[int, ...]], tuple[tuple[str, ...], bytes]]
"""Gives a relay's command line, and what its input holds first."""


@attrs.frozen
class RelayFailed(Fault):
    """No relay runs in the sandbox."""

    kind: ClassVar[str] = "relay_failed"
    message: ClassVar[str] = "The relay in the sandbox did not start: {reason}."
    can_retry: ClassVar[bool] = True

    reason: str


@attrs.define
class RelayRecord:
    """What was seen of a relay, from its start until now."""

    connections: int = 0
    bytes_out: int = 0
    """What the sandbox sent."""
    bytes_in: int = 0
    failed_dials: int = 0
    losses: int = 0
    told: list[str] = attrs.field(factory=list[str])
    """The first losses and failures, in words."""
    is_lost: bool = False
    """Whether it was lost for good."""

    def tell(self, words: str) -> None:
        """Keep the words, if there is room."""
        if len(self.told) < TOLD_MAX:
            self.told.append(words)


@attrs.frozen(kw_only=True)
class Relay:
    """A relay that listens."""

    ports: Mapping[str, int]
    """The port inside of each target."""
    record: RelayRecord

    def url(self, target: str) -> str:
        """Return the address under which the sandbox reaches a target."""
        return f"http://127.0.0.1:{self.ports[target]}"


def attached(sandbox: StreamingSandbox, start: RelayStart) -> OpenStream:
    """Return what starts a relay with its streams attached."""

    @asynccontextmanager
    async def opened(ports: tuple[int, ...]) -> AsyncGenerator[ByteStream]:
        argv, program = start(ports)
        async with sandbox.open_process(argv) as stream:
            with suppress(OSError):  # The missing hello tells of it.
                await stream.send(program)
            yield stream

    return opened


@asynccontextmanager
async def open_relay(
    open_stream: OpenStream,
    targets: Mapping[str, Dial],
    *,
    ports: Mapping[str, int] | None = None,
    pause_seconds: float = PAUSE_SECONDS,
) -> AsyncGenerator[Relay]:
    """Run a relay until the block is left.

    `ports` wishes for ports inside; a target without one gets any. Who comes back
    after a restart asks for the ports of before.

    Raises:
        RelayFailed: It said no hello, or a port is taken.
        RuntimeMissing: The sandbox has no Python for it.
        SandboxLost, SandboxFailed: As they say.
    """
    wished = tuple((ports or {}).get(name, 0) for name in targets)
    course = _Course(open_stream, tuple(targets.values()), pause_seconds)
    raised: Exception | None = None
    async with anyio.create_task_group() as tasks:
        told: tuple[int, ...] | Fault = await tasks.start(course.run, wished)
        if isinstance(told, Fault):
            raised = told
        else:
            found = dict(zip(targets, told, strict=True))
            try:
                yield Relay(ports=found, record=course.record)
            except Exception as fault:
                raised = fault  # Raised below: from in here it would come in a group.
            finally:
                tasks.cancel_scope.cancel()
    if raised is not None:
        raise raised


@attrs.define(eq=False)
class _Course:
    """One relay after the other, under the same ports."""

    _open_stream: OpenStream
    _dials: tuple[Dial, ...]
    _pause_seconds: float
    record: RelayRecord = attrs.field(factory=RelayRecord, init=False)

    async def run(
        self,
        wished: tuple[int, ...],
        *,
        task_status: anyio.abc.TaskStatus[tuple[int, ...] | Fault],
    ) -> None:
        """Tell the ports, or what prevents a start; then carry until cancelled."""
        ports: tuple[int, ...] | None = None
        for start in range(STARTS_MAX):
            if ports is not None:
                await anyio.sleep(self._pause_seconds * 2 ** (start - 1))
            try:
                async with self._open_stream(ports or wished) as stream:
                    carrier = _Carrier(stream, self._dials, self.record)
                    found = await carrier.hello()
                    if ports is None:
                        ports = found
                        task_status.started(ports)
                    reason = await carrier.run()
            except Fault as fault:
                if ports is None:
                    task_status.started(fault)
                    return
                reason = str(fault)
                if isinstance(fault, SandboxLost):
                    self._lose(reason)
                    break
            self._lose(reason)
        self.record.is_lost = True
        _log.error("The relay is lost for good: %s", self.record.told[-1:])

    def _lose(self, reason: str) -> None:
        self.record.losses += 1
        self.record.tell(f"lost: {reason}")
        _log.warning("The relay in the sandbox was lost: %s", reason)


@attrs.define(eq=False)
class _Carrier:
    """One stream to a relay, and the connections that it carries."""

    _stream: ByteStream
    _dials: tuple[Dial, ...]
    _record: RelayRecord
    _reader: FrameReader = attrs.field(factory=FrameReader, init=False)
    _links: dict[int, Link] = attrs.field(factory=dict[int, Link], init=False)
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def hello(self) -> tuple[int, ...]:
        """Return the ports on which the relay listens.

        Raises:
            RelayFailed: It does not.
        """
        try:
            with anyio.fail_after(HELLO_SECONDS):
                words = await self._first_words()
        except TimeoutError:
            raise RelayFailed(f"it said nothing for {HELLO_SECONDS:g} s") from None
        except (OSError, FramesBroken, ValueError) as fault:
            raise RelayFailed(str(fault)) from fault
        if "fault" in words:
            raise RelayFailed(str(words["fault"]))
        ports = words.get("ports")
        if not isinstance(ports, list):
            raise RelayFailed("it named no ports")
        return tuple(cast("list[int]", ports))  # Our own script's words.

    async def _first_words(self) -> dict[str, object]:
        while piece := await self._stream.receive():
            for frame in self._reader.feed(piece):
                if frame.kind is FrameKind.HELLO:
                    return from_payload(frame.payload)
                raise FramesBroken("its first words are no hello")
        raise RelayFailed("its stream ended at once; is there a Python 3.8 or newer?")

    async def run(self) -> str:
        """Carry until the stream ends; return why it did."""
        reason = "its stream ended"
        async with anyio.create_task_group() as tasks:
            try:
                for frame in self._reader.feed(b""):  # What came with the hello.
                    self._take(frame, tasks)
                while piece := await self._stream.receive():
                    for frame in self._reader.feed(piece):
                        self._take(frame, tasks)
            except (FramesBroken, OSError) as fault:
                reason = str(fault)
            tasks.cancel_scope.cancel()
        return reason

    def _take(self, frame: Frame, tasks: anyio.abc.TaskGroup) -> None:
        if frame.kind is FrameKind.OPENED:
            which = int.from_bytes(frame.payload, "big")
            if which >= len(self._dials) or frame.call in self._links:
                raise FramesBroken("the relay opened what it was not given")
            self._links[frame.call] = opened = Link(frame.call)
            self._record.connections += 1
            tasks.start_soon(self._carry, opened, self._dials[which])
            return
        link = self._links.get(frame.call)
        if link is None:
            return  # It is over here; its last frames still come.
        if frame.kind is FrameKind.CHUNK:
            self._record.bytes_out += len(frame.payload)
            link.take_chunk(frame.payload)
        elif frame.kind is FrameKind.CREDIT:
            link.take_credit(int.from_bytes(frame.payload, "big"))
        elif frame.kind is FrameKind.END:
            link.take_end()
        elif frame.kind is FrameKind.KILL:
            link.scope.cancel()
        else:
            raise FramesBroken(f"the relay sent {frame.kind.name}")

    async def _carry(self, link: Link, dial: Dial) -> None:
        """Be the connection's far end, until both directions or either end are over."""
        is_whole = False
        try:
            with link.scope:
                far = await self._dialled(dial)
                if far is not None:
                    try:
                        is_whole = await self._both_ways(link, far)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await far.aclose()
        finally:
            del self._links[link.number]
        if not is_whole and not link.scope.cancel_called:
            with suppress(OSError):  # Then the whole relay is being lost.
                await self._send(Frame(FrameKind.KILL, link.number))

    async def _dialled(self, dial: Dial) -> DuplexStream | None:
        try:
            with anyio.fail_after(DIAL_SECONDS):
                return await dial()
        except (OSError, TimeoutError) as fault:
            self._record.failed_dials += 1
            told = str(fault) or f"it took over {DIAL_SECONDS:g} s"
            self._record.tell(f"not reached: {told}")
            return None

    async def _both_ways(self, link: Link, far: DuplexStream) -> bool:
        """Return whether both directions came to their own end."""
        ended: list[str] = []

        async def outwards() -> None:
            while piece := await link.next_piece():
                await far.send(piece)
                size = len(piece).to_bytes(4, "big")
                await self._send(Frame(FrameKind.CREDIT, link.number, size))
            await far.send_end()
            ended.append("outwards")

        async def inwards() -> None:
            while piece := await link.spend(far):
                self._record.bytes_in += len(piece)
                await self._send(Frame(FrameKind.CHUNK, link.number, piece))
            await self._send(Frame(FrameKind.END, link.number))
            ended.append("inwards")

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outwards)
                tasks.start_soon(inwards)
        except* OSError as broken:
            self._record.tell(f"broke: {broken.exceptions[0]}")
        return len(ended) == 2

    async def _send(self, frame: Frame) -> None:
        """Send a whole frame: a cancellation waits until it is out."""
        async with self._turn:
            with anyio.move_on_after(SEND_SECONDS, shield=True) as scope:
                await self._stream.send(frame.to_bytes())
        if scope.cancelled_caught:
            await self._stream.aclose()  # Cut in a frame, it is of no more use.
            raise BrokenPipeError(f"it took no more bytes for {SEND_SECONDS:g} s")
