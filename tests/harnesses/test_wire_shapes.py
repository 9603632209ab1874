# SPDX-License-Identifier: Apache-2.0
"""What harnesses tell has the shapes of NeMo Gym's protocol, as recorded."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from livery.adapters.harnesses.command import CommandHarness
from livery.adapters.harnesses.nop import NopHarness
from livery.domain.activations import Outcome
from livery.domain.deciders import Instant
from livery.domain.digests import Json
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.responses import MODEL_UNKNOWN, to_response
from livery.ports.required.harness import (
    Capture,
    Harness,
    HarnessRequest,
    Observations,
    Reading,
)
from livery.ports.required.sandbox import Exited, Lost, Output, TimedOut

pytestmark = pytest.mark.anyio

TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "gym-transcripts"
AT = Instant(1_700_000_000.5)

needs_transcripts = pytest.mark.skipif(
    not TRANSCRIPTS.is_dir(), reason="the recorded exchanges are not here"
)


def reading(outcome: Outcome = Outcome.COMPLETED, **fields: Any) -> Reading:
    return Reading(outcome=outcome, observations=Observations(source="test"), **fields)


def recorded_response() -> dict[str, Any]:
    scenario = json.loads((TRANSCRIPTS / "20-happy-no-tools.json").read_text())
    for exchange in scenario["exchanges"]:
        if exchange["hop"] == "client->env":
            response: dict[str, Any] = exchange["response"]["body"]["result"][
                "response"
            ]
            return response
    raise AssertionError("the scenario has a run")


@needs_transcripts
def test_a_response_has_the_fields_that_were_recorded_and_no_other() -> None:
    response = to_response(reading(), {"input": "x"}, "resp_1", AT)

    assert response.keys() == recorded_response().keys()


@needs_transcripts
def test_what_the_request_left_out_is_as_recorded() -> None:
    recorded = recorded_response()
    ours = ("completed_at", "created_at", "id", "model", "output", "status", "usage")

    response = to_response(reading(), {"input": "x"}, "resp_1", AT)

    for name in response.keys() - set(ours):
        assert response[name] == recorded[name], name


def test_a_response_echoes_the_request_and_can_be_written() -> None:
    asked: dict[str, Json] = {
        "input": "x",
        "instructions": "be brief",
        "temperature": 0.5,
        "tools": [],
        "metadata": {"agent_timeout_sec": 1.5},
        "model": "m",
    }

    response = to_response(reading(), asked, "resp_1", AT)

    assert response["instructions"] == "be brief"
    assert response["temperature"] == 0.5
    assert response["metadata"] == {"agent_timeout_sec": "1.5"}
    assert response["model"] == "m"
    assert response["created_at"] == AT
    assert json.loads(json.dumps(response, allow_nan=False)) == response


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.COMPLETED, "completed"),
        (Outcome.INCOMPLETE, "incomplete"),
        (Outcome.TIMEOUT, "incomplete"),
        (Outcome.CANCELLED, "cancelled"),
        (Outcome.FAILED, "failed"),
        (Outcome.SANDBOX_ERROR, "failed"),
        (Outcome.OOM, "failed"),
    ],
)
def test_the_status_is_one_that_the_api_knows(outcome: Outcome, status: str) -> None:
    response = to_response(reading(outcome, reason="why"), {}, "r", AT)

    assert response["status"] == status
    error = {"code": "server_error", "message": "why"}
    assert response["error"] == (error if status == "failed" else None)


def test_a_response_always_names_a_model() -> None:
    assert to_response(reading(), {}, "r", AT)["model"] == MODEL_UNKNOWN
    assert to_response(reading(model="own"), {"model": "m"}, "r", AT)["model"] == "own"


def bundle_schema() -> Mapping[str, Any]:
    schemas = json.loads((TRANSCRIPTS / "schemas.json").read_text())["messages"]
    bundle: Mapping[str, Any] = schemas["AgentObservationBundle"]
    # Items of the Responses API are named there and not repeated.
    items = bundle["$defs"]["AgentInvocation"]["properties"]["conversation"]
    items["items"] = {"type": "object"}
    return bundle


@needs_transcripts
@pytest.mark.parametrize("how", [None, Exited(0), TimedOut(1.0), Lost("gone")])
@pytest.mark.parametrize("harness", [CommandHarness(argv=("a",)), NopHarness()])
async def test_the_bundle_keeps_to_the_recorded_schema(
    harness: Harness, how: Exited | TimedOut | Lost | None
) -> None:
    request = HarnessRequest(
        episode=EpisodeId("r"), task=TaskId("s", "t"), parameters={"input": "x"}
    )
    capture = Capture(how=how, stdout=Output(head=b"said", size=4))

    found = (await harness.read(request, capture)).observations

    bundle = {
        "source": found.source,
        "records": list(found.records),
        "gaps": list(found.gaps),
    }
    jsonschema.validate(bundle, bundle_schema())
