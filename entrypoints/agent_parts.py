# SPDX-License-Identifier: Apache-2.0
"""What an agent server is made of by its settings; nothing is opened."""

from typing import Final

import attrs

from ..ports.required.harness import Harness
from ..ports.required.sandbox_provider import Network
from .built_in import HARNESSES
from .composition import read_options
from .plug_ins import HarnessPlugIn, Surroundings, find
from .run_plan import RunPlan, plan_of_block
from .sandbox_config import AS_BLOCK, SandboxConfig
from .settings import AgentServerSettings, HarnessSettings, SandboxSettings
from .settings_reading import SettingsFile
from .strict_converter import Refused

THIS_HOST: Final = "local"
"""The provider whose sandboxes are folders and processes of this host."""


def own_name(settings: AgentServerSettings, harness: Harness) -> str | None:
    """Return the provider of a session's own sandbox; this host where one is needed."""
    needs_one = hasattr(harness, "runtime")  # `RuntimeHarness`
    return settings.sandbox_provider or (THIS_HOST if needs_one else None)


def laid_over(block: SandboxSettings, config: SandboxConfig) -> SandboxSettings:
    """Return the block with what the configuration sets."""
    fields = attrs.fields_dict(SandboxConfig)
    found = {name: getattr(config, name) for name in fields}
    found["network"] = None if config.network == AS_BLOCK else Network(config.network)
    found["env"] = {**block.env, **config.env}
    found["sandbox_options"] = {**block.sandbox_options, **config.sandbox_options}
    changed = {name: value for name, value in found.items() if value is not None}
    return attrs.evolve(block, **changed)


def plan_of_agent(
    file: SettingsFile, settings: AgentServerSettings, sandbox: str
) -> RunPlan:
    """Return the plan of a run with the same blocks, which says what a sandbox is.

    Raises:
        SettingsRefused: One limit makes another useless.
    """
    general = plan_of_block(file, sandbox)
    plan = attrs.evolve(
        general,
        harness=settings.harness,
        harness_block=harness_block_of(file, settings),
        sandbox_block=laid_over(general.sandbox_block, settings.sandbox_config),
        concurrency=settings.concurrency,
    )
    try:
        plan.check()
    except Refused as refused:
        raise file.refusal(refused.mistakes) from refused
    return plan


def harness_block_of(
    file: SettingsFile, settings: AgentServerSettings
) -> HarnessSettings:
    """Return the block of the server's harness; the defaults where there is none."""
    return file.settings.harness.get(settings.harness, HarnessSettings())


def harness_of(
    file: SettingsFile, settings: AgentServerSettings, surroundings: Surroundings
) -> Harness:
    """Return the server's harness.

    Raises:
        SettingsRefused, Fault: Its block, or what it is made from, cannot be used.
    """
    block = harness_block_of(file, settings)
    plug_in = find(HarnessPlugIn, block.harness or settings.harness, HARNESSES)
    (options,) = read_options(
        file, (plug_in.options, "harness", settings.harness, block.options)
    )
    return plug_in.make(
        attrs.evolve(
            surroundings,
            name=settings.harness,
            turn_timeout_seconds=block.turn_timeout_seconds,
            model_url=file.settings.model.url,
            model_credential=file.settings.model.credential,
        ),
        options,
    )
