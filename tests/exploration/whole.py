# SPDX-License-Identifier: Apache-2.0
"""Every decider in its small world, with as many crashes and faults as are walked."""

from typing import Final

from . import (
    activations_world,
    admissions_world,
    agent_sessions_world,
    claims_world,
    episodes_world,
    resources_sessions_world,
    runtimes_world,
)

WORLDS: Final = (
    activations_world.model(crashes=2, faults=1),
    activations_world.model(crashes=1, faults=1, stepwise=True),
    admissions_world.model(crashes=1, faults=1),
    agent_sessions_world.model(crashes=1, faults=1),
    agent_sessions_world.model(crashes=1, faults=1, stepwise=True),
    claims_world.model(crashes=1, faults=1),
    episodes_world.model(crashes=1, faults=1),
    resources_sessions_world.model(crashes=1, faults=2),
    runtimes_world.model(crashes=2, faults=1),
)
