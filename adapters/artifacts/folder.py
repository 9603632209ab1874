# SPDX-License-Identifier: Apache-2.0
"""Artifacts in a folder: `<root>/<shelf>/<name>`, one folder for each shelf.

Content goes through in pieces and is never held in memory. It is written under a
name that nobody reads, seen safely on disk, and comes to stand in one step; what
fails or is cancelled before that leaves what was there before. All that touches
the disk runs in threads of its own kind, `THREADS_MAX` at once.
"""

import errno
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final, TypeVar

import anyio
import attrs
from anyio import to_thread

from ...ports.required.artifact_store import (
    Artifact,
    ArtifactDamaged,
    ArtifactForbidden,
    ArtifactMissing,
    ArtifactStoreUnusable,
    Reader,
    Shelf,
)
from .file_names import to_file_name
from .shelf_folder import ShelfFolder

PIECE_BYTES: Final = 1024 * 1024
"""The most that one call of a thread reads or writes."""
THREADS_MAX: Final = 8

T = TypeVar("T")


@attrs.frozen
class FolderArtifactStore:
    """Artifacts under `root`, which is made when something is put there."""

    root: Path
    _threads: anyio.CapacityLimiter = attrs.field(
        factory=lambda: anyio.CapacityLimiter(THREADS_MAX), init=False, repr=False
    )

    async def put(
        self,
        shelf: Shelf,
        name: str,
        chunks: AsyncIterable[bytes],
        *,
        readers: frozenset[Reader] = frozenset(),
    ) -> Artifact:
        """Store the bytes under the name, replacing what stood there.

        Raises:
            BadName: The shelf's or the artifact's name is empty.
            ArtifactStoreUnusable: What stood there before stands there still.
        """
        folder = self._folder(shelf)
        to_file_name("artifact name", name)
        part = await self._blocking(folder.begin)
        try:
            async with aclosing(_pieces(chunks)) as pieces:
                async for piece in pieces:
                    await self._blocking(partial(part.write, piece))
            return await self._blocking(lambda: folder.place(part, name, readers))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._blocking(part.discard)
            raise

    @asynccontextmanager
    async def get(
        self, shelf: Shelf, name: str, *, reader: Reader
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open an artifact for reading in pieces.

        Raises:
            ArtifactMissing, ArtifactForbidden: As they say.
            ArtifactDamaged: At the end, when the digest is another.
        """
        found = await self._blocking(lambda: self._folder(shelf).open(name))
        if found is None:
            raise ArtifactMissing(shelf=shelf, name=name)
        artifact, file = found
        try:
            if reader is not Reader.OPERATOR and reader not in artifact.readers:
                raise ArtifactForbidden(shelf=shelf, name=name, reader=reader)
            if file is None:
                raise _damaged(artifact, "no file")
            async with aclosing(self._content(artifact, file)) as pieces:
                yield pieces
        finally:
            if file is not None:
                file.close()

    async def find(self, shelf: Shelf, name: str) -> Artifact | None:
        """Return the artifact, or None when there is none."""
        entries = await self._blocking(self._folder(shelf).entries)
        entry = entries.get(name)
        return entry.artifact if entry else None

    async def list(self, shelf: Shelf) -> tuple[Artifact, ...]:
        """Return what stands on a shelf, by name."""
        entries = await self._blocking(self._folder(shelf).entries)
        return tuple(entries[name].artifact for name in sorted(entries))

    async def _content(
        self, artifact: Artifact, file: IO[bytes]
    ) -> AsyncGenerator[bytes]:
        digest = hashlib.sha256()

        def next_piece() -> bytes:
            piece = file.read(PIECE_BYTES)
            digest.update(piece)
            return piece

        while piece := await self._blocking(next_piece):
            yield piece
        if digest.hexdigest() != artifact.sha256:
            raise _damaged(artifact, digest.hexdigest())

    async def _blocking(self, act: Callable[[], T]) -> T:
        """Run `act` in a thread, to its end also when cancelled meanwhile."""
        try:
            return await to_thread.run_sync(act, limiter=self._threads)
        except OSError as error:
            raise ArtifactStoreUnusable(
                where=str(self.root), reason=_reason(error)
            ) from error

    def _folder(self, shelf: Shelf) -> ShelfFolder:
        return ShelfFolder(path=self.root / to_file_name("shelf", shelf), shelf=shelf)


async def _pieces(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Give what `chunks` give in pieces of `PIECE_BYTES`, the last one smaller."""
    waiting = bytearray()
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE_BYTES):
            waiting += chunk[start : start + PIECE_BYTES]
            if len(waiting) >= PIECE_BYTES:
                yield bytes(waiting[:PIECE_BYTES])
                del waiting[:PIECE_BYTES]
    if waiting:
        yield bytes(waiting)


def _damaged(artifact: Artifact, found: str) -> ArtifactDamaged:
    return ArtifactDamaged(
        shelf=artifact.shelf, name=artifact.name, wanted=artifact.sha256, found=found
    )


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return (error.strerror or type(error).__name__).lower()
