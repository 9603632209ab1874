# SPDX-License-Identifier: Apache-2.0
"""What NeMo Gym calls by name: one maker for each provider of ours.

NeMo Gym loads them by entry point and calls them with the blocks of its
configuration. Nothing here imports NeMo Gym before that.
"""

from collections.abc import Mapping
from typing import Final, cast

import attrs

from ...adapters.nemo_gym import GymProvider, SpecDefaults
from ...ports.required.sandbox_provider import Network
from ..built_in import PROVIDERS
from ..plug_ins import ExtraMissing, Opened, ProviderPlugIn, Surroundings, find
from .blocks import Blocks, read_blocks
from .making import EXTRA, Making

Block = Mapping[str, object] | None

DOCKER: Final = "docker"
AGENT_SANDBOX: Final = "agent_sandbox"
OPENSANDBOX: Final = "opensandbox"
MANAGED_BY: Final = "nemo-gym"
"""What the label app.kubernetes.io/managed-by of such claims says."""


def livery_docker(
    *, state: str | None = None, block: str | None = None, **blocks: Block
) -> GymProvider:
    """Return the provider `livery_docker`.

    `connection` is what stands in `options` of a block `[sandbox.NAME]`; `create`,
    `exec`, `probe` and `operations` are those of `Blocks`.

    Raises:
        ValueError: With every mistake of the blocks.
        ExtraMissing, NemoGymMissing: As they say.
    """
    return _of_ours("livery_docker", DOCKER, state=state, block=block, blocks=blocks)


def livery_agent_sandbox(
    *, state: str | None = None, block: str | None = None, **blocks: Block
) -> GymProvider:
    """Return the provider `livery_agent_sandbox`: the same with Livery's own words.

    As `livery_docker`, with the options of Livery's provider `agent_sandbox`.
    """
    return _of_ours(
        "livery_agent_sandbox", AGENT_SANDBOX, state=state, block=block, blocks=blocks
    )


def livery_opensandbox(
    *, state: str | None = None, block: str | None = None, **blocks: Block
) -> GymProvider:
    """Return the provider `livery_opensandbox`, as `livery_docker` is."""
    return _of_ours(
        "livery_opensandbox", OPENSANDBOX, state=state, block=block, blocks=blocks
    )


def agent_sandbox(
    *, state: str | None = None, block: str | None = None, **blocks: Block
) -> GymProvider:
    """Return the provider `agent_sandbox`, with the upstream provider's blocks.

    Raises:
        ValueError: With every mistake of the blocks.
        ExtraMissing, NemoGymMissing: As they say.
    """
    name = AGENT_SANDBOX
    _found(name, AGENT_SANDBOX)
    from ...adapters.agent_sandbox import open_agent_sandbox
    from .agent_blocks import SHELL, AgentBlocks, AgentConnectionBlock, to_options

    given = {**blocks, "exec": _laid_over({"exec_shell": SHELL}, blocks.get("exec"))}
    read, connection = read_blocks(
        name, AgentBlocks, given, connection=AgentConnectionBlock
    )
    assert isinstance(connection, AgentConnectionBlock), "it was read as what it is"
    options = to_options(connection, read)

    def opened(surroundings: Surroundings) -> Opened:
        config = options.config(surroundings)
        return open_agent_sandbox(attrs.evolve(config, managed_by=MANAGED_BY))

    return Making(
        name=name,
        block=block or AGENT_SANDBOX,
        state=state,
        open=opened,
        defaults=SpecDefaults(
            workdir=read.create.workdir,
            ttl_s=read.create.ttl_s,
            ready_timeout_s=read.create.ready_timeout_s,
            ignores_hardware=True,
        ),
        exec=read.exec,
        probe=read.probe,
        operations=read.operations,
    ).make()


def _of_ours(
    name: str,
    kind: str,
    *,
    state: str | None,
    block: str | None,
    blocks: Mapping[str, Block],
) -> GymProvider:
    plug_in = _found(name, kind)
    read, options = read_blocks(name, Blocks, blocks, connection=plug_in.options)

    def opened(surroundings: Surroundings) -> Opened:
        return plug_in.open(surroundings, options)

    return Making(
        name=name,
        block=block or kind,
        state=state,
        open=opened,
        defaults=SpecDefaults(
            image=read.create.image,
            workdir=read.create.workdir,
            ttl_s=read.create.ttl_s,
            ready_timeout_s=read.create.ready_timeout_s,
            network=Network(read.create.network),
            processes_max=read.create.processes_max,
            ignores_hardware=kind == AGENT_SANDBOX,
            takes_volumes=kind in (DOCKER, OPENSANDBOX),
        ),
        exec=read.exec,
        probe=read.probe,
        operations=read.operations,
    ).make()


def _laid_over(before: Mapping[str, object], block: object) -> object:
    """Return what a block says over what is so without it; what is no table stays it."""
    if not isinstance(block, Mapping | None):
        return block
    return {**before, **cast("Mapping[str, object]", block or {})}


def _found(name: str, kind: str) -> ProviderPlugIn:
    try:
        return find(ProviderPlugIn, kind, PROVIDERS)
    except ExtraMissing as missing:
        # Who runs it inside NeMo Gym installs the extra that is for that.
        raise ExtraMissing(missing.word, name, missing.library, EXTRA) from missing
