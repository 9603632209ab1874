# SPDX-License-Identifier: Apache-2.0
"""Install a runtime: a harness's program stands in the sandbox, verified there.

It is found there (mounted, or installed before), or brought in parts and put
together in the sandbox. What can be known beforehand (platform, C library, room) is
refused before a byte is sent. The rules are those of `domain.runtimes`; where a
runtime stands is read from the sandbox itself, which others may share.
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

import anyio
import attrs

from ...domain.deciders import Instant
from ...domain.platforms import GlibcVersion, Place, check_glibc
from ...domain.runtimes import (
    DECIDER,
    Install,
    Installation,
    Platform,
    Runtime,
    RuntimePhase,
    Stager,
    StagingUnderWay,
    StartStaging,
    Verify,
)
from ..required.clock import Clock
from ..required.harness import Delivery
from ..required.runtime_source import PackedRuntime, RuntimeSource
from ..required.sandbox import Sandbox, SandboxFailed, SandboxLost, TransferCut
from .runtime_calls import (
    NAME,
    Begun,
    Busy,
    Found,
    Identity,
    RuntimeCalls,
    staging_words,
)
from .runtime_faults import RuntimeNotMounted, RuntimeRejected
from .sandbox_programs import SandboxProgram, Words
from .send_parts import PartLanes, send_parts

__all__ = ["Came", "Delivery", "InstallRuntime", "InstalledRuntime", "WantedRuntime"]

ATTEMPTS_MAX: Final = 3
PAUSE_SECONDS: Final = 1.0
STAGING_SECONDS_MAX: Final = 1800.0
"""How long to wait for another that stages."""
ABANDON_SECONDS: Final = 10.0
KNOWN_MAX: Final = 4096
"""How many programs in sandboxes are remembered; older ones are read again."""

T = TypeVar("T")


class Came(StrEnum):
    """How a program came into the sandbox."""

    MOUNTED = "mounted"
    TRANSFERRED = "transferred"
    REUSED = "reused"
    """It was installed there before."""
    STOOD = "stood"
    """It is the sandbox's own."""
    IN_PLACE = "in place"
    """The sandbox sees this host's files, and so this host's copy."""


@attrs.frozen(kw_only=True)
class WantedRuntime:
    """A program that a harness needs."""

    name: str
    version: str
    glibc_least: GlibcVersion | None = None


@attrs.frozen(kw_only=True)
class InstalledRuntime:
    """A verified program, and where it stands in the sandbox."""

    runtime: Runtime
    path: str
    came: Came


