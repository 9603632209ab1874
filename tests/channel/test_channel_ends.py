# SPDX-License-Identifier: Apache-2.0
"""The channel with a worker that is none, or that breaks off in the middle."""

from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from livery.ports.provided.worker_channel import (
    ChannelEnded,
    WorkerChannel,
    WorkerFailed,
)
from livery.ports.provided.worker_frames import (
    WINDOW_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    from_payload,
    to_payload,
)
from livery.ports.required.sandbox import Exited, FileKind, shell

pytestmark = pytest.mark.anyio

HELLO = Frame(
    FrameKind.HELLO,
    0,
    to_payload(
        {
            "python": "3.8.18",
            "shell": "/bin/sh",
            "system": "Linux",
            "machine": "x86_64",
            "libc": "musl",
            "uid": 0,
            "gid": 0,
            "pid": 7,
            "root_device": 1,
            "subreaper": True,
        }
    ),
)
EXITED: dict[str, object] = {
    "how": "exited",
    "number": 0,
    "reason": "",
    "seconds": 0.1,
    "leftovers": 0,
    "sizes": [2, 0],
    "lengths": [2, 0, 0, 0],
}

Answer = Callable[[Frame], list[Frame]]


class ScriptedStream:
    """Plays a worker: `answer` returns the frames for each frame that came."""

    def __init__(self, answer: Answer, *, first: bytes | None = None) -> None:
        self.heard: list[Frame] = []
        self.is_full = False
        self._answer = answer
        self._reader = FrameReader()
        self._send, self._receive = anyio.create_memory_object_stream[bytes](1000)
        self._send.send_nowait(HELLO.to_bytes() if first is None else first)

    async def send(self, data: bytes) -> None:
        if self.is_full:
            await anyio.sleep_forever()
        for frame in self._reader.feed(data):
            self.heard.append(frame)
            for told in self._answer(frame):
                try:
                    self._send.send_nowait(told.to_bytes())
                except (anyio.ClosedResourceError, anyio.BrokenResourceError) as fault:
                    raise OSError("it is closed") from fault

    def tell(self, data: bytes) -> None:
        self._send.send_nowait(data)

    async def receive(self) -> bytes:
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return b""

    async def aclose(self) -> None:
        self._send.close()

    def forget(self) -> None:
        self._send.close()
        self._receive.close()


def silent(frame: Frame) -> list[Frame]:
    return []


def obedient(frame: Frame) -> list[Frame]:
    """Runs nothing, and answers a kill."""
    if frame.kind is FrameKind.KILL:
        return [
            Frame(
                FrameKind.ANSWER,
                frame.call,
                to_payload(EXITED | {"sizes": [0, 0], "lengths": [0] * 4}),
            )
        ]
    return []


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., ScriptedStream]]:
    streams: list[ScriptedStream] = []

    def make(answer: Answer, *, first: bytes | None = None) -> ScriptedStream:
        streams.append(ScriptedStream(answer, first=first))
        return streams[-1]

    yield make
    for stream in streams:
        stream.forget()


Opened = Callable[..., ScriptedStream]


async def test_the_hello_is_what_the_worker_told(opened: Opened) -> None:
    stream = opened(silent)
    channel = WorkerChannel(stream)

    async with anyio.create_task_group() as tasks:
        hello = await tasks.start(channel.run)
        await channel.aclose()

    assert (hello.python, hello.libc, hello.pid) == ("3.8.18", "musl", 7)


@pytest.mark.parametrize(
    "first",
    [
        b"/bin/sh: python3: not found\n",
        Frame(FrameKind.ANSWER, 0, b"{}").to_bytes(),
        Frame(FrameKind.HELLO, 0, b"{}").to_bytes(),
        Frame(FrameKind.HELLO, 0, b"no json").to_bytes(),
        b"",
    ],
)
async def test_who_says_no_hello_is_no_worker(opened: Opened, first: bytes) -> None:
    channel = WorkerChannel(opened(silent, first=first))

    with pytest.raises(ChannelEnded) as raised:
        await channel.run()

    assert raised.value.reason
    with pytest.raises(ChannelEnded):
        await channel.stat("/", user=None)


@pytest.mark.case("FC-047")
async def test_an_end_of_the_stream_is_no_exit(opened: Opened) -> None:
    stream = opened(silent)
    channel = WorkerChannel(stream)
    ends: list[BaseException] = []

    async def one() -> None:
        try:
            await channel.exec(
                shell("true", timeout_seconds=9.0), cwd="/", env={}, user=None
            )
        except ChannelEnded as fault:
            ends.append(fault)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        tasks.start_soon(one)
        tasks.start_soon(one)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()

    assert len(ends) == 2


async def test_an_answer_that_came_stands_when_the_stream_ends(
    opened: Opened,
) -> None:
    def answer(frame: Frame) -> list[Frame]:
        return [
            Frame(FrameKind.CHUNK, frame.call, b"hi"),
            Frame(FrameKind.ANSWER, frame.call, to_payload(EXITED)),
        ]

    channel = WorkerChannel(opened(answer))

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        ended = await channel.exec(
            shell("true", timeout_seconds=9.0), cwd="/", env={}, user=None
        )
        await channel.aclose()

    assert ended.how == Exited(0)
    assert ended.stdout.kept == b"hi"


