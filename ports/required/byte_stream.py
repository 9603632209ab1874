# SPDX-License-Identifier: Apache-2.0
"""A two-way stream of bytes to a worker script in a sandbox."""

from typing import Protocol


class ByteStream(Protocol):
    """What a provider attaches to a worker script's standard input and output."""

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when the other end is gone."""
        ...

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        ...

    async def aclose(self) -> None:
        """Close both directions; a pending `receive` ends."""
        ...
