# SPDX-License-Identifier: Apache-2.0
"""What real servers of NeMo Gym answered, asked of ours, exchange by exchange.

Same status, same shape; where ours differs on purpose, the page docs/gym-deviations.md
says so and the table here says what is right instead.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from livery.domain.admissions import AdmissionIsShut, Ticket
from livery.ports.required.sandbox import SandboxFailed

from ..agent_server.scripted import StuckProvider
from .serving import BoxWorld, ScriptedWorld, Server, cookie_of, serving

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "shared" / "gym-transcripts"
HOP = "->resources"
FILES = sorted(FOLDER.glob("[0-9]*.json"))

DEVIATIONS: Mapping[tuple[str, int], int] = {
    # A conflict is 409, where the example raises ValueError.
    ("03-resources-contract", 4): 409,
    ("03-resources-contract", 5): 409,
    ("03-resources-contract", 11): 409,
    ("03-resources-contract", 14): 409,
    ("03-resources-contract", 16): 409,
    # A body with a mistake in it is told so, where the example takes it for a legacy one.
    ("03-resources-contract", 7): 422,
    ("03-resources-contract", 8): 422,
    ("03-resources-contract", 9): 422,
    ("03-resources-contract", 10): 422,
    ("03-resources-contract", 6): 422,
}
"""Scenario and number of an exchange → our status."""
ADDED = {"livery"}
"""What our verdicts have beside NeMo Gym's fields."""
SCRIPTED = {"session_known", "instance_config", "k", "difficulty"}
"""What the scripted server of the recording added for itself."""


def exchanges(file: Path) -> list[dict[str, Any]]:
    """Return what was asked of the resources server in one scenario, and answered."""
    kept = json.loads(file.read_text(encoding="utf-8"))["exchanges"]
    return [one for one in kept if one["hop"].endswith(HOP) and one["response"]]


def scenarios() -> list[Path]:
    return [file for file in FILES if exchanges(file)]


def script(world: ScriptedWorld, scenario: str) -> None:
    """Have the world do what the recorded one did."""
    if scenario == "30-seed-failure-500":
        world.check_fault = RuntimeError("scripted seed failure")
    if scenario == "31-seed-failure-422":
        world.refused = "scripted seed rejection"
    if scenario == "32-seed-failure-503":
        world.check_fault = AdmissionIsShut(ticket=Ticket("t"))
    if scenario == "60-verify-failure-500":
        world.evidence_fault = SandboxFailed("fake", "s", "exec", "scripted")


def spells(scenario: str) -> bool:
    """Tell whether the recorded server offered tools over MCP."""
    return scenario == "10-mcp-and-direct-http-grants"


@attrs.define
class Replay:
    """One scenario, asked again; cookies are the ones that our server gave."""

    server: Server
    cookie: str | None = None

    async def ask(self, exchange: Mapping[str, Any]) -> Any:
        request = exchange["request"]
        with_cookie = any(name == "cookie" for name, _ in request["headers"])
        cookie = self.cookie if with_cookie else None
        if exchange["method"] == "GET":
            return await self.server.get(exchange["path"], cookie)
        reply = await self.server.post(exchange["path"], request["body"], cookie)
        if exchange["path"].endswith("/seed_session") and reply.status_code == 200:
            self.cookie = cookie_of(reply)
        return reply


def shape(body: Any) -> Any:
    """Return what is the same in two replies that mean the same."""
    if not isinstance(body, Mapping):
        return type(body).__name__
    detail = body.get("detail")
    if isinstance(detail, list):
        return [(one["type"], one["loc"], one["msg"], one["input"]) for one in detail]
    if isinstance(detail, str):
        return "detail"
    left_out = ADDED | SCRIPTED
    return {
        name: sorted(value) if isinstance(value, dict) else type(value).__name__
        for name, value in body.items()
        if name not in left_out
        and not name.startswith("_ng_")
        and name not in ("responses_create_params", "response", *_VERDICT)
    } | {name: True for name in body if name in _VERDICT}


_VERDICT = ("reward", "mask_sample", "failure_kind", "failure_reason")


@pytest.mark.skipif(not FILES, reason="the recorded transcripts are not beside this")
@pytest.mark.parametrize("file", scenarios(), ids=lambda file: file.stem)
@pytest.mark.case("FC-110", "FC-180", "FC-084", "FC-085", "FC-083")
async def test_a_recorded_scenario_is_answered_alike(
    file: Path, tmp_path: Path
) -> None:
    provider = StuckProvider() if "sandbox-access" in file.stem else None
    world: ScriptedWorld = ScriptedWorld(wants_sandbox=provider is not None)
    if spells(file.stem) or any(e["path"] == "/get_weather" for e in exchanges(file)):
        world = BoxWorld(wants_sandbox=False)
    script(world, file.stem)
    async with serving(tmp_path, world, provider) as server:
        replay = Replay(server)
        for exchange in exchanges(file):
            if exchange["path"] == "/get_weather":
                exchange["path"] = "/box_put"
                exchange["request"]["body"] = {"word": "San Francisco"}

            reply = await replay.ask(exchange)

            check(file.stem, exchange, reply, mcp=spells(file.stem))


def check(scenario: str, exchange: Mapping[str, Any], reply: Any, *, mcp: bool) -> None:
    expected = exchange["response"]
    told = (scenario, exchange["seq"], reply.text)
    changed = DEVIATIONS.get((scenario, exchange["seq"]))
    if changed is not None:
        assert reply.status_code == changed, told
        return
    if expected["status"] == 500 and scenario == "60-verify-failure-500":
        assert reply.status_code == 502, told
        return
    if expected["status"] == 500 and scenario == "73-resources-close-fails-once":
        assert reply.status_code == 200, told  # Nothing is there that could fail.
        return
    assert reply.status_code == expected["status"], told
    if exchange["path"] == "/box_put":
        return
    body, recorded = reply.json(), expected["body"]
    if exchange["path"].endswith("/seed_session") and reply.status_code == 200:
        assert set(body) == set(recorded), told
        assert (body["sandbox_access"] is None) == (
            recorded["sandbox_access"] is None
        ), told
        if mcp:
            assert set(body["resources_tools"]) == set(recorded["resources_tools"])
        return
    if reply.status_code == 422 and isinstance(recorded.get("detail"), str):
        return
    if reply.status_code < 500:
        assert shape(body) == shape(recorded), told
    names = {name for name, _ in expected["headers"]}
    if "set-cookie" in names:
        assert reply.headers["vary"] == "Cookie"
        attributes = dict(expected["headers"])["set-cookie"].partition(";")[2]
        assert reply.headers["set-cookie"].partition(";")[2] == attributes


def test_every_scenario_with_resources_is_replayed() -> None:
    if not FILES:
        pytest.skip("the recorded transcripts are not beside this checkout")
    assert len(scenarios()) >= 25
