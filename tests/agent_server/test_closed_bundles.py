# SPDX-License-Identifier: Apache-2.0
"""A close tells of all activations in one bundle, whose readers want each name once."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from livery.domain.digests import Json
from livery.ports.required.harness import (
    Capture,
    HarnessRequest,
    Observations,
    Reading,
)

from .scripted import HELLO, ScriptedHarness, serving

pytestmark = pytest.mark.anyio


def invocation(name: str, parent: str | None = None) -> Mapping[str, Json]:
    return {
        "kind": "agent_invocation",
        "invocation_id": name,
        "parent_invocation_id": parent,
    }


@attrs.define
class DelegatingHarness(ScriptedHarness):
    """Names its invocations anew in each activation, one below the other."""

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        read = await ScriptedHarness.read(self, request, capture)
        records: tuple[Mapping[str, Json], ...] = (
            invocation("root"),
            invocation("helper", "root"),
            {"kind": "tool_call", "invocation_id": "helper", "tool_call_id": "c"},
            {"kind": "sandbox", "role": "agent"},
        )
        gaps: tuple[Mapping[str, Json], ...] = (
            {"code": "unseen", "invocation_id": "root", "detail": "x"},
            {"code": "lost", "invocation_id": None, "detail": "y"},
        )
        return attrs.evolve(
            read,
            observations=Observations(source=self.name, records=records, gaps=gaps),
        )


async def closed_after(steps: int) -> dict[str, Any]:
    """Return the bundle of a session that was activated so often."""
    async with serving(harness=DelegatingHarness(stepwise=True)) as it:
        cookie = await it.seeded()
        for number in range(steps):
            body = {**HELLO, "metadata": {"step": str(number)}}
            reply = await it.post("/v1/responses", body, cookie)
            assert reply.status_code == 200, reply.text
        bundle: dict[str, Any] = (await it.close()).json()["agent_observations"]
        return bundle


async def test_the_names_of_one_activation_are_the_harness_s_own() -> None:
    told = await closed_after(1)

    names = [r["invocation_id"] for r in told["records"] if "invocation_id" in r]
    assert names == ["root", "helper", "helper"]


async def test_each_invocation_of_several_activations_has_a_name_of_its_own() -> None:
    told = await closed_after(3)

    invocations = [r for r in told["records"] if r["kind"] == "agent_invocation"]
    names = [one["invocation_id"] for one in invocations]
    assert len({*names}) == 6
    assert names[:2] == ["root", "helper"]
    assert "activation-2" in names
    assert "activation-3" in names


async def test_what_belongs_to_an_invocation_follows_its_name() -> None:
    told = await closed_after(2)

    records = told["records"]
    root, helper, call, sandbox = records[4:]
    assert helper["parent_invocation_id"] == root["invocation_id"] == "activation-2"
    assert call["invocation_id"] == helper["invocation_id"]
    assert sandbox == records[3]
    assert [gap["invocation_id"] for gap in told["gaps"]] == [
        *("root", None),
        *("activation-2", None),
    ]
