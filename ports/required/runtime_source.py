# SPDX-License-Identifier: Apache-2.0
"""Where the programs come from that harnesses need in a sandbox."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol

from attrs import frozen

from ...domain.runtimes import Platform, Runtime
from .faults import Fault


@frozen
class RuntimeUnavailable(Fault):
    """The program cannot be had, or is not what it claims to be."""

    kind: ClassVar[str] = "runtime_unavailable"
    message: ClassVar[str] = "{name} {version} for {platform} cannot be had: {reason}."

    name: str
    version: str
    platform: str
    reason: str


class RuntimeSource(Protocol):
    """A verified program on the host, from a registry, a path or the sandbox."""

    async def obtain(self, name: str, version: str, platform: Platform) -> Runtime:
        """Return the program's identity once its file is here and verified.

        Raises:
            RuntimeUnavailable: It is not to be had, or its digest is another.
        """
        ...

    def open(
        self, runtime: Runtime
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the verified file for reading in pieces."""
        ...
