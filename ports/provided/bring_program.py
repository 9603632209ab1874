# SPDX-License-Identifier: Apache-2.0
"""Bring a program: what a harness needs stands in its sandbox, in the way it may come.

What is mounted is chosen by the need and the provider alone, never by what happens to
be in a cache: a sandbox that is asked for again after a restart is asked for the same.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.platforms import GLIBC, MUSL
from ...domain.runtimes import Platform, Stager, version_by_digest
from ..required.harness import Delivery, RuntimeNeed
from ..required.sandbox import Sandbox
from ..required.sandbox_provider import Capabilities, Capability
from .install_runtime import InstalledRuntime, InstallRuntime, WantedRuntime
from .mount_runtime import MountedRuntime, mount_runtime

_MOUNTABLE: Final = frozenset({Capability.MOUNTS, Capability.HOST_FILES})


@attrs.frozen(kw_only=True)
class BringProgram:
    """The use case, for one need."""

    need: RuntimeNeed
    install: InstallRuntime
    machine: str
    """This host's, which sandboxes beside it share."""

    async def mounts(self, capabilities: Capabilities) -> tuple[MountedRuntime, ...]:
        """Return what a new sandbox of such a provider shall see, if anything.

        Raises:
            RuntimeUnavailable: It is not to be had.
        """
        need = self.need
        if need.sandbox_path is not None or need.delivery is Delivery.TRANSFER:
            return ()
        if not capabilities >= _MOUNTABLE:
            return ()
        # A second download is for who insists; else the rare image is sent its own.
        libcs = (GLIBC, MUSL) if need.delivery is Delivery.MOUNT else (GLIBC,)
        platforms = [
            Platform(system="linux", machine=self.machine, libc=libc) for libc in libcs
        ]
        return await mount_runtime(self.install.source, _wanted(need), platforms)

    async def __call__(
        self,
        sandbox: Sandbox,
        *,
        stager: Stager,
        mounted: Mapping[Platform, str],
        in_place: bool,
    ) -> InstalledRuntime:
        """Return the program in the sandbox, verified there.

        Raises:
            Refusal, Fault: As `InstallRuntime` says.
        """
        need, wanted = self.need, _wanted(self.need)
        if need.sandbox_path is not None:
            assert need.sha256 is not None, "a path comes with its digest"
            return await self.install.check_standing(
                sandbox, wanted, path=need.sandbox_path, sha256=need.sha256
            )
        return await self.install(
            sandbox,
            wanted,
            stager=stager,
            delivery=need.delivery,
            mounted=mounted,
            in_place=in_place,
        )


def _wanted(need: RuntimeNeed) -> WantedRuntime:
    version = need.version
    if version is None:
        assert need.sha256 is not None, "what has no version has a digest"
        version = version_by_digest(need.sha256)
    return WantedRuntime(name=need.name, version=version, glibc_least=need.glibc_least)
