# SPDX-License-Identifier: Apache-2.0
"""The exec channel: one resident worker script in a sandbox, many commands.

The worker answers over one byte stream that the provider attached to it. It
runs commands, ends their whole process trees, bounds their output and moves
files, each in about a millisecond. `run` reads the stream and belongs in a task
group of the provider; the other methods may be called from anywhere while it
runs. When the stream ends, every call under way and every later one raises
`ChannelEnded`; whether the sandbox is lost is then the provider's to find out.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import anyio.abc
import attrs

from ..required.byte_stream import ByteStream
from ..required.faults import Fault
from ..required.sandbox import Command, Ended, FileStat


@attrs.frozen
class ChannelEnded(Fault):
    """The worker's stream ended; how the commands under way ended is unknown."""

    kind: ClassVar[str] = "channel_ended"
    message: ClassVar[str] = "The worker in the sandbox does not answer: {reason}."
    can_retry: ClassVar[bool] = True

    reason: str


@attrs.frozen(kw_only=True)
class WorkerHello:
    """What the worker tells of its sandbox when it starts."""

    python: str
    """Version, "3.11.2"."""
    shell: str
    """The shell that is there: "/bin/bash", else "/bin/sh"."""
    system: str
    machine: str
    libc: str
    """"glibc 2.36", "musl" or "unknown"."""
    uid: int
    gid: int
    pid: int
    root_device: int
    """`st_dev` of `/`: a path on another device is a mount."""


class WorkerChannel:
    """The host's end of the channel."""

    def __init__(self, stream: ByteStream) -> None:
        """Speak over `stream`, to a worker that starts up at its other end."""
        raise NotImplementedError

    async def run(
        self,
        *,
        task_status: anyio.abc.TaskStatus[WorkerHello] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read the stream until its end; started once the worker said hello."""
        raise NotImplementedError

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended:
        """Run a command; cancelling the call ends its tree in the sandbox."""
        raise NotImplementedError

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        mode: int,
        user: str | None,
    ) -> None:
        """Write a file at an absolute path, as `Sandbox.put` promises."""
        raise NotImplementedError

    def get(
        self, path: str, *, user: str | None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read a file at an absolute path, as `Sandbox.get` promises."""
        raise NotImplementedError

    async def stat(self, path: str, *, user: str | None) -> FileStat:
        """Look at an absolute path, as `Sandbox.stat` promises."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the stream; the worker ends what runs and exits."""
        raise NotImplementedError
