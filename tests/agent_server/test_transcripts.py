# SPDX-License-Identifier: Apache-2.0
"""What real servers of NeMo Gym answered, asked of ours, exchange by exchange.

Same status class, same shape, same conflicts; where ours differs on purpose, the page
docs/gym-deviations.md says so and the table here says what is right instead.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from livery.domain.admissions import AdmissionFull, Ticket
from livery.domain.claims import ClaimId
from livery.ports.required.harness import RequestRefused
from livery.ports.required.sandbox import SandboxFailed
from livery.ports.required.sandbox_provider import CreateFailed

from .scripted import Server, StuckProvider, cookie_of, serving

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "shared" / "gym-transcripts"
AGENT_HOP = "->agent"
FILES = sorted(FOLDER.glob("[0-9]*.json"))

DEVIATIONS: Mapping[tuple[str, int], int] = {
    ("04-agent-contract", 18): 409,
    ("04-agent-contract", 20): 409,
}
"""Scenario and number of an exchange → our status: an activation without a session."""
OBSERVABILITY = "_ng_"
"""Fields that NeMo Gym adds for itself when its observability is on."""
NOT_OURS = {
    "54-agent-reply-not-a-response",
    "80-episode-timeout",
    "83-cancelled-client",
}
"""A reply that is none cannot be scripted; clients that leave are in test_leaving.py."""


def exchanges(file: Path) -> list[dict[str, Any]]:
    """Return what was asked of the agent server in one scenario."""
    kept = json.loads(file.read_text(encoding="utf-8"))["exchanges"]
    return [one for one in kept if one["hop"].endswith(AGENT_HOP)]


def scenarios() -> list[Path]:
    return [file for file in FILES if exchanges(file) and file.stem not in NOT_OURS]


def script(server: Server, scenario: str) -> None:
    """Have the harness and the provider do what the recorded agent did."""
    provider, harness = server.provider, server.harness
    assert isinstance(provider, StuckProvider)
    if "seed-failure-500" in scenario or "setup-error" in scenario:
        provider.create_fault = CreateFailed("fake", "c", "create", "scripted")
    if "setup-error" in scenario or "agent-close-fails" in scenario:
        provider.stuck = True
    if "agent-failure-500" in scenario:
        harness.fault = SandboxFailed("fake", "s", "exec", "scripted")
    if "agent-failure-400" in scenario:
        harness.refusal = RequestRefused("scripted", "input", "scripted rejection")
    if "agent-failure-429" in scenario:
        harness.refusal = AdmissionFull(ticket=Ticket("t"), places=1)
    for one in exchanges(FOLDER / f"{scenario}.json"):
        body = one["request"]["body"]
        if body.get("sandbox_access"):
            descriptor = body["sandbox_access"]["connection"]["descriptor"]
            lent = ClaimId(descriptor["sandbox_id"])
            provider.live[lent] = cast("Any", "resources")


def before(server: Server, scenario: str, path: str) -> None:
    """Let a close succeed that succeeded in the recording."""
    if path.endswith("close") and "setup-error" in scenario:
        assert isinstance(server.provider, StuckProvider)
        server.provider.stuck = False


@attrs.define
class Replay:
    """One scenario, asked again; cookies are the ones that our server gave."""

    server: Server
    cookies: dict[str, str] = attrs.field(factory=dict[str, str])

    async def ask(self, exchange: Mapping[str, Any]) -> Any:
        request = exchange["request"]
        reply = await self.server.post(
            exchange["path"], request["body"], self.cookie(request)
        )
        session = request["body"].get("agent_session_id")
        if session and reply.status_code == 200:
            self.cookies[session] = cookie_of(reply)
        return reply

    def cookie(self, request: Mapping[str, Any]) -> str | None:
        for cookie in request.get("cookies_decoded", ()):
            if cookie["session"] is None:
                return "garbage"
            return self.cookies.get(cookie["session"]["agent_session_id"])
        return None


def shape(body: Any) -> Any:
    """Return what is the same in two replies that mean the same."""
    if not isinstance(body, Mapping):
        return type(body).__name__
    detail = body.get("detail")
    if isinstance(detail, list):
        return [
            (one["type"], one["loc"], one["msg"], one["input"], "ctx" in one)
            for one in detail
        ]
    if isinstance(detail, str):
        return detail
    return sorted(name for name in body if not name.startswith(OBSERVABILITY))


@pytest.mark.skipif(not FILES, reason="the recorded transcripts are not beside this")
@pytest.mark.parametrize("file", scenarios(), ids=lambda file: file.stem)
@pytest.mark.case("FC-110", "FC-180", "FC-084", "FC-085")
async def test_a_recorded_scenario_is_answered_alike(file: Path) -> None:
    own = not any(e["request"]["body"].get("sandbox_access") for e in exchanges(file))
    async with serving(own=own, provider=StuckProvider()) as server:
        replay = Replay(server)
        script(server, file.stem)
        for exchange in exchanges(file):
            rename(exchange, server)
            before(server, file.stem, exchange["path"])

            reply = await replay.ask(exchange)

            expected = exchange["response"]
            told = (file.stem, exchange["seq"], reply.text)
            changed = DEVIATIONS.get((file.stem, exchange["seq"]))
            if changed is not None:
                assert reply.status_code == changed, told
                continue
            assert reply.status_code // 100 == expected["status"] // 100, told
            if expected["status"] < 500:
                check_alike(exchange, reply, told)


def check_alike(exchange: Mapping[str, Any], reply: Any, told: object) -> None:
    expected = exchange["response"]
    if expected["status"] == 400:
        assert reply.status_code == 422, told
        return
    assert reply.status_code == expected["status"], told
    body, recorded = reply.json(), expected["body"]
    if expected["status"] == 429:
        return
    assert shape(body) == shape(recorded), told
    names = {name for name, _ in expected["headers"]}
    assert ("set-cookie" in reply.headers) == ("set-cookie" in names), told
    if "set-cookie" in names:
        assert reply.headers["vary"] == "Cookie"
        recorded_cookie = dict(expected["headers"])["set-cookie"]
        assert (
            reply.headers["set-cookie"].partition(";")[2]
            == (recorded_cookie.partition(";")[2])
        )


def rename(exchange: Mapping[str, Any], server: Server) -> None:
    """Let a lent sandbox be one of the scripted provider."""
    access = exchange["request"]["body"].get("sandbox_access")
    if access:
        connection = access["connection"]
        connection["provider_config_ref"] = server.provider.name
        connection["descriptor"]["id"] = connection["descriptor"]["sandbox_id"]


def test_every_scenario_with_an_agent_is_replayed_or_named() -> None:
    if not FILES:
        pytest.skip("the recorded transcripts are not beside this checkout")
    with_agent = {file.stem for file in FILES if exchanges(file)}

    assert {file.stem for file in scenarios()} == with_agent - NOT_OURS
    assert with_agent >= NOT_OURS
