# SPDX-License-Identifier: Apache-2.0
"""How bringing a program into a sandbox fails, beside what its source and port tell."""

from typing import ClassVar

import attrs

from ..required.faults import Fault


@attrs.frozen
class RuntimeRejected(Fault):
    """What stands in the sandbox is not the program, or does not run there."""

    kind: ClassVar[str] = "runtime_rejected"
    message: ClassVar[str] = (
        "{name} {version} cannot be used at {path} in the sandbox: {reason}."
    )

    name: str
    version: str
    path: str
    reason: str


@attrs.frozen
class RuntimeTooLarge(Fault):
    """The sandbox's disk has no room for the program."""

    kind: ClassVar[str] = "runtime_too_large"
    message: ClassVar[str] = (
        "{name} {version} does not fit into the sandbox at {path}: {reason}."
        " Give it more disk, or let the program be mounted."
    )

    name: str
    version: str
    path: str
    reason: str


@attrs.frozen
class RuntimeNotMounted(Fault):
    """Only a mounted program was allowed, and none is mounted for this sandbox."""

    kind: ClassVar[str] = "runtime_not_mounted"
    message: ClassVar[str] = (
        "{name} {version} for {platform} is not mounted in the sandbox, and"
        ' runtime_delivery is "mount". Use "auto" or "transfer".'
    )

    name: str
    version: str
    platform: str
