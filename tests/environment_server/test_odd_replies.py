# SPDX-License-Identifier: Apache-2.0
"""Replies that no server should give: each is a typed failure, and all are closed."""

import json
from collections.abc import Callable

import pytest
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, Response

from .good_partners import World, fleet, response
from .test_episodes import failure, result

pytestmark = pytest.mark.anyio

DEEP = b'{"a":' + b"[" * 100_000
HALF = "\ud83d"
"""Half a character, as a text that was cut by JavaScript may end."""

ODD: dict[str, Callable[[], Response]] = {
    "in an encoding that nobody asked for": lambda: Response(
        b"junk", headers={"content-encoding": "br"}
    ),
    "with a head that is too long": lambda: JSONResponse({}, headers={"x": "y" * 9000}),
    "nested too deeply": lambda: Response(DEEP),
    "nested too deeply, and an error": lambda: Response(DEEP, 500),
    "with what is no number": lambda: Response(b'{"reward": 1.0, "a": NaN}'),
    "with a number that has no end": lambda: Response(b'{"reward": 1, "a": -1e999}'),
}


@pytest.mark.parametrize("reply", ODD.values(), ids=ODD)
@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("/seed_session", "seed"),
        ("/agent_sessions", "agent"),
        ("/responses", "agent"),
        ("/verify", "verification"),
    ],
)
async def test_an_odd_reply_is_told_as_one_and_everybody_is_closed(
    path: str, stage: str, reply: Callable[[], Response]
) -> None:
    world = World()
    world.answers[path] = reply
    async with fleet(world) as it:
        failed = failure(await it.run())

        assert failed["stage"] == stage
        assert "unexpected" not in str(failed["failure_reason"])
        assert {*world.seeded} == {*world.closed}
        assert it.one.kept_nothing


@pytest.mark.parametrize("reply", ODD.values(), ids=ODD)
async def test_an_odd_reply_to_the_agent_s_close_leaves_nothing_of_the_resources(
    reply: Callable[[], Response],
) -> None:
    world = World()
    world.answers["/agent_sessions/close"] = reply
    async with fleet(world) as it:
        failed = failure(await it.run())

        assert failed["failure_kind"] == "session_release_failed"
        assert {*world.seeded} == {*world.closed}
        assert it.one.kept_nothing


async def test_half_a_character_in_a_reply_is_replaced_and_the_work_is_graded() -> None:
    world = World()
    content = [{"type": "output_text", "text": f"cut {HALF}"}]
    said = {"type": "message", "role": "assistant", "content": content}
    written = json.dumps(response(said)).encode()
    assert rb"\ud83d" in written
    world.answers["/responses"] = lambda: Response(written)
    async with fleet(world) as it:
        found = result(await it.run())

        assert found["reward"] == 1.0
        told = json.dumps(found["response"], ensure_ascii=False)
        assert "cut \N{REPLACEMENT CHARACTER}" in told


async def test_cookies_that_cannot_be_sent_are_not_handed_on() -> None:
    world = World()
    world.answers["/agent_sessions/close"] = lambda: JSONResponse(
        {
            "agent_session_id": world.seeded[0],
            "agent_observations": None,
            "resources_cookies": {"r": "a\r\nb: c", "b\nad": "x", "good": "value"},
        }
    )
    async with fleet(world) as it:
        found = result(await it.run())

        assert found["reward"] == 1.0
        [verify] = [a for a in world.resources.asked if a.path.endswith("/verify")]
        assert "good=value" in verify.headers["cookie"]


async def test_a_cookie_that_was_set_at_the_seed_alone_is_sent_to_the_end() -> None:
    world = World()

    def seeded() -> Response:
        asked = world.agent.asked[-1].body
        reply = JSONResponse({"agent_session_id": asked["agent_session_id"]})
        reply.set_cookie("engine", "seven")
        return reply

    def acted() -> Response:
        reply = JSONResponse(response())
        reply.set_cookie("a", "session")
        return reply

    world.answers["/agent_sessions"] = seeded
    world.answers["/responses"] = acted
    async with fleet(world) as it:
        result(await it.run())

        [close] = [a for a in world.agent.asked if a.path.endswith("/close")]
        assert "engine=seven" in close.headers["cookie"]
        assert "a=session" in close.headers["cookie"]


COOKIE_VALUES = ["a=b", "a;b", "a, b", 'a"b', "a\\b", r"\073", "", '{"a": "\\u00fc"}']


