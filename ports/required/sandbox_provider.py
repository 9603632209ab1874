# SPDX-License-Identifier: Apache-2.0
"""What makes sandboxes, finds them again, and ends them.

A sandbox is named by the claim that it is made for, on every provider (name,
label or metadata). So a create whose reply was lost is found again, the same
create twice gives one sandbox, and the reaper sees whose it is.

What a provider cannot do is data (`Capabilities`), asked before work starts.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from typing import ClassVar, Protocol

import attrs

from ...domain.claims import ClaimId, OwnerId
from .faults import Fault
from .sandbox import Sandbox, SandboxAccess, SandboxId


class Capability(StrEnum):
    """Something that a spec may ask for and not every provider can do."""

    ISOLATION = "isolation"
    """Commands cannot reach the host's files and processes."""
    IMAGES = "images"
    NETWORK_NONE = "network none"
    NETWORK_LISTED = "network listed"
    RESOURCE_LIMITS = "resource limits"
    MOUNTS = "mounts"
    HOST_FILES = "files of this host"
    """What is mounted is of this host, since the provider works on it."""
    PORTS = "published ports"
    ENTRYPOINT = "own entry point"
    USERS = "users"
    EXPIRY = "expiry without us"
    LENDING = "lending"
    FREEZING = "freezing"


Capabilities = frozenset[Capability]


class Network(StrEnum):
    """What a sandbox reaches: nothing, what is listed, or what the provider gives."""

    NONE = "none"
    LISTED = "listed"
    """What `SandboxSpec.reachable` names, and nothing else."""
    DEFAULT = "default"


def narrower(one: Network, other: Network) -> Network:
    """Return which of the two lets less out."""
    return next(network for network in Network if network in (one, other))


@attrs.frozen(kw_only=True)
class Mount:
    """A file or folder of the host, seen inside under `target`."""

    source: str
    target: str
    read_only: bool = True


@attrs.frozen(kw_only=True)
class SandboxSpec:
    """What kind of sandbox is wanted. All times are in seconds."""

    image: str | None = None
    workdir: str = "/workspace"
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    user: str | None = None
    """Whom commands run as: name, `uid` or `uid:gid`; the image's own when None."""
    cpus: float | None = None
    memory_mib: int | None = None
    processes_max: int | None = None
    network: Network = Network.DEFAULT
    reachable: tuple[str, ...] = ()
    """With `Network.LISTED`: host names, `*.` and a name for all below it, addresses."""
    mounts: tuple[Mount, ...] = ()
    ports: tuple[int, ...] = ()
    """Ports of the sandbox that this host must reach."""
    metadata: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Labels of the user's own; `livery.` is ours and refused."""
    entrypoint: tuple[str, ...] | None = None
    """Replaces what keeps the sandbox alive; None: the provider's own way."""
    lifetime_seconds: float = 3600.0
    """Absolute: the sandbox ends itself this long after it was made ready."""
    create_timeout_seconds: float = 120.0
    """How long making it may take, the pulling of an image not counted."""
    pull_timeout_seconds: float = 1800.0
    ready_timeout_seconds: float = 60.0
    """How long the made sandbox may take to answer its first command."""
    provider_options: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """Words that this provider alone knows; an unknown one is refused."""


@attrs.frozen(kw_only=True)
class ClaimLabel:
    """What every sandbox of ours carries: the claim and whose claim it is."""

    claim: ClaimId
    owner: OwnerId


@attrs.frozen(kw_only=True)
class ListedSandbox:
    """A sandbox that carries an owner's label, whatever its state."""

    label: ClaimLabel
    sandbox_id: SandboxId
    expires_at: float | None = None
    """Unix seconds."""
    state: str = ""
    """The provider's own word."""


@attrs.frozen
class Unsupported(Fault):
    """The spec asks for what the provider cannot do."""

    kind: ClassVar[str] = "unsupported"
    message: ClassVar[str] = (
        "Provider {provider} cannot do {capability}: {detail}."
        " Leave it out, or choose a provider that can."
    )

    provider: str
    capability: str
    detail: str


@attrs.frozen
class SpecRefused(Fault):
    """The spec is not one that the provider can read."""

    kind: ClassVar[str] = "spec_refused"
    message: ClassVar[str] = "Provider {provider} refuses {field}: {reason}."

    provider: str
    field: str
    reason: str


@attrs.frozen
class ImageMissing(Fault):
    """There is no such image here, and it could not be pulled."""

    kind: ClassVar[str] = "image_missing"
    message: ClassVar[str] = (
        "Provider {provider} has no image {image!r}: {reason}."
        " Build or import it there, or name another."
    )

    provider: str
    image: str
    reason: str


