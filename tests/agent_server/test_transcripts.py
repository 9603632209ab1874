# SPDX-License-Identifier: Apache-2.0
"""What real servers of NeMo Gym answered, asked of ours, exchange by exchange.

Same status, same shape, same conflicts; where ours differs on purpose, the page
docs/gym-deviations.md says so and why, and the tables here name its row.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio
import attrs
import pytest

from livery.domain.admissions import AdmissionFull, Ticket
from livery.domain.claims import ClaimId
from livery.ports.required.harness import RequestRefused
from livery.ports.required.sandbox import SandboxFailed
from livery.ports.required.sandbox_provider import CreateFailed

from . import recordings
from .recordings import Exchange, Scenario, shape
from .scripted import ScriptedHarness, Server, StuckProvider, cookie_of, serving

pytestmark = pytest.mark.anyio

PAGE: Final = Path(__file__).parents[2] / "docs" / "gym-deviations.md"
SCENARIOS: Final = recordings.scenarios()
NO_AGENT: Final = "its calls are not to an agent server"
NOT_REPLAYED: Final[Mapping[str, str]] = dict.fromkeys(
    (
        "03-resources-contract",
        "05-aggregate-metrics",
        "11-mcp-metadata-missing",
        "30-seed-failure-500",
        "31-seed-failure-422",
        "32-seed-failure-503",
        "34-seed-wrong-id",
        "75-bad-run-bodies",
        "81-episode-timeout-in-seed",
        "86-agent-unreachable",
    ),
    NO_AGENT,
)
"""Scenario → why nothing of it is asked of ours."""

NO_SESSION: Final = "An activation without a session"
OWN_STATUS: Final = "A failed seed, activation or close is 500"
REFUSED: Final = "A harness's 400 is passed on"
NO_RESPONSE: Final = "An agent may answer anything"
NULL_OBSERVATIONS: Final = "A closed session without an activation"
OLD_JAR: Final = "`resources_cookies` is `{}` or a jar."

DEVIATIONS: Final[Mapping[tuple[str, int], tuple[str, int]]] = {
    ("04-agent-contract", 18): (NO_SESSION, 409),
    ("04-agent-contract", 20): (NO_SESSION, 409),
    ("40-agent-seed-failure-500", 3): (OWN_STATUS, 502),
    ("42-agent-seed-setup-error", 3): (OWN_STATUS, 502),
    ("43-agent-setup-error-contract", 1): (OWN_STATUS, 502),
    ("50-agent-failure-500", 4): (OWN_STATUS, 502),
    ("51-agent-failure-400", 4): (REFUSED, 422),
    ("52-agent-failure-429", 4): (OWN_STATUS, 429),
    ("54-agent-reply-not-a-response", 4): (NO_RESPONSE, 200),
    ("70-agent-close-fails-always", 5): (OWN_STATUS, 502),
    ("70-agent-close-fails-always", 6): (OWN_STATUS, 502),
}
"""Scenario and number of an exchange → the page's row, and our status."""
FIELD_DEVIATIONS: Final[Mapping[str, str]] = {
    "agent_observations": NULL_OBSERVATIONS,
    "resources_cookies": OLD_JAR,
}
"""Fields of a close that may be null in one and not in the other → the page's row."""

UNSET: Final = ("status", "usage")
"""Fields of a Responses object that an agent of theirs need not fill in."""

WAIT_SECONDS: Final = 10.0


def script(server: Server, scenario: Scenario) -> None:
    """Have the harness and the provider do what the recorded agent did."""
    provider, harness, name = server.provider, server.harness, scenario.name
    assert isinstance(provider, StuckProvider)
    if "seed-failure-500" in name or "setup-error" in name:
        provider.create_fault = CreateFailed("fake", "c", "create", "scripted")
    if "setup-error" in name or "agent-close-fails" in name:
        provider.stuck = True
    if "agent-failure-500" in name:
        harness.fault = SandboxFailed("fake", "s", "exec", "scripted")
    if "agent-failure-400" in name:
        harness.refusal = RequestRefused("scripted", "input", "scripted rejection")
    if "agent-failure-429" in name:
        harness.refusal = AdmissionFull(ticket=Ticket("t"), places=1)
    for one in scenario.exchanges:
        if one.body.get("sandbox_access"):
            descriptor = one.body["sandbox_access"]["connection"]["descriptor"]
            lent = ClaimId(descriptor["sandbox_id"])
            provider.live[lent] = cast("Any", "resources")


