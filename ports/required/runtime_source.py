# SPDX-License-Identifier: Apache-2.0
"""Where the programs come from that harnesses need in a sandbox.

What a source hands out was verified on this host. It is sent packed, and packed at
most once, whatever the number of sandboxes.
"""

from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import ClassVar, Protocol

import attrs

from ...domain.runtimes import Platform, Runtime
from .faults import Fault


@attrs.frozen
class RuntimeUnavailable(Fault):
    """The program cannot be had, or is not what it claims to be."""

    kind: ClassVar[str] = "runtime_unavailable"
    message: ClassVar[str] = "{name} {version} for {platform} cannot be had: {reason}."

    name: str
    version: str
    platform: str
    reason: str


class Packing(StrEnum):
    """How a program is packed for its way into a sandbox."""

    GZIP = "gzip"
    """What every Python unpacks."""


@attrs.frozen(kw_only=True)
class PackedRuntime:
    """The one form in which a source sends a program."""

    program: str
    """The file's own name, "claude"."""
    size: int
    """Of the program itself, in bytes."""
    packing: Packing
    packed_size: int
    packed_sha256: str
    offset: int = 0
    """Where the program begins in what is unpacked: the rest belongs to an archive."""


class PackedBytes(Protocol):
    """The packed form, open."""

    async def piece(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on; fewer at the end alone."""
        ...


class RuntimeSource(Protocol):
    """Verified programs on the host, from a registry or a path."""

    async def obtain(self, name: str, version: str, platform: Platform) -> Runtime:
        """Return the program's identity once its file is here and verified.

        Raises:
            RuntimeUnavailable: It is not to be had, or its digest is another.
        """
        ...

    async def host_path(self, runtime: Runtime) -> str:
        """Return where the file is on this host, verified again if it has changed.

        Raises:
            RuntimeUnavailable: It is gone, or is another file by now.
        """
        ...

    async def packed(self, runtime: Runtime) -> PackedRuntime:
        """Tell the form in which it is sent, made when it is first asked for.

        Raises:
            RuntimeUnavailable: It is gone, or is another file by now.
        """
        ...

    def open_packed(self, runtime: Runtime) -> AbstractAsyncContextManager[PackedBytes]:
        """Open that form for reading."""
        ...
