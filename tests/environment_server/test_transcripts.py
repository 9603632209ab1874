# SPDX-License-Identifier: Apache-2.0
"""Episodes that real servers of NeMo Gym went through, gone through by ours.

The partners are played from the recordings: what our environment asks of them is what
NeMo Gym's asked, and what it answers has the same status and shape. Where ours differs
on purpose, the page docs/gym-deviations.md says so and the tables here say how.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from starlette.requests import Request
from starlette.responses import Response

from .partners import Partner, environment, listening

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "shared" / "gym-transcripts"
CLIENT_HOP = "client->env"
FILES = sorted(FOLDER.glob("[0-9]*.json"))

CLOSES = ("/close_session", "/v1/agent_sessions/close")
OFTEN = {"05-aggregate-metrics", "70-agent-close-fails-always"}
"""Where something is asked more than once: of the resources server by the recorder
itself, and a close by ours, which tries it once more than NeMo Gym's."""
TIMED = {"80-episode-timeout", "81-episode-timeout-in-seed", "86-agent-unreachable"}
"""Where a time runs out, so how far it came depends on the machine."""
LEFT = {"83-cancelled-client"}
"""Clients that leave are in test_episodes.py: ours goes on for a while."""
OWN_KEYS = {"livery"}
"""What ours adds to a result."""
IGNORED = {"host", "content-length", "user-agent", "accept", "accept-encoding"}


def exchanges(file: Path) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))[
        "exchanges"
    ]
    return kept


def scenarios() -> list[Path]:
    return [
        file
        for file in FILES
        if file.stem not in LEFT
        and any(e["hop"] == CLIENT_HOP for e in exchanges(file))
    ]


def is_tool(exchange: Mapping[str, Any]) -> bool:
    """Whether it is the agent's own call, which nobody plays here."""
    return exchange["path"] == "/get_weather"


@attrs.define
class Played:
    """A partner that answers as recorded, in order, under our session ids."""

    recorded: list[dict[str, Any]]
    ids: dict[str, str] = attrs.field(factory=dict[str, str])
    """Recorded session id → ours."""
    bodies: list[tuple[Any, Any]] = attrs.field(factory=list[tuple[Any, Any]])
    """What was recorded, and what was asked."""

    async def answer(self, request: Request, body: Any) -> Response:
        exchange = self._next(request.url.path)
        recorded = exchange["request"].get("body") or {}
        for name in ("resources_session_id", "agent_session_id"):
            if name in recorded:
                self.ids[recorded[name]] = body[name]
        self.bodies.append((recorded, body))
        response = exchange["response"]
        if response is None or response["status"] is None:
            while (await request.receive())["type"] != "http.disconnect":
                continue
            return Response()
        text = json.dumps(response["body"])
        for theirs, ours in self.ids.items():
            text = text.replace(theirs, ours)
        reply = Response(text, response["status"], media_type="application/json")
        for name, value in response["headers"]:
            if name == "set-cookie":
                reply.headers.append(name, value)
        return reply

    def _next(self, path: str) -> dict[str, Any]:
        found = [each for each in self.recorded if each["path"] == path]
        assert found, f"nobody asked for {path} in the recording"
        if len(found) > 1 or path not in CLOSES:
            self.recorded.remove(found[0])
        return found[0]


def played(file: Path, hop: str) -> Played:
    mine = [e for e in exchanges(file) if e["hop"] == hop and not is_tool(e)]
    return Played(mine)


def chosen(file: Path) -> dict[str, Any]:
    """Return the settings that say what the recorded configuration said."""
    kept = json.loads(file.read_text(encoding="utf-8"))
    config, top = kept["environment_config"], kept["top_level_config"]
    return {
        "resources_tool_transports": config.get("resources_tool_transports") or (),
        "episode_timeout_seconds": config["default_episode_timeout_seconds"],
        "cleanup_timeout_seconds": config["cleanup_timeout_seconds"],
        "observability": top.get("observability_enabled", False),
        "token_capture": bool(top.get("token_id_capture")),
        "reach_timeout_seconds": 0.5 if "unreachable" in file.stem else 30.0,
    }