@attrs.frozen
class ProviderUnreachable(Fault):
    """Nobody answers where the provider should be."""

    kind: ClassVar[str] = "provider_unreachable"
    message: ClassVar[str] = (
        "Provider {provider} does not answer at {address}: {reason}."
        " Start it, or correct the address; `livery check` looks again."
    )
    can_retry: ClassVar[bool] = True

    provider: str
    address: str
    reason: str


@attrs.frozen
class ProviderForbidden(Fault):
    """The provider is there and does not let us in."""

    kind: ClassVar[str] = "provider_forbidden"
    message: ClassVar[str] = (
        "Provider {provider} at {address} does not allow this: {reason}."
        " Give this user access (for Docker: its group), or other credentials."
    )

    provider: str
    address: str
    reason: str


@attrs.frozen
class CapacityExhausted(Fault):
    """The provider says that it is full; `quota` is its own word."""

    kind: ClassVar[str] = "capacity_exhausted"
    message: ClassVar[str] = "Provider {provider} has no room: {quota}."
    can_retry: ClassVar[bool] = True

    provider: str
    quota: str


@attrs.frozen
class CreateFailed(Fault):
    """The sandbox could not be made, and what was made of it was undone."""

    kind: ClassVar[str] = "create_failed"
    message: ClassVar[str] = (
        "Provider {provider} could not make the sandbox of claim {claim}"
        " ({step}): {reason}."
    )
    can_retry: ClassVar[bool] = True

    provider: str
    claim: str
    step: str
    """`create`, `pull` or `ready`, or the provider's own word for the step."""
    reason: str


@attrs.frozen
class ClaimTaken(Fault):
    """The name is taken: by another owner's sandbox, or by another spec."""

    kind: ClassVar[str] = "claim_taken"
    message: ClassVar[str] = (
        "Provider {provider} already has a sandbox named for claim {claim}: {reason}."
        " It was left alone."
    )

    provider: str
    claim: str
    reason: str


@attrs.frozen
class DestroyFailed(Fault):
    """The sandbox is not seen gone; the claim stays open for the reaper."""

    kind: ClassVar[str] = "destroy_failed"
    message: ClassVar[str] = (
        "Provider {provider} has not ended the sandbox of claim {claim}: {reason}."
        " `livery claims reap` tries again."
    )
    can_retry: ClassVar[bool] = True

    provider: str
    claim: str
    reason: str


@attrs.frozen(kw_only=True)
class ProviderTerms:
    """What is known of a provider, as configured, before anybody asks it anything."""

    capabilities: Capabilities
    check: Callable[[SandboxSpec], None]
    """Raises `Unsupported` or `SpecRefused` as `create` would, and makes nothing."""


class SandboxProvider(Protocol):
    """A place that makes sandboxes.

    Every method may raise `ProviderUnreachable` and `ProviderForbidden`.
    """

    @property
    def name(self) -> str:
        """The short word for the provider in configuration and messages."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this provider, as configured, can do."""
        ...

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> Sandbox:
        """Make the sandbox of a claim, or return the one that it has.

        It returns when commands and files work. A failure or a cancellation
        undoes what was made, in reverse order, before it is raised.

        Raises:
            Unsupported, SpecRefused, ImageMissing: Nothing was made.
            CapacityExhausted, CreateFailed: What was made was undone.
            ClaimTaken: Another spec or another owner has the name.
        """
        ...

    async def find(self, label: ClaimLabel) -> Sandbox | None:
        """Return the live sandbox of a claim, or None when there was seen to be none."""
        ...

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell which sandbox an access leads to: one id, however it is spelled there.

        Nothing is done in the sandbox. What is not there is told as it is spelled;
        `connect` says that it is lost.

        Raises:
            SpecRefused: The descriptor is not one of this provider's.
            Unsupported: This provider cannot lend.
        """
        ...

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId) -> Sandbox:
        """Reach a sandbox that another lent; its health is checked.

        Raises:
            SandboxLost: It does not exist or does not run.
            SpecRefused: The descriptor is not one of this provider's.
            Unsupported: This provider cannot lend.
        """
        ...

    def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every sandbox with the owner's label, the ended ones included."""
        ...

    async def destroy(self, label: ClaimLabel) -> None:
        """End the sandbox of a claim, with all that belongs to it, until seen gone.

        One that is gone already is a success.

        Raises:
            DestroyFailed: It is still there.
            ClaimTaken: What has the name is not the owner's.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections; sandboxes go on."""
        ...


class FreezingProvider(Protocol):
    """The extra ability `Capability.FREEZING`."""

    async def freeze(self, label: ClaimLabel) -> None:
        """Stop every process of the sandbox where it stands."""
        ...

    async def thaw(self, label: ClaimLabel) -> None:
        """Let the processes go on."""
        ...
