# SPDX-License-Identifier: Apache-2.0
"""The agent server's own kind of sandbox, laid over the provider's block."""

import attrs

from livery.entrypoints.agent_parts import laid_over
from livery.entrypoints.sandbox_config import SandboxConfig
from livery.entrypoints.settings import SandboxSettings
from livery.ports.required.sandbox_provider import Network

BLOCK = SandboxSettings(
    image="a:1",
    env={"A": "1", "B": "1"},
    cpus=1.0,
    network=Network.NONE,
    sandbox_options={"x": 1},
)


def test_what_is_not_set_is_as_the_block_says() -> None:
    assert laid_over(BLOCK, SandboxConfig()) == BLOCK


def test_what_is_set_goes_first_and_tables_arelaid_over_each_other() -> None:
    config = SandboxConfig(
        image="b:2",
        env={"B": "2"},
        memory_mib=64,
        network="default",
        lifetime_seconds=5.0,
        sandbox_options={"y": 2},
    )

    assert laid_over(BLOCK, config) == attrs.evolve(
        BLOCK,
        image="b:2",
        env={"A": "1", "B": "2"},
        memory_mib=64,
        network=Network.DEFAULT,
        lifetime_seconds=5.0,
        sandbox_options={"x": 1, "y": 2},
    )


def test_every_word_of_it_is_one_of_a_block() -> None:
    ours, theirs = attrs.fields_dict(SandboxConfig), attrs.fields_dict(SandboxSettings)

    assert set(ours) < set(theirs)