@pytest.mark.skipif(not FILES, reason="the recorded transcripts are not beside this")
@pytest.mark.parametrize("file", scenarios(), ids=lambda file: file.stem)
@pytest.mark.case("FC-179", "FC-180", "FC-182", "FC-248")
async def test_a_recorded_scenario_is_gone_through_alike(file: Path) -> None:
    resources_play, agent_play = played(file, "->resources"), played(file, "->agent")
    resources, agent = Partner(resources_play.answer), Partner(agent_play.answer)
    expected_paths = [
        (e["hop"], e["path"])
        for e in exchanges(file)
        if e["hop"] in ("->resources", "->agent") and not is_tool(e)
    ]
    async with listening(resources), listening(agent):
        agent_url = agent.url
        if "unreachable" in file.stem:
            agent_url = "http://127.0.0.1:9"  # Nothing listens on discard.
        async with environment(resources.url, agent_url, **chosen(file)) as it:
            for exchange in exchanges(file):
                if exchange["hop"] != CLIENT_HOP:
                    continue
                request = exchange["request"]
                if exchange["method"] == "GET":
                    reply = await it.client.get(exchange["path"])
                else:
                    reply = await it.post(exchange["path"], request["body"])
                check_alike(file.stem, exchange, reply)
            assert it.kept_nothing

    if file.stem in TIMED:
        assert resources.paths[-1] == "/close_session"
        return
    for partner, hop in ((resources, "->resources"), (agent, "->agent")):
        expected = [path for where, path in expected_paths if where == hop]
        if file.stem in OFTEN:
            assert list(dict.fromkeys(partner.paths)) == list(dict.fromkeys(expected))
        else:
            assert partner.paths[: len(expected)] == expected
    for recorded, asked in (*resources_play.bodies, *agent_play.bodies):
        check_asked(recorded, asked)


def check_alike(scenario: str, exchange: Mapping[str, Any], reply: Any) -> None:
    expected, told = exchange["response"], (scenario, exchange["seq"], reply.text)
    assert reply.status_code == expected["status"], told
    body, recorded = reply.json(), expected["body"]
    if expected["status"] == 422:
        assert [one["type"] for one in body["detail"]] == [
            one["type"] for one in recorded["detail"]
        ], told
        assert [one["loc"] for one in body["detail"]] == [
            one["loc"] for one in recorded["detail"]
        ], told
        return
    if exchange["path"] != "/run" or expected["status"] != 200:
        assert body == recorded, told
        return
    assert sorted(body) == sorted(recorded), told
    for name in ("episode_id", "task_id"):
        assert body[name] == recorded[name], told
    assert (body["result"] is None) == (recorded["result"] is None), told
    if recorded["result"] is not None:
        theirs = {
            k: v for k, v in recorded["result"].items() if not k.startswith("_ng")
        }
        ours = {k: v for k, v in body["result"].items() if k not in OWN_KEYS}
        assert ours == theirs, told
    else:
        check_failure(body["failure"], recorded["failure"], told)


def check_failure(
    failure: Mapping[str, Any], recorded: Mapping[str, Any], told: object
) -> None:
    assert set(failure) - set(recorded) <= {"failure_kind", "stage"}, told
    assert set(recorded) <= set(failure), told
    assert failure["terminal"] is recorded["terminal"], told
    assert failure["partial_response"] == recorded["partial_response"], told
    if "stage" in recorded:
        assert failure["stage"] == recorded["stage"], told


def check_asked(recorded: Any, asked: Any) -> None:
    """What was asked is what was asked then, our ids and addresses apart."""
    if not isinstance(recorded, dict):
        return
    for name, value in recorded.items():
        if name in ("resources_session_id", "agent_session_id", "tool_accesses"):
            assert len(asked[name]) == len(value) or isinstance(value, str)
            continue
        assert without_nulls(asked[name]) == without_nulls(value), name
    assert {k for k, v in asked.items() if v is not None} <= set(recorded)


def without_nulls(value: Any) -> Any:
    """Drop what readers take for the same: nulls, defaults, the kind of a message."""
    if isinstance(value, dict):
        return {
            k: without_nulls(v)
            for k, v in value.items()
            if v is not None
            and (k, v) not in (("type", "message"), ("tool_choice", "auto"))
            and k not in ("parallel_tool_calls", "tools")
        }
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def test_every_scenario_with_an_environment_is_replayed_or_named() -> None:
    if not FILES:
        pytest.skip("the recorded transcripts are not beside this checkout")
    with_client = {
        file.stem
        for file in FILES
        if any(e["hop"] == CLIENT_HOP for e in exchanges(file))
    }

    assert {file.stem for file in scenarios()} == with_client - LEFT
    assert with_client >= LEFT
