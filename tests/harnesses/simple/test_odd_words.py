# SPDX-License-Identifier: Apache-2.0
"""Odd words of a model or a tool server: whose fault they are, and what is kept."""

import json
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from livery.adapters.harnesses.simple import SimpleHarness
from livery.adapters.harnesses.simple.models import (
    RETRY_AFTER_SECONDS_MAX,
    pause_asked_for,
)
from livery.domain.activations import Outcome

from .servers import answer, attempt, bodies, call, chat, config, run, said, serving

pytestmark = pytest.mark.anyio

HALF = r'{"thing": "cut \ud83d"}'
"""Arguments that end within a character, which JSON can say and UTF-8 cannot."""
WHOLE = {"thing": "cut \N{REPLACEMENT CHARACTER}"}


def escaped(told: Any) -> Response:
    """Return an answer with everything but ASCII escaped, half characters too."""
    return Response(json.dumps(told))


@pytest.mark.parametrize("over_mcp", [False, True])
@pytest.mark.case("FC-247")
async def test_half_a_character_of_a_model_is_replaced_and_its_tool_is_called(
    over_mcp: bool,
) -> None:
    first = answer(said("cut \ud83d"), {**call("weigh"), "arguments": HALF})
    async with serving(escaped(first), answer(said("Done."))) as servers:
        access = servers.over_mcp() if over_mcp else servers.direct()
        done = await run(SimpleHarness(config=config(servers)), attempt(access))

        assert done.ending.outcome is Outcome.COMPLETED
        told = json.loads(done.results[0])
        assert told["arguments" if over_mcp else "asked"] == WHOLE


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"a": NaN}', '{"a": 1e999}', '{"a":' * 100_000]
)
async def test_arguments_that_no_server_can_read_are_told_to_the_model(
    arguments: str,
) -> None:
    wrong = {**call("weigh"), "arguments": arguments}
    async with serving(answer(wrong), answer(said("Oh."))) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert done.ending.outcome is Outcome.COMPLETED
        assert "arguments are no JSON" in done.results[0]
        assert not servers.tools.asked


@pytest.mark.parametrize("is_chat", [False, True])
@pytest.mark.parametrize("text", ['{"a":' + "[" * 100_000, '{"a": NaN}'])
async def test_an_answer_that_nobody_can_read_is_the_model_server_s_failure(
    is_chat: bool, text: str
) -> None:
    async with serving(Response(text)) as servers:
        chosen = chat(servers) if is_chat else config(servers)
        done = await run(SimpleHarness(config=chosen), attempt())

        assert done.ending.outcome is Outcome.FAILED
        assert done.ending.upstream_failed
        assert "it is no JSON" in done.ending.reason


@pytest.mark.parametrize("events", [False, True])
async def test_parameters_that_a_tool_server_refuses_are_told_to_the_model(
    events: bool,
) -> None:
    first = answer(call("weigh", wrong=1))
    async with serving(first, answer(said("Oh."))) as servers:
        servers.events = events
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.over_mcp())
        )

        assert done.ending.outcome is Outcome.COMPLETED
        assert done.results == ["wrong is unknown"]
        [seen] = [r for r in done.bundle["records"] if r["kind"] == "tool_call"]
        assert seen["status"] == "failed"
        assert "wrong is unknown" in json.dumps(bodies(servers.model)[1])


async def test_a_text_of_a_tool_without_a_text_is_empty() -> None:
    first = answer(call("weigh", textless=True))
    async with serving(first, answer(said("Oh."))) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.over_mcp())
        )

        assert done.ending.outcome is Outcome.COMPLETED
        assert done.results == [""]


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.case("FC-174")
async def test_a_credential_that_the_model_s_server_repeats_is_kept_nowhere(
    status: int,
) -> None:
    secret = 'sk-"s3cret"-\\' + "a" * 40
    told = answer(said(f"Your key is {secret}."), detail=f"wrong key {secret}")
    async with serving(JSONResponse(told, status)) as servers:
        harness = SimpleHarness(config=config(servers, credential=secret))
        done = await run(harness, attempt())

        kept = f"{done.ending.reply}{done.ending.reason}{done.ending.observations}"
        assert "***" in kept
        assert "s3cret" not in kept


@pytest.mark.case("FC-119")
async def test_a_pause_that_the_model_s_server_asks_for_is_kept() -> None:
    busy = JSONResponse({"error": "busy"}, 429, headers={"retry-after": "1.5"})
    async with serving(busy, answer(said("Here."))) as servers:
        before = anyio.current_time()
        done = await run(SimpleHarness(config=config(servers)), attempt())
        waited = anyio.current_time() - before

        assert done.ending.outcome is Outcome.COMPLETED
        assert waited >= 1.5


@pytest.mark.parametrize("told", ["soon", "-1", "", "nan", "\u00b2", "9" * 5000])
def test_an_odd_pause_is_none_or_bounded(told: str) -> None:
    assert 0.0 <= pause_asked_for(told) <= RETRY_AFTER_SECONDS_MAX
