# SPDX-License-Identifier: Apache-2.0
"""`RuntimeSource` over one file of this host, for one that reaches no registry.

The file is whoever's it is; the digest that was configured says what it must hold.
It is packed once, into the cache, when it is first sent anywhere.
"""

import hashlib
import os
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread
import attrs

from ...domain.runtimes import Platform, Runtime
from ...ports.required.runtime_source import (
    PackedBytes,
    PackedRuntime,
    Packing,
    RuntimeUnavailable,
)
from ..runtime_cache import (
    Digests,
    Entry,
    FileUntrusted,
    Record,
    RuntimeCache,
    check_packed,
    open_packed,
)

PIECE_BYTES: Final = 4 * 1024 * 1024
LEVEL: Final = 1
"""Fast: of a large program, the higher levels save a tenth and take ten times."""
_GZIP_BITS: Final = 31
NAME_DIGITS: Final = 16


@attrs.define(kw_only=True, eq=False)
class LocalRuntimeSource:
    """The file `path`, which must hold what `sha256` tells of."""

    path: Path
    sha256: str
    """Hexadecimal, in either case."""
    cache: RuntimeCache
    digests: Digests = attrs.field(factory=Digests)

    async def obtain(self, name: str, version: str, platform: Platform) -> Runtime:
        """Return the program's identity once the file was verified.

        That it is of this version and for this platform is seen in the sandbox.

        Raises:
            RuntimeUnavailable: It is not there, or its digest is another.
        """
        runtime = Runtime(
            name=name, version=version, platform=platform, sha256=self.sha256.lower()
        )
        await self._check(runtime)
        return runtime

    async def host_path(self, runtime: Runtime) -> str:
        """Return where the file is, verified again if it has changed."""
        await self._check(runtime)
        return str(self.path.absolute())

    async def packed(self, runtime: Runtime) -> PackedRuntime:
        """Tell the form in which it is sent, made when it is first asked for."""
        entry = await self._packed(runtime)
        await check_packed(entry, self.digests)
        return entry.record.as_packed

    @asynccontextmanager
    async def open_packed(self, runtime: Runtime) -> AsyncGenerator[PackedBytes]:
        """Open that form for reading."""
        entry = await self._packed(runtime)
        async with open_packed(entry) as opened:
            yield opened

    async def _check(self, runtime: Runtime) -> None:
        try:
            found = await self.digests.of(self.path, own=False)
        except (FileUntrusted, OSError) as fault:
            raise self._unavailable(runtime, str(fault)) from fault
        if found.sha256 != runtime.sha256:
            reason = (
                f"{self.path} has the sha256 {found.sha256:.12}…, configured is"
                f" {runtime.sha256:.12}…"
            )
            raise self._unavailable(runtime, reason)

    async def _packed(self, runtime: Runtime) -> Entry:
        name = f"local-{runtime.sha256[:NAME_DIGITS]}"
        key = (name, runtime.version, runtime.platform)
        if entry := self.cache.find(*key):
            return entry
        async with self.cache.locked(*key):
            if entry := self.cache.find(*key):
                return entry  # Another was first.
            async with self.cache.made(*key) as making:
                program = self.path.name
                size, packed_size, packed_sha256 = await self._pack(
                    runtime, making.packed(program)
                )
                making.record = Record(
                    name=name,
                    version=runtime.version,
                    platform=runtime.platform,
                    program=program,
                    size=size,
                    sha256=runtime.sha256,
                    packing=Packing.GZIP,
                    packed_size=packed_size,
                    packed_sha256=packed_sha256,
                    holds_program=False,
                    origin="a file of this host",
                )
        made = self.cache.find(*key)
        assert made is not None, "it was made under the lock"
        self.digests.remember(made.packed, packed_sha256)
        return made

    async def _pack(self, runtime: Runtime, path: Path) -> tuple[int, int, str]:
        steps = _packing(self.path, path)
        try:
            while True:
                told = await anyio.to_thread.run_sync(next, steps)
                if told is not None:
                    return told
        except OSError as fault:
            raise self._unavailable(runtime, str(fault)) from fault
        finally:
            steps.close()

    def _unavailable(self, runtime: Runtime, reason: str) -> RuntimeUnavailable:
        return RuntimeUnavailable(
            runtime.name, runtime.version, runtime.platform.word, reason
        )


def _packing(
    source: Path, path: Path
) -> Generator[tuple[int, int, str] | None, None, None]:
    """Write the gzip of `source`, a piece a step; the last tells sizes and sha256."""
    packer = zlib.compressobj(LEVEL, wbits=_GZIP_BITS)
    sha256, size, packed_size = hashlib.sha256(), 0, 0
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with source.open("rb") as file, os.fdopen(os.open(path, flags, 0o600), "wb") as out:
        while piece := file.read(PIECE_BYTES):
            size += len(piece)
            packed = packer.compress(piece)
            sha256.update(packed)
            packed_size += out.write(packed)
            yield None
        packed = packer.flush()
        sha256.update(packed)
        packed_size += out.write(packed)
    yield size, packed_size, sha256.hexdigest()
