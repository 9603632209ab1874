# SPDX-License-Identifier: Apache-2.0
"""Files of this host into a sandbox and back, in pieces, whole or not at all."""

import os
import stat
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from ...ports.required.sandbox import Sandbox

PIECE_BYTES: Final = 1024 * 1024
DOWNLOADED_MODE: Final = 0o644


async def upload(sandbox: Sandbox, source: Path, target: str) -> None:
    """Write a file of this host into the sandbox, with its mode.

    Raises:
        OSError: It cannot be read here.
        Fault: As `Sandbox.put` says.
    """
    async with await anyio.open_file(source, "rb") as file:
        facts = os.fstat(file.wrapped.fileno())

        async def pieces() -> AsyncGenerator[bytes]:
            while piece := await file.read(PIECE_BYTES):
                yield piece

        async with aclosing(pieces()) as chunks:
            await sandbox.put(
                target, chunks, size=facts.st_size, mode=stat.S_IMODE(facts.st_mode)
            )


async def download(sandbox: Sandbox, source: str, target: Path) -> None:
    """Write a file of the sandbox here; parents are made.

    Raises:
        OSError: It cannot be written here.
        Fault: As `Sandbox.get` says.
    """
    async with sandbox.get(source) as chunks:
        await anyio.Path(target.parent).mkdir(parents=True, exist_ok=True)
        descriptor, name = await to_thread.run_sync(
            lambda: tempfile.mkstemp(dir=target.parent, prefix=".livery-")
        )
        try:
            async with await anyio.open_file(descriptor, "wb") as file:
                async for chunk in chunks:
                    await file.write(chunk)
            os.chmod(name, DOWNLOADED_MODE)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
