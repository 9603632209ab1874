# SPDX-License-Identifier: Apache-2.0
"""Artifacts in memory, for tests and for runs whose artifacts nobody keeps."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import attrs
from anyio.lowlevel import checkpoint

from ...ports.required.artifact_store import (
    Artifact,
    ArtifactForbidden,
    ArtifactMissing,
    Reader,
    Shelf,
)
from .file_names import to_file_name

PIECE_BYTES = 64 * 1024


@attrs.define
class MemoryArtifactStore:
    """Artifacts that are gone with the process."""

    _standing: dict[tuple[Shelf, str], tuple[Artifact, bytes]] = attrs.field(
        factory=dict[tuple[Shelf, str], tuple[Artifact, bytes]], init=False
    )

    async def put(
        self,
        shelf: Shelf,
        name: str,
        chunks: AsyncIterable[bytes],
        *,
        readers: frozenset[Reader] = frozenset(),
    ) -> Artifact:
        """Keep the bytes under the name, replacing what stood there.

        Raises:
            BadName: The shelf's or the artifact's name is empty.
        """
        to_file_name("shelf", shelf)
        to_file_name("artifact name", name)
        content = b"".join([chunk async for chunk in chunks])
        await checkpoint()
        artifact = Artifact(
            shelf=shelf,
            name=name,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            readers=readers,
        )
        self._standing[shelf, name] = (artifact, content)
        return artifact

    @asynccontextmanager
    async def get(
        self, shelf: Shelf, name: str, *, reader: Reader
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open an artifact for reading in pieces.

        Raises:
            ArtifactMissing, ArtifactForbidden: As they say.
        """
        await checkpoint()
        found = self._standing.get((shelf, name))
        if found is None:
            raise ArtifactMissing(shelf=shelf, name=name)
        artifact, content = found
        if reader is not Reader.OPERATOR and reader not in artifact.readers:
            raise ArtifactForbidden(shelf=shelf, name=name, reader=reader)
        async with aclosing(_pieces(content)) as pieces:
            yield pieces

    async def find(self, shelf: Shelf, name: str) -> Artifact | None:
        """Return the artifact, or None when there is none."""
        await checkpoint()
        found = self._standing.get((shelf, name))
        return found[0] if found else None

    async def list(self, shelf: Shelf) -> tuple[Artifact, ...]:
        """Return what stands on a shelf, by name."""
        await checkpoint()
        standing = (artifact for artifact, _ in self._standing.values())
        mine = (artifact for artifact in standing if artifact.shelf == shelf)
        return tuple(sorted(mine, key=lambda artifact: artifact.name))


async def _pieces(content: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        await checkpoint()
        yield content[start : start + PIECE_BYTES]
