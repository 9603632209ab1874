# SPDX-License-Identifier: Apache-2.0
"""Mount a runtime: where the daemon is on this host, no byte of it need move.

What the sandbox's image has (its C library) is known only once it runs. So the
programs for the platforms that it may be are mounted side by side, each under a path
of its own, and the installer takes the one that fits, or brings another.
"""

import posixpath
from collections.abc import Iterable
from typing import Final

import attrs

from ...domain.runtimes import Platform
from ..required.runtime_source import RuntimeSource
from ..required.sandbox_provider import Mount
from .install_runtime import WantedRuntime

FOLDER: Final = "/opt/runtimes"


@attrs.frozen(kw_only=True)
class MountedRuntime:
    """A program of this host that a sandbox shall see, read-only."""

    platform: Platform
    mount: Mount


async def mount_runtime(
    source: RuntimeSource, wanted: WantedRuntime, platforms: Iterable[Platform]
) -> tuple[MountedRuntime, ...]:
    """Return what is to be mounted when the sandbox is made, verified on this host.

    Raises:
        RuntimeUnavailable: One is not to be had.
    """
    found: list[MountedRuntime] = []
    for platform in platforms:
        runtime = await source.obtain(wanted.name, wanted.version, platform)
        path = await source.host_path(runtime)
        folder = f"{FOLDER}/{wanted.name}-{wanted.version}-{platform.word}"
        target = posixpath.join(folder, posixpath.basename(path))
        mount = Mount(source=path, target=target, read_only=True)
        found.append(MountedRuntime(platform=platform, mount=mount))
    return tuple(found)
