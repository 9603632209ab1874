# SPDX-License-Identifier: Apache-2.0
"""What the local provider accepts of a spec, and what it says no to, by name."""

import math
import re
from functools import partial

import attrs

from ...domain.digests import Json, digest_of
from ...ports.required.sandbox_provider import (
    Capabilities,
    Capability,
    Network,
    ProviderTerms,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

CAPABILITIES: Capabilities = frozenset({Capability.LENDING})
"""No isolation. Expiry is kept while a provider is open, not without us."""
RESERVED = "livery."
LIFETIME_SECONDS_MAX = 10 * 365 * 86400.0
_VARIABLE = re.compile(r"[^=\0]+")
_WAITS = ("create_timeout_seconds", "pull_timeout_seconds", "ready_timeout_seconds")


def check_spec(provider: str, spec: SandboxSpec) -> None:
    """Raise what `spec` asks for in vain; return when it can be made.

    Raises:
        Unsupported: It asks for more than processes of this host can be.
        SpecRefused: A field of it cannot be read.
    """
    for capability, is_asked, detail in (
        (Capability.IMAGES, spec.image is not None, f"image {spec.image!r}"),
        (Capability.USERS, spec.user is not None, f"user {spec.user!r}"),
        (Capability.RESOURCE_LIMITS, _limits(spec), "cpus, memory_mib, processes_max"),
        (Capability.NETWORK_NONE, spec.network is Network.NONE, "network none"),
        (
            Capability.NETWORK_LISTED,
            spec.network is Network.LISTED,
            f"network listed, reachable {spec.reachable}",
        ),
        (Capability.MOUNTS, bool(spec.mounts), "mounts"),
        (Capability.PORTS, bool(spec.ports), f"ports {spec.ports}"),
        (Capability.ENTRYPOINT, spec.entrypoint is not None, "entrypoint"),
    ):
        if is_asked:
            raise Unsupported(provider, capability.value, f"the spec asks for {detail}")
    for field, reason in _mistakes(spec):
        raise SpecRefused(provider, field, reason)


def terms_of(provider: str) -> ProviderTerms:
    """Return what is known of the provider under that name."""
    return ProviderTerms(capabilities=CAPABILITIES, check=partial(check_spec, provider))


def to_digest(spec: SandboxSpec) -> str:
    """Return what tells one accepted spec from another; waits do not count."""
    words: dict[str, Json] = attrs.asdict(spec)
    return digest_of({name: words[name] for name in words if name not in _WAITS})


def _limits(spec: SandboxSpec) -> bool:
    return (spec.cpus, spec.memory_mib, spec.processes_max) != (None, None, None)


def _mistakes(spec: SandboxSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key in spec.metadata:
        if key.startswith(RESERVED):
            found.append((f"metadata.{key}", f"{RESERVED}* is Livery's own"))
    for option in spec.provider_options:
        found.append((f"provider_options.{option}", "there is no such option"))
    for name, value in spec.env.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            found.append((f"env.{name}", "a variable has no NUL, and no = in its name"))
    for field in ("lifetime_seconds", *_WAITS):
        seconds = getattr(spec, field)
        if not (math.isfinite(seconds) and 0 < seconds <= LIFETIME_SECONDS_MAX):
            reason = f"{seconds} is not above 0 and at most {LIFETIME_SECONDS_MAX:g}"
            found.append((field, f"{reason} seconds"))
    if not spec.workdir.startswith("/"):
        found.append(("workdir", f"{spec.workdir!r} is not absolute"))
    return found