@pytest.mark.parametrize("value", COOKIE_VALUES)
async def test_a_cookie_comes_back_to_its_server_as_it_was_set(value: str) -> None:
    world = World()

    def seeded() -> Response:
        asked = world.resources.asked[-1].body
        told = {"resources_session_id": asked["resources_session_id"]}
        reply = JSONResponse({**told, "resources_tools": None, "sandbox_access": None})
        reply.set_cookie("odd", value)
        reply.set_cookie("r", "plain")
        return reply

    world.answers["/seed_session"] = seeded
    async with fleet(world) as it:
        result(await it.run())

        asked = [
            a for a in world.resources.asked if not a.path.endswith("seed_session")
        ]
        assert len(asked) == 2
        jars = [cookie_parser(each.headers["cookie"]) for each in asked]
        assert jars == [{"odd": value, "r": "plain"}] * 2


async def granted_over_mcp(**metadata: object) -> tuple[World, dict[str, object]]:
    """Run an episode whose resources server tells this of its tools."""
    world = World()

    def seeded() -> Response:
        asked = world.resources.asked[-1].body
        told = {"resources_session_id": asked["resources_session_id"]}
        tools = {"server_name": "desk", "headers": {"x": "t"}, **metadata}
        reply = JSONResponse({**told, "resources_tools": tools, "sandbox_access": None})
        reply.set_cookie("r", "session")
        return reply

    world.answers["/seed_session"] = seeded
    async with fleet(world, resources_tool_transports=("mcp",)) as it:
        reply = await it.run()
    return world, reply.json()


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ({}, "/mcp"),
        ({"url_path": "/tools"}, "/tools"),
        ({"url_path": "tools/mcp"}, "/tools/mcp"),
        ({"url_path": "//tools", "transport": "http"}, "/tools"),
    ],
)
async def test_the_address_of_tools_is_below_its_server_s_however_it_is_told(
    told: dict[str, object], path: str
) -> None:
    world, _ = await granted_over_mcp(**told)

    [seed] = [a.body for a in world.agent.asked if a.path.endswith("/agent_sessions")]
    [access] = seed["tool_accesses"]
    assert access["connection"]["url"] == f"{world.resources.url}{path}"


async def test_tools_over_another_transport_fail_the_seed_and_no_agent_is_asked() -> (
    None
):
    world, row = await granted_over_mcp(transport="sse")

    failed = row["failure"]
    assert isinstance(failed, dict)
    assert (failed["stage"], failed["terminal"]) == ("seed", True)
    assert "sse" in failed["failure_reason"]
    assert world.agent.asked == []
    assert {*world.seeded} == {*world.closed}


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        (
            {"x-livery-outcome": "failed", "x-livery-upstream-failed": "true"},
            "agent_request_failed",
        ),
        ({"x-livery-outcome": "oom"}, "provider_oom_killed"),
    ],
)
async def test_a_turn_that_measures_nothing_is_masked_whoever_graded_it(
    headers: dict[str, str], kind: str
) -> None:
    world = World()
    error = {"code": "server_error", "message": "there was no answer"}
    world.answers["/responses"] = lambda: JSONResponse(
        response(status="failed", error=error), headers=headers
    )
    async with fleet(world) as it:
        found = result(await it.run())

    assert (found["mask_sample"], found["failure_kind"]) == (True, kind)
    assert found["failure_reason"] == "there was no answer"


@pytest.mark.parametrize("outcome", ["completed", "incomplete", "failed", "timeout"])
async def test_what_an_agent_did_itself_is_measured_as_it_was_graded(
    outcome: str,
) -> None:
    world = World()
    world.answers["/responses"] = lambda: JSONResponse(
        response(status="failed"), headers={"x-livery-outcome": outcome}
    )
    async with fleet(world) as it:
        found = result(await it.run())

    assert (found["reward"], found["mask_sample"]) == (1.0, False)
    assert found.get("failure_kind") is None


async def test_a_server_s_own_mask_stands_with_its_reason() -> None:
    world = World()
    world.answers["/responses"] = lambda: JSONResponse(
        response(), headers={"x-livery-upstream-failed": "true"}
    )
    own = {"mask_sample": True, "failure_kind": "judge_failed", "failure_reason": "j"}
    world.answers["/verify"] = lambda: JSONResponse({"reward": 0.0, **own})
    async with fleet(world) as it:
        found = result(await it.run())

    assert {word: found[word] for word in own} == own