@pytest.mark.parametrize(
    "told",
    [
        b"Traceback (most recent call last):\n",
        Frame(FrameKind.EXEC, 1, b"{}").to_bytes(),
        Frame(FrameKind.ANSWER, 1, b"[]").to_bytes(),
        Frame(FrameKind.CHUNK, 1, bytes(WINDOW_BYTES + 1)).to_bytes(),
    ],
)
async def test_noise_on_the_stream_ends_the_channel(
    opened: Opened, told: bytes
) -> None:
    stream = opened(lambda frame: stream.tell(told) or [])
    channel = WorkerChannel(stream)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with pytest.raises(ChannelEnded):
            await channel.stat("/", user=None)


@pytest.mark.parametrize(
    "words",
    [
        EXITED | {"how": "danced"},
        EXITED | {"lengths": [1, 0, 0, 0]},
    ],
)
async def test_an_answer_without_sense_is_the_workers_failure(
    opened: Opened, words: dict[str, object]
) -> None:
    def answer(frame: Frame) -> list[Frame]:
        return [
            Frame(FrameKind.CHUNK, frame.call, b"hi"),
            Frame(FrameKind.ANSWER, frame.call, to_payload(words)),
        ]

    channel = WorkerChannel(opened(answer))

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with pytest.raises(WorkerFailed):
            await channel.exec(
                shell("true", timeout_seconds=9.0), cwd="/", env={}, user=None
            )
        await channel.aclose()


async def test_a_failure_that_nobody_knows_is_the_workers(opened: Opened) -> None:
    words = to_payload({"kind": "odd", "reason": "the moon"})
    channel = WorkerChannel(
        opened(lambda frame: [Frame(FrameKind.FAILED, frame.call, words)])
    )

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with pytest.raises(WorkerFailed, match="the moon"):
            await channel.stat("/", user=None)
        await channel.aclose()


@pytest.mark.case("FC-060")
async def test_a_wait_for_an_end_that_never_comes_is_given_up(opened: Opened) -> None:
    stream = opened(silent)
    asked = shell("true", timeout_seconds=0.05)
    channel = WorkerChannel(stream, ending_seconds=0.05 - asked.grace_seconds)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with pytest.raises(WorkerFailed, match="no answer"):
            await channel.exec(asked, cwd="/", env={}, user=None)
        with pytest.raises(ChannelEnded, match="does not end what it is told to"):
            await channel.stat("/", user=None)
        await channel.aclose()

    assert [frame.kind for frame in stream.heard] == [FrameKind.EXEC, FrameKind.KILL]


async def test_a_worker_that_takes_nothing_more_ends_the_channel(
    opened: Opened,
) -> None:
    stream = opened(silent)
    stream.is_full = True
    channel = WorkerChannel(stream, send_seconds=0.05)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with pytest.raises(ChannelEnded, match="took no more"):
            await channel.stat("/", user=None)
        with pytest.raises(ChannelEnded, match="took no more"):
            await channel.stat("/", user=None)
        await channel.aclose()


async def test_a_cancelled_call_is_killed_and_waited_for(opened: Opened) -> None:
    stream = opened(obedient)
    channel = WorkerChannel(stream)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with anyio.move_on_after(0.05):
            await channel.exec(
                shell("true", timeout_seconds=9.0), cwd="/", env={}, user=None
            )
        await channel.aclose()

    assert [frame.kind for frame in stream.heard] == [FrameKind.EXEC, FrameKind.KILL]


async def test_frames_of_calls_that_were_left_are_passed_over(opened: Opened) -> None:
    words = to_payload({"kind": "folder", "size": 1, "mode": 0o755})

    def answer(frame: Frame) -> list[Frame]:
        stray = Frame(FrameKind.CHUNK, 999, b"late")
        return [stray, Frame(FrameKind.ANSWER, frame.call, words)]

    channel = WorkerChannel(opened(answer))

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        seen = await channel.stat("/", user=None)
        await channel.aclose()

    assert seen.kind is FileKind.FOLDER


async def test_no_more_is_sent_than_there_is_credit_for(opened: Opened) -> None:
    stream = opened(obedient)
    channel = WorkerChannel(stream)

    async def much() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(256 * 1024)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with anyio.move_on_after(0.3):
            await channel.put("/x", much(), size=None, mode=0o644, user=None)
        await channel.aclose()

    sent = sum(len(f.payload) for f in stream.heard if f.kind is FrameKind.CHUNK)
    assert sent == WINDOW_BYTES


async def test_what_is_asked_is_what_was_given(opened: Opened) -> None:
    stream = opened(obedient)
    channel = WorkerChannel(stream)

    async with anyio.create_task_group() as tasks:
        await tasks.start(channel.run)
        with anyio.move_on_after(0.05):
            await channel.exec(
                shell("exit", timeout_seconds=9.0),
                cwd="/w",
                env={"A": "b"},
                user="agent",
            )
        await channel.aclose()

    asked = from_payload(stream.heard[0].payload)
    assert asked["argv"] == ["/bin/sh", "-c", "exit"]
    assert (asked["cwd"], asked["env"], asked["user"]) == ("/w", {"A": "b"}, "agent")
