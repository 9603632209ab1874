# SPDX-License-Identifier: Apache-2.0
"""`RuntimeSource` over a registry and the cache.

A program is fetched once, whoever asks: tasks of this process share one attempt and
its failure, processes take turns at a lock. A failure can be tried again.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import attrs

from ...domain.runtimes import Platform, Runtime
from ...ports.required.runtime_source import (
    PackedBytes,
    PackedRuntime,
    Packing,
    RuntimeUnavailable,
)
from ..http_client import HttpClient, HttpFailed, Patience, open_http_client
from ..runtime_cache import (
    PROGRAM_MODE,
    Digests,
    Entry,
    Record,
    RuntimeCache,
    check_packed,
    check_program,
    open_packed,
)
from .downloads import PAUSE_SECONDS, download
from .npm_settings import NpmSettings, read_npm_settings
from .packages import (
    PACKAGES,
    Bounds,
    Package,
    Published,
    Unusable,
    addresses,
    document_path,
    read_document,
)
from .unpacking import unpack

Settings = Callable[[str], NpmSettings]
"""Gives the settings for a scope; read when something is fetched, not before."""


@attrs.define(eq=False)
class _Attempt:
    """The fetching of one program; `number` counts the attempts that ended."""

    turn: anyio.Lock = attrs.field(factory=anyio.Lock)
    number: int = 0
    failed: RuntimeUnavailable | None = None


@attrs.define(kw_only=True, eq=False)
class NpmRegistryRuntimeSource:
    """Programs of `packages`, from the registry that `settings` name."""

    cache: RuntimeCache
    settings: Settings
    packages: Mapping[str, Package] = PACKAGES
    digests: Digests = attrs.field(factory=Digests)
    bounds: Bounds = attrs.field(factory=Bounds)
    pause_seconds: float = PAUSE_SECONDS
    _attempts: dict[tuple[str, str, Platform], _Attempt] = attrs.field(
        factory=dict[tuple[str, str, Platform], _Attempt], init=False
    )

    async def obtain(self, name: str, version: str, platform: Platform) -> Runtime:
        """Return the program's identity once its file is here and verified.

        Raises:
            RuntimeUnavailable: It is not to be had, or its digest is another.
            RuntimeCacheUnusable, RegistryUnknown: As they say.
        """
        entry = self.cache.find(name, version, platform)
        if entry is None:
            entry = await self._fetched(name, version, platform)
        await check_program(entry, self.digests)
        return entry.record.runtime

    async def host_path(self, runtime: Runtime) -> str:
        """Return where the file is on this host, verified again if it has changed."""
        entry = self._entry(runtime)
        await check_program(entry, self.digests)
        return str(entry.program)

    async def packed(self, runtime: Runtime) -> PackedRuntime:
        """Tell the form in which it is sent: the registry's own tarball."""
        entry = self._entry(runtime)
        await check_packed(entry, self.digests)
        return entry.record.as_packed

    @asynccontextmanager
    async def open_packed(self, runtime: Runtime) -> AsyncGenerator[PackedBytes]:
        """Open that form for reading."""
        async with open_packed(self._entry(runtime)) as opened:
            yield opened

    def _entry(self, runtime: Runtime) -> Entry:
        entry = self.cache.find(runtime.name, runtime.version, runtime.platform)
        if entry is None or entry.record.sha256 != runtime.sha256:
            reason = "it is no longer in the cache"
            raise _unavailable(runtime.name, runtime.version, runtime.platform, reason)
        return entry

    async def _fetched(self, name: str, version: str, platform: Platform) -> Entry:
        key = (name, version, platform)
        attempt = self._attempts.setdefault(key, _Attempt())
        before = attempt.number
        async with attempt.turn:
            if attempt.number > before and attempt.failed is not None:
                raise attrs.evolve(attempt.failed)  # We waited for that attempt.
            attempt.failed = None
            try:
                return await self._fetched_once(name, version, platform)
            except Unusable as fault:
                attempt.failed = _unavailable(name, version, platform, fault.reason)
                raise attrs.evolve(attempt.failed) from fault
            finally:
                attempt.number += 1
                if attempt.turn.statistics().tasks_waiting == 0:
                    self._attempts.pop(key, None)

    async def _fetched_once(self, name: str, version: str, platform: Platform) -> Entry:
        package = self.packages.get(name)
        if package is None:
            raise Unusable("no package is known that holds it")
        package_name = package.name_for(platform)
        document = document_path(package_name, version)
        async with self.cache.locked(name, version, platform):
            if found := self.cache.find(name, version, platform):
                return found  # Another process was first.
            settings = await anyio.to_thread.run_sync(self.settings, package.scope)
            async with open_http_client(
                settings.registry,
                trust=settings.trust(),
                patience=Patience(pause_seconds=self.pause_seconds),
            ) as client:
                published = await self._published(
                    client, document, package_name, version
                )
                async with self.cache.made(name, version, platform) as making:
                    packed = making.packed(package.program)
                    program = making.program(package.program)
                    tarball = await download(
                        client,
                        addresses(published.tarball, registry=settings.registry),
                        published.sha512,
                        packed,
                        bytes_max=self.bounds.tarball_bytes,
                        pause_seconds=self.pause_seconds,
                    )
                    unpacked = await unpack(
                        packed,
                        package.member,
                        program,
                        mode=PROGRAM_MODE,
                        bytes_max=self.bounds.program_bytes,
                    )
                    making.record = Record(
                        name=name,
                        version=version,
                        platform=platform,
                        program=package.program,
                        size=unpacked.size,
                        sha256=unpacked.sha256,
                        packing=Packing.GZIP,
                        packed_size=tarball.size,
                        packed_sha256=tarball.sha256,
                        offset=unpacked.offset,
                        origin=f"{package_name}@{version}",
                        integrity=published.integrity,
                    )
        made = self.cache.find(name, version, platform)
        assert made is not None, "it was made under the lock"
        # What was read while it was written need not be read again.
        self.digests.remember(made.program, unpacked.sha256)
        self.digests.remember(made.packed, tarball.sha256)
        return made

    async def _published(
        self, client: HttpClient, document: str, package: str, version: str
    ) -> Published:
        try:
            answer = await client.request("GET", document, repeatable=True)
        except HttpFailed as fault:
            raise Unusable(f"the registry does not answer ({fault.reason})") from fault
        if answer.status_code == 404:
            raise Unusable("the registry has no such version")
        if answer.status_code != 200:
            raise Unusable(f"the registry answered {answer.status_code}")
        if len(answer.content) > self.bounds.document_bytes:
            raise Unusable("the registry's answer is too long")
        return read_document(answer.content, package=package, version=version)


def _unavailable(
    name: str, version: str, platform: Platform, reason: str
) -> RuntimeUnavailable:
    return RuntimeUnavailable(name, version, platform.word, reason)


def open_npm_registry(
    cache: RuntimeCache, *, environ: Mapping[str, str] = os.environ
) -> NpmRegistryRuntimeSource:
    """Return the source over the registry that npm is configured for here."""
    return NpmRegistryRuntimeSource(
        cache=cache,
        settings=lambda scope: read_npm_settings(scope, environ=environ),
    )
