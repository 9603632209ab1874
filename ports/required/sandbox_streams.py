# SPDX-License-Identifier: Apache-2.0
"""Streams into and out of a sandbox, for what carries bytes as they come."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from .byte_stream import ByteStream


@runtime_checkable
class StreamingSandbox(Protocol):
    """The extra ability of a sandbox to have a program's streams attached."""

    def open_process(
        self, argv: tuple[str, ...]
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Run a program with its standard input and output attached.

        It runs as the sandbox's user. Its input ends when the block is left or this
        process is killed, and the program must end by itself then; one that does not
        is ended with the sandbox. What it says on standard error is not kept.

        Raises:
            SandboxLost, SandboxFailed: It was not started.
        """
        ...


class DuplexStream(ByteStream, Protocol):
    """A `ByteStream` of which each direction ends by itself, as with TCP."""

    async def send_end(self) -> None:
        """Say that nothing more will be sent; raises `OSError`."""
        ...


Dial = Callable[[], Awaitable[DuplexStream]]
"""Connects to something that this host reaches; raises `OSError`."""
