# SPDX-License-Identifier: Apache-2.0
"""Artifacts: bytes that an episode left, by name and by digest, on disk.

An artifact stands on the shelf of its episode under a name, whole or not at all,
and says who may read it: what the grader gets is not for the agent.
"""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import ClassVar, NewType, Protocol

import attrs

from .faults import Fault

Shelf = NewType("Shelf", str)
"""One episode's artifacts: the episode's key."""


class Reader(StrEnum):
    """Who may read an artifact. The operator may read all."""

    OPERATOR = "operator"
    AGENT = "agent"
    GRADER = "grader"


@attrs.frozen(kw_only=True)
class Artifact:
    """One artifact, as a result names it."""

    shelf: Shelf
    name: str
    sha256: str
    size: int
    """Bytes."""
    readers: frozenset[Reader]


@attrs.frozen
class ArtifactMissing(Fault):
    """There is no such artifact."""

    kind: ClassVar[str] = "artifact_missing"
    message: ClassVar[str] = "There is no artifact {name} of {shelf}."

    shelf: str
    name: str


@attrs.frozen
class ArtifactForbidden(Fault):
    """It is not for this reader."""

    kind: ClassVar[str] = "artifact_forbidden"
    message: ClassVar[str] = "Artifact {name} of {shelf} is not for the {reader}."

    shelf: str
    name: str
    reader: str


@attrs.frozen
class ArtifactDamaged(Fault):
    """What is on disk is not what was put there."""

    kind: ClassVar[str] = "artifact_damaged"
    message: ClassVar[str] = (
        "Artifact {name} of {shelf} has sha256 {found:.12}, not {wanted:.12}."
    )

    shelf: str
    name: str
    wanted: str
    found: str


@attrs.frozen
class ArtifactStoreUnusable(Fault):
    """The folder cannot be written or read."""

    kind: ClassVar[str] = "artifact_store_unusable"
    message: ClassVar[str] = "The artifacts at {where} cannot be used: {reason}."
    can_retry: ClassVar[bool] = True

    where: str
    reason: str


class ArtifactStore(Protocol):
    """A place for artifacts. Every method may raise `ArtifactStoreUnusable`."""

    async def put(
        self,
        shelf: Shelf,
        name: str,
        chunks: AsyncIterable[bytes],
        *,
        readers: frozenset[Reader] = frozenset(),
    ) -> Artifact:
        """Store the bytes under the name, replacing what stood there.

        It is on disk when this returns; a failure leaves what was there before.
        Any name is allowed but the empty one, and two names are two artifacts.

        Raises:
            BadName: A name is empty.
        """
        ...

    def get(
        self, shelf: Shelf, name: str, *, reader: Reader
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open an artifact for reading in pieces.

        Raises:
            ArtifactMissing, ArtifactForbidden: As they say.
            ArtifactDamaged: At the end, when the digest is another.
        """
        ...

    async def find(self, shelf: Shelf, name: str) -> Artifact | None:
        """Return the artifact, or None when there is none."""
        ...

    async def list(self, shelf: Shelf) -> tuple[Artifact, ...]:
        """Return what stands on a shelf, by name."""
        ...