def before(server: Server, scenario: Scenario, exchange: Exchange) -> None:
    """Let a close succeed that succeeded, and a lent sandbox be one of ours."""
    assert isinstance(server.provider, StuckProvider)
    if exchange.path.endswith("close") and "setup-error" in scenario.name:
        server.provider.stuck = False
    if access := exchange.body.get("sandbox_access"):
        connection = access["connection"]
        connection["provider_config_ref"] = server.provider.name
        connection["descriptor"]["id"] = connection["descriptor"]["sandbox_id"]


@attrs.define
class Replay:
    """One scenario, asked again; cookies are the ones that our server gave."""

    server: Server
    cookies: dict[str, str] = attrs.field(factory=dict[str, str])

    async def ask(self, exchange: Exchange) -> Any:
        body = exchange.body
        cookie = self.cookie(exchange)
        reply = await self.server.post(exchange.path, body, cookie)
        session = body.get("agent_session_id")
        if session and reply.status_code == 200:
            self.cookies[session] = cookie_of(reply)
        return reply

    async def ask_and_leave(self, exchange: Exchange) -> None:
        """Be gone once the harness works."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.ask, exchange)
            with anyio.fail_after(WAIT_SECONDS):
                await self.server.harness.running.wait()
            group.cancel_scope.cancel()

    def cookie(self, exchange: Exchange) -> str | None:
        if exchange.cookie is None:
            return None
        return self.cookies.get(exchange.cookie, "garbage")


@pytest.mark.parametrize(
    "scenario",
    [one for one in SCENARIOS if one.name not in NOT_REPLAYED],
    ids=lambda scenario: scenario.name,
)
@pytest.mark.case("FC-110", "FC-180", "FC-084", "FC-085")
async def test_a_recorded_scenario_is_answered_alike(scenario: Scenario) -> None:
    own = not any(one.body.get("sandbox_access") for one in scenario.exchanges)
    leaves = any(one.status is None for one in scenario.exchanges)
    harness = ScriptedHarness(hangs=leaves)
    async with serving(own=own, provider=StuckProvider(), harness=harness) as server:
        replay = Replay(server)
        script(server, scenario)
        for exchange in scenario.exchanges:
            before(server, scenario, exchange)
            if exchange.status is None:
                await replay.ask_and_leave(exchange)
                continue

            reply = await replay.ask(exchange)

            told = f"{scenario.name} {exchange.seq}: {reply.status_code} {reply.text}"
            row, status = DEVIATIONS.get(
                (scenario.name, exchange.seq), ("", exchange.status)
            )
            assert reply.status_code == status, told
            if not row:
                check_alike(exchange, reply, told)
        assert isinstance(server.provider, StuckProvider)
        left = set(map(str, server.provider.live.values()))
        assert left <= {"resources"} or server.provider.stuck


def check_alike(exchange: Exchange, reply: Any, told: str) -> None:
    ours, theirs = shape(reply.json()), exchange.shape
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), told
        may_differ = {*FIELD_DEVIATIONS, *UNSET}
        theirs = {**theirs, **{name: ours[name] for name in may_differ & set(ours)}}
    assert ours == theirs, told
    assert reply.headers["vary"] == "Cookie"
    attributes = reply.headers["set-cookie"].partition(";")[2]
    assert attributes == exchange.cookie_attributes, told


def test_every_recording_is_replayed_or_has_a_reason() -> None:
    asked = {one.name for one in SCENARIOS if one.exchanges}

    assert {one.name for one in SCENARIOS} == asked | set(NOT_REPLAYED)
    assert not asked & set(NOT_REPLAYED)


def test_every_deviation_has_a_row_with_its_reason() -> None:
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    named = {row for row, _ in DEVIATIONS.values()} | set(FIELD_DEVIATIONS.values())

    for start in named:
        found = [row for row in rows if row[0].startswith(start)]
        assert len(found) == 1, start
        assert len(found[0]) == 3
        assert all(found[0]), start


def test_what_is_kept_is_what_was_recorded() -> None:
    if not recordings.FOLDER.is_dir():
        pytest.skip("the transcripts themselves are not beside this checkout")

    found = recordings.distilled(recordings.FOLDER)

    assert (
        tuple(
            Scenario(name=name, exchanges=tuple(Exchange(**one) for one in exchanges))
            for name, exchanges in found.items()
        )
        == recordings.scenarios()
    )
