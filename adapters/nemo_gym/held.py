# SPDX-License-Identifier: Apache-2.0
"""What a handle of ours holds, and the descriptor by which others reach the same."""

from collections.abc import Mapping
from typing import Final

import attrs

from ...ports.required.sandbox import Sandbox, SandboxAccess
from ...ports.required.sandbox_provider import ClaimLabel
from .gym import GymHandle
from .workshop import Workshop

WORKDIR: Final = "workdir"
PORTS: Final = "ports"
"""NeMo Gym adds both to a descriptor, and reads them again itself."""


@attrs.define(eq=False, kw_only=True)
class Held:
    """What a handle of ours holds: NeMo Gym's `raw`."""

    sandbox: Sandbox
    workshop: Workshop
    """Which gave the sandbox; one that was opened later finds it again."""
    workdir: str
    label: ClaimLabel | None = None
    """None: it is borrowed."""
    access: SandboxAccess | None = None
    """How it was reached, when it is borrowed."""


def held_by(handle: GymHandle) -> Held:
    """Return what a handle of ours holds."""
    assert isinstance(handle.raw, Held), "the handle is of this provider"
    return handle.raw


def to_descriptor(access: SandboxAccess, sandbox_id: str) -> dict[str, object]:
    """Return the access as JSON that NeMo Gym passes on."""
    return {"sandbox_id": sandbox_id, **access.descriptor, WORKDIR: access.workdir}


def to_access(descriptor: Mapping[str, object], *, block: str) -> SandboxAccess:
    """Return the access that a descriptor tells, of the provider's block here."""
    return SandboxAccess(
        provider=block,
        descriptor={
            key: str(value)
            for key, value in descriptor.items()
            if key not in (WORKDIR, PORTS) and value is not None
        },
        workdir=str(descriptor.get(WORKDIR) or "/"),
    )
