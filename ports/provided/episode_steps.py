# SPDX-License-Identifier: Apache-2.0
"""Steps of a turn: what the next one is asked, and what they come to together.

An agent that is driven step by step makes one call to its model and carries out the
tool calls of its answer; the conversation so far comes with each request.
"""

import math
from collections.abc import Mapping, Sequence

import attrs

from ...domain.activations import Outcome
from ...domain.digests import Json
from ...domain.requests import with_defaults
from ..required.participants import Turn

TOOL_CALL = "function_call"


def next_request(
    parameters: Mapping[str, Json], steps: Sequence[Turn]
) -> Mapping[str, Json]:
    """Return the request of the next step: the first one, and all that came of it."""
    if not steps:
        return parameters
    asked = with_defaults(parameters)["input"]
    assert isinstance(asked, list), "an input is a text or a list"
    return {**parameters, "input": [*asked, *_outputs(steps)]}


def asks_for_more(step: Turn) -> bool:
    """Whether the agent would go on: the step completed and called a tool."""
    items = _output(step)
    called = any(isinstance(i, Mapping) and i.get("type") == TOOL_CALL for i in items)
    return step.outcome is Outcome.COMPLETED and called


def turn_of_steps(steps: Sequence[Turn]) -> Turn:
    """Return the turn: the last step, with the output and the usage of all."""
    last = steps[-1]
    return attrs.evolve(
        last,
        response={
            **last.response,
            "output": _outputs(steps),
            "usage": _usage([step.response.get("usage") for step in steps]),
        },
        upstream_failed=any(step.upstream_failed for step in steps),
        seconds=math.fsum(step.seconds for step in steps),
    )


def _outputs(steps: Sequence[Turn]) -> list[Json]:
    return [item for step in steps for item in _output(step)]


def _output(step: Turn) -> Sequence[Json]:
    output = step.response.get("output")
    return output if isinstance(output, list) else ()


def _usage(told: Sequence[Json]) -> Json:
    """Return the sums, field by field; None when nobody told any."""
    known = [usage for usage in told if isinstance(usage, Mapping)]
    if not known:
        return None
    names = dict.fromkeys(name for usage in known for name in usage)
    return {name: _sum([usage.get(name) for usage in known]) for name in names}


def _sum(values: Sequence[Json]) -> Json:
    if any(isinstance(value, Mapping) for value in values):
        return _usage(values)
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers else values[-1]
