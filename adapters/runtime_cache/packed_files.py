# SPDX-License-Identifier: Apache-2.0
"""The packed form of a program, open for many readers of pieces."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.to_thread
import attrs

from .cache import SECRET_MODE, Entry, RuntimeCacheUnusable
from .trusted_files import FileUntrusted, open_trusted


@attrs.frozen
class OpenPacked:
    """`PackedBytes` over an open file."""

    _descriptor: int

    async def piece(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on; fewer at the end alone."""
        return await anyio.to_thread.run_sync(os.pread, self._descriptor, size, offset)


@asynccontextmanager
async def open_packed(entry: Entry) -> AsyncGenerator[OpenPacked]:
    """Open the packed form of an entry; it is verified where it is unpacked.

    Raises:
        RuntimeCacheUnusable: It is another's, a link, open to others, or gone.
    """
    try:
        descriptor = open_trusted(entry.packed, own=True, most=SECRET_MODE)
    except (FileUntrusted, OSError) as fault:
        raise RuntimeCacheUnusable(str(entry.packed), str(fault)) from fault
    try:
        yield OpenPacked(descriptor)
    finally:
        os.close(descriptor)
