# SPDX-License-Identifier: Apache-2.0
"""Put the files of a task or a harness into a sandbox."""

from collections.abc import AsyncIterator, Iterable

from ..required.harness import PlacedFile
from ..required.sandbox import Sandbox


async def place_files(sandbox: Sandbox, files: Iterable[PlacedFile]) -> None:
    """Put the files one after the other, each whole or not at all.

    Raises:
        Fault: As `Sandbox.put` says.
    """
    for file in files:
        content = whole(file.content)
        await sandbox.put(file.path, content, size=len(file.content), mode=file.mode)


async def whole(content: bytes) -> AsyncIterator[bytes]:
    """Give `content` as a stream of one piece."""
    yield content