@attrs.define(kw_only=True, eq=False)
class InstallRuntime:
    """The use case, one for the whole process."""

    source: RuntimeSource
    program: bytes
    """The worker script."""
    lanes: PartLanes
    clock: Clock
    python: str = "python3"
    pause_seconds: float = PAUSE_SECONDS
    staging_seconds: float = STAGING_SECONDS_MAX
    known_most: int = KNOWN_MAX
    _places: OrderedDict[tuple[str, ...], tuple[Place, str | None]] = attrs.field(
        factory=OrderedDict[tuple[str, ...], tuple[Place, str | None]], init=False
    )
    """What each sandbox is, and the Python that was found in it."""
    _known: OrderedDict[tuple[str, ...], Identity] = attrs.field(
        factory=OrderedDict[tuple[str, ...], Identity], init=False
    )

    async def __call__(
        self,
        sandbox: Sandbox,
        wanted: WantedRuntime,
        *,
        stager: Stager,
        delivery: Delivery = Delivery.AUTO,
        mounted: Mapping[Platform, str] | None = None,
        in_place: bool = False,
    ) -> InstalledRuntime:
        """Return the program in `sandbox`; `mounted` tells where one was mounted.

        `in_place` says that it sees this host's files under their own paths.

        Raises:
            PlatformUnknown, LibcTooOld, RuntimeTooLarge: Before anything was sent.
            RuntimeUnavailable: As the source says.
            RuntimeNotMounted: Nothing else was allowed.
            RuntimeConflict: Another one stands under its name; it was left alone.
            RuntimeRejected: What stands there is another, or does not run.
            StagingUnderWay: Another brings it, and for too long.
            RuntimeMissing: There is no Python in the sandbox.
            Fault: As the methods of `Sandbox` say.
        """
        calls = self._calls(sandbox, wanted)
        place = await self._place(calls)
        check_glibc(place, name=wanted.name, least=wanted.glibc_least)
        runtime = await self.source.obtain(wanted.name, wanted.version, place.platform)
        if delivery is not Delivery.TRANSFER:
            path = (mounted or {}).get(place.platform)
            came = Came.IN_PLACE if in_place else Came.MOUNTED
            if in_place:
                path = await self.source.host_path(runtime)
            if path is not None:
                await self._check(calls, runtime, path)
                return InstalledRuntime(runtime=runtime, path=path, came=came)
        if delivery is Delivery.MOUNT:
            raise RuntimeNotMounted(wanted.name, wanted.version, place.platform.word)
        packed = await self.source.packed(runtime)
        staging = _Staging(
            calls=calls,
            runtime=runtime,
            packed=packed,
            stager=stager,
            words=staging_words(sandbox, runtime, packed, stager=stager),
        )
        return await self._brought(staging)

    async def check_standing(
        self, sandbox: Sandbox, wanted: WantedRuntime, *, path: str, sha256: str
    ) -> InstalledRuntime:
        """Return the program that is the sandbox's own, verified there.

        Raises:
            RuntimeRejected: It is another, or does not run.
            PlatformUnknown, LibcTooOld, RuntimeMissing: As they say.
            Fault: As the methods of `Sandbox` say.
        """
        calls = self._calls(sandbox, wanted)
        place = await self._place(calls)
        check_glibc(place, name=wanted.name, least=wanted.glibc_least)
        runtime = Runtime(
            name=wanted.name,
            version=wanted.version,
            platform=place.platform,
            sha256=sha256.lower(),
        )
        await self._check(calls, runtime, path)
        return InstalledRuntime(runtime=runtime, path=path, came=Came.STOOD)

    async def _place(self, calls: RuntimeCalls) -> Place:
        """Return what the sandbox is; it does not change while it lives."""
        key = _of(calls.hands.sandbox)
        if (known := self._places.get(key)) is None:
            known = (await calls.look(), calls.hands.found)
            self._keep(self._places, key, known)
        return known[0]

    def _calls(self, sandbox: Sandbox, wanted: WantedRuntime) -> RuntimeCalls:
        _, python = self._places.get(_of(sandbox), (None, None))
        hands = SandboxProgram(
            sandbox=sandbox,
            name=NAME,
            text=self.program,
            python=self.python,
            found=python,
        )
        return RuntimeCalls(hands=hands, name=wanted.name, version=wanted.version)

    async def _check(self, calls: RuntimeCalls, runtime: Runtime, path: str) -> None:
        key = _key(calls.hands.sandbox, path, runtime)
        found = await calls.check(path, runtime.sha256, self._known.get(key))
        _check_found(found, runtime)
        self._keep(self._known, key, found.identity)

    async def _brought(self, staging: "_Staging") -> InstalledRuntime:
        """Bring it; what was cut off is gone on with."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                if installed := await self._brought_once(staging):
                    return installed
            except (SandboxFailed, TransferCut):
                if attempt == ATTEMPTS_MAX:
                    raise
            await anyio.sleep(self.pause_seconds)
        raise StagingUnderWay(None)

    async def _brought_once(self, staging: "_Staging") -> InstalledRuntime | None:
        """Bring it; None when another took over meanwhile."""
        begun = await self._begun(staging)
        if isinstance(begun, Found):
            return self._installed(staging, begun.path, begun.identity, Came.REUSED)
        try:
            return await self._staged(staging, begun)
        except (SandboxFailed, TransferCut):
            await _given_up(staging, keeps_parts=True)
            raise
        except SandboxLost:
            raise
        except BaseException:
            await _given_up(staging, keeps_parts=False)
            raise

    async def _begun(self, staging: "_Staging") -> Begun | Found:
        """Become the stager, or find it installed, waiting for whoever stages."""
        runtime = staging.runtime
        command = StartStaging(runtime=runtime, stager=staging.stager, at=self._now())
        until = anyio.current_time() + self.staging_seconds
        while True:
            known = self._known.get(staging.key)
            answer = await staging.calls.begin(staging.words, known)
            try:
                _, installation = DECIDER.decide_all(
                    _as_told(answer, runtime), (command,)
                )
            except StagingUnderWay:
                if anyio.current_time() > until:
                    raise
                continue  # The script has waited.
            if isinstance(answer, Found):
                assert installation.phase is RuntimePhase.INSTALLED
                _check_found(answer, runtime)
                return answer
            assert isinstance(answer, Begun), "who is busy is waited for"
            return answer

    async def _staged(
        self, staging: "_Staging", begun: Begun
    ) -> InstalledRuntime | None:
        calls, runtime, stager = staging.calls, staging.runtime, staging.stager
        found = await self._sent_and_unpacked(staging, begun)
        if found is None:
            return None
        sha256, version = found
        start = StartStaging(runtime=runtime, stager=stager, at=self._now())
        verify = Verify(stager=stager, sha256=sha256, version=version, at=self._now())
        _, verified = DECIDER.decide_all(DECIDER.initial, (start, verify))
        if verified.phase is not RuntimePhase.VERIFIED:
            path = staging.packed.program
            raise RuntimeRejected(runtime.name, runtime.version, path, verified.reason)
        placed = await calls.install(staging.words)
        if placed is None:
            return None
        path, identity = placed
        install = Install(stager=stager, path=path, at=self._now())
        _, installation = DECIDER.decide_all(verified, (install,))
        assert installation.path == path
        return self._installed(staging, path, identity, Came.TRANSFERRED)

    async def _sent_and_unpacked(
        self, staging: "_Staging", begun: Begun
    ) -> tuple[str, str] | None:
        """Send what is missing, while the sandbox puts together what is there."""
        found: tuple[str, str] | None = None
        fault: Exception | None = None

        async def unpack() -> None:
            nonlocal found, fault
            try:
                found = await staging.calls.unpack(staging.words)
            except Exception as broken:  # Told alone, once both have stopped.
                fault = fault or broken
            if found is None:
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(unpack)
            try:
                async with self.source.open_packed(staging.runtime) as opened:
                    await send_parts(
                        staging.calls.hands.sandbox,
                        opened,
                        folder=begun.folder,
                        packed_size=staging.packed.packed_size,
                        present=begun.present,
                        lanes=self.lanes,
                    )
            except Exception as broken:
                fault = fault or broken
                tasks.cancel_scope.cancel()
        if fault is not None:
            raise fault
        return found

    def _installed(
        self, staging: "_Staging", path: str, identity: Identity, came: Came
    ) -> InstalledRuntime:
        self._keep(self._known, staging.key, identity)
        return InstalledRuntime(runtime=staging.runtime, path=path, came=came)

    def _keep(
        self, known: OrderedDict[tuple[str, ...], T], key: tuple[str, ...], fact: T
    ) -> None:
        known[key] = fact
        known.move_to_end(key)
        while len(known) > self.known_most:
            known.popitem(last=False)

    def _now(self) -> Instant:
        return self.clock.now()


@attrs.frozen(kw_only=True)
class _Staging:
    """What one call brings."""

    calls: RuntimeCalls
    runtime: Runtime
    packed: PackedRuntime
    stager: Stager
    words: Words

    @property
    def key(self) -> tuple[str, ...]:
        return _key(self.calls.hands.sandbox, "", self.runtime)


def _as_told(answer: Found | Begun | Busy, runtime: Runtime) -> Installation:
    """Return where the runtime stands, by what the sandbox tells."""
    match answer:
        case Begun():
            return DECIDER.initial
        case Busy(stager=stager):
            return Installation(
                phase=RuntimePhase.STAGING, runtime=runtime, stager=stager
            )
        case Found(path=path, sha256=sha256):
            standing = (
                runtime if sha256 is None else attrs.evolve(runtime, sha256=sha256)
            )
            return Installation(
                phase=RuntimePhase.INSTALLED, runtime=standing, path=path
            )


def _check_found(found: Found, runtime: Runtime) -> None:
    """Check that what stands there is the runtime.

    Raises:
        RuntimeRejected: It is another.
    """
    if found.sha256 is None:
        return  # It is the one that was verified before.
    reason = ""
    if found.sha256 != runtime.sha256:
        reason = f"its sha256 is {found.sha256:.12}…, wanted is {runtime.sha256:.12}…"
    elif not runtime.is_version(found.version):
        reason = f"it says that it is version {found.version!r}"
    if reason:
        raise RuntimeRejected(runtime.name, runtime.version, found.path, reason)


def _of(sandbox: Sandbox) -> tuple[str, ...]:
    return (sandbox.access().provider, sandbox.sandbox_id)


def _key(sandbox: Sandbox, path: str, runtime: Runtime) -> tuple[str, ...]:
    return (*_of(sandbox), path, runtime.sha256, runtime.version)


async def _given_up(staging: _Staging, *, keeps_parts: bool) -> None:
    """Stage no more, as far as the sandbox still answers."""
    with anyio.move_on_after(ABANDON_SECONDS, shield=True):
        try:
            await staging.calls.abandon(staging.words, keeps_parts=keeps_parts)
        except (SandboxFailed, SandboxLost):
            return  # What made us give up is told, not this.
