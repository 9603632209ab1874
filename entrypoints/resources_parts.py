# SPDX-License-Identifier: Apache-2.0
"""What a resources server is made of by its settings; nothing is opened."""

from typing import Final

import attrs

from ..ports.required.sandbox_provider import (
    Capabilities,
    Capability,
    Network,
    SandboxSpec,
    Unsupported,
)
from .run_plan import plan_of_block
from .settings_reading import SettingsFile
from .strict_converter import Mistake
from .trusted_networks import to_networks

SHUTDOWN_SECONDS_MIN: Final = 3.0


def check_resources(file: SettingsFile, *, lends: bool) -> None:
    """See that what is set can go together; raises `SettingsRefused`."""
    section, settings = "resources_server", file.settings.resources_server
    mistakes: list[Mistake] = []
    if lends and settings.shutdown_seconds < SHUTDOWN_SECONDS_MIN:
        mistakes.append(
            Mistake(
                path=(section, "shutdown_seconds"),
                told=f"is {settings.shutdown_seconds:g}, too short to stop sandboxes"
                f" in; it must be at least {SHUTDOWN_SECONDS_MIN:g}",
            )
        )
    try:
        to_networks(settings.trusted_networks)
    except ValueError as error:
        told = f"holds no network: {error}"
        mistakes.append(Mistake(path=(section, "trusted_networks"), told=told))
    if mistakes:
        raise file.refusal(tuple(mistakes))


def spec_of_resources(
    file: SettingsFile, provider: str, capabilities: Capabilities, *, lends: bool
) -> SandboxSpec:
    """Return the kind of sandbox that is lent; refuse what cannot be enforced.

    Raises:
        Unsupported: The internet is to be blocked, and the provider cannot do that.
    """
    settings = file.settings.resources_server
    name = settings.sandbox_provider or provider
    spec = plan_of_block(file, name).spec(capabilities)
    if not settings.block_internet or not lends:
        return spec
    if Capability.NETWORK_NONE not in capabilities:
        detail = "[resources_server] block_internet needs it"
        raise Unsupported(provider, Capability.NETWORK_NONE.value, detail)
    return attrs.evolve(spec, network=Network.NONE)
