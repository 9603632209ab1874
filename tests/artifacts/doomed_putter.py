# SPDX-License-Identifier: Apache-2.0
"""Puts artifacts until it is killed, and says on standard output which stand."""

import hashlib
import itertools
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from livery.adapters.artifacts import FolderArtifactStore
from livery.ports.required.artifact_store import Shelf

PIECE_BYTES = 4096
NAMES = 3


async def pieces(number: int) -> AsyncIterator[bytes]:
    for _ in range(number % 40):
        yield bytes([number % 251]) * PIECE_BYTES


async def main(root: Path) -> None:
    store = FolderArtifactStore(root)

    async def put(name: str) -> None:
        for number in itertools.count(1):
            artifact = await store.put(Shelf("shelf"), name, pieces(number))
            assert artifact.size == number % 40 * PIECE_BYTES
            os.write(1, f"{name} {number}\n".encode())

    async with anyio.create_task_group() as tasks:
        for name in range(NAMES):
            tasks.start_soon(put, f"n{name}")


def digest_of(number: int) -> str:
    content = bytes([number % 251]) * (PIECE_BYTES * (number % 40))
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
