# SPDX-License-Identifier: Apache-2.0
"""What NeMo Gym's sandbox layer hands to a provider and wants from it.

Its classes are loaded when a provider is made, which NeMo Gym alone does; nothing of
it is imported before. What is written here is what providers of ours touch, as it
has been since 0.4.0; what came later is told where it is used.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import attrs

from ...ports.required.faults import Fault

MODULE = "nemo_gym.sandbox.providers.base"
RUNTIME_RETURN_CODE = 125
"""The return code of what was no command's end; `error_type` says what it was."""
TIMEOUT = "timeout"
SANDBOX = "sandbox"


class GymResources(Protocol):
    """What a spec asks for; None where it asks for nothing."""

    cpu: float | None
    memory_mib: int | None
    disk_gib: int | None
    gpu: int | None
    gpu_type: str | None


class GymSpec(Protocol):
    """NeMo Gym's wish for a sandbox."""

    image: str | None
    ttl_s: float | None
    ready_timeout_s: float | None
    workdir: str | None
    env: Mapping[str, str]
    metadata: Mapping[str, str]
    resources: GymResources
    entrypoint: Sequence[str] | None
    provider_options: Mapping[str, object]


class GymHandle(Protocol):
    """NeMo Gym's name for a sandbox; `raw` is the provider's own."""

    sandbox_id: str
    provider_name: str
    raw: object


class GymResult(Protocol):
    """How a command ended."""

    stdout: str | None
    stderr: str | None
    return_code: int
    error_type: str | None


@attrs.frozen
class NemoGymMissing(Fault):
    """The sandbox layer of NeMo Gym cannot be imported."""

    kind: ClassVar[str] = "nemo_gym_missing"
    message: ClassVar[str] = (
        "The sandbox layer of NeMo Gym cannot be imported ({reason}): this provider is"
        " for NeMo Gym 0.4.0 or newer, installed beside 'livery[nemo-gym]'."
    )

    reason: str


@attrs.frozen(kw_only=True)
class Gym:
    """NeMo Gym's own classes, loaded."""

    handle: Callable[..., GymHandle]
    result: Callable[..., GymResult]
    create_error: Callable[[str], Exception]
    verification_error: Callable[[str], Exception]
    status: Callable[[str], object]
    endpoint: Callable[..., object] | None
    """From 0.6.0 on."""


def load_gym() -> Gym:
    """Load the classes.

    Raises:
        NemoGymMissing: It is not there, or older than its sandbox layer.
    """
    try:
        # Any: a library that is not installed where types are checked.
        module: Any = importlib.import_module(MODULE)
    except ImportError as error:
        raise NemoGymMissing(str(error)) from error
    return Gym(
        handle=module.SandboxHandle,
        result=module.SandboxExecResult,
        create_error=module.SandboxCreateError,
        verification_error=module.SandboxCreateVerificationError,
        status=module.SandboxStatus,
        endpoint=getattr(module, "SandboxEndpoint", None),
    )
