# SPDX-License-Identifier: Apache-2.0
"""The loop: ask, call, tell, until no tool is called; and whose fault it was if not."""

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, Response

from livery.adapters.harnesses.simple import (
    ScriptRefused,
    SimpleConfig,
    SimpleHarness,
    read_script,
)
from livery.domain.activations import Outcome, Stillness
from livery.ports.required.harness import Place, RequestRefused

from .servers import (
    HELLO,
    TOOL,
    answer,
    attempt,
    bodies,
    call,
    chat,
    config,
    methods,
    read,
    run,
    said,
    serving,
    use_case,
)

pytestmark = pytest.mark.anyio


async def test_tools_are_called_over_direct_http_until_the_model_is_done() -> None:
    first = answer(call("weigh", thing="a"), call("weigh", 2, thing="b"))
    async with serving(first, answer(said("Both."))) as servers:
        asked = attempt(
            servers.direct(), parameters={"input": [HELLO], "tools": [TOOL]}
        )
        done = await run(SimpleHarness(config=config(servers)), asked)

        assert done.ending.outcome is Outcome.COMPLETED
        assert done.ending.stillness is Stillness.NOTHING_RAN
        assert done.kinds == [
            *["function_call"] * 2,
            *["function_call_output"] * 2,
            "message",
        ]
        assert [json.loads(text) for text in done.results] == [
            {"asked": {"thing": "a"}},
            {"asked": {"thing": "b"}},
        ]
        assert servers.tools.paths == ["/weigh", "/weigh"]
        headers = [each.headers for each in servers.tools.asked]
        assert headers[0]["x-token"] == "t"
        assert [h["cookie"] for h in headers] == ['jar="first="', "jar=second"]
        second = bodies(servers.model)[1]
        assert second["tools"] == [TOOL]
        assert second["model"] == "m"
        assert [item["type"] for item in second["input"]] == [
            "message",
            *["function_call"] * 2,
            *["function_call_output"] * 2,
        ]
        assert done.response["usage"]["total_tokens"] == 10
        assert done.response["usage"]["input_tokens_details"] == {"cached_tokens": 2}
        assert done.response["model"] == "m-1"


@pytest.mark.parametrize("events", [False, True])
async def test_tools_are_called_over_mcp(events: bool) -> None:
    first = answer(call("weigh", thing="a"), call("lift", 2, refuse=True))
    async with serving(first, answer(said("Done."))) as servers:
        servers.events = events
        asked = attempt(servers.over_mcp())
        done = await run(SimpleHarness(config=config(servers)), asked)

        assert done.ending.outcome is Outcome.COMPLETED
        assert json.loads(done.results[0]) == {
            "name": "weigh",
            "arguments": {"thing": "a"},
        }
        assert methods(servers.mcp.asked) == [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/list",
            "tools/call",
            "tools/call",
        ]
        told = [each.headers for each in servers.mcp.asked]
        assert {each["authorization"] for each in told} == {"Bearer t"}
        assert told[-1]["mcp-session-id"] == "s-1"
        names = [tool["name"] for tool in bodies(servers.model)[0]["tools"]]
        assert names == ["weigh", "lift"]
        calls = [r for r in done.bundle["records"] if r["kind"] == "tool_call"]
        assert [one["status"] for one in calls] == ["completed", "failed"]


@pytest.mark.case("FC-179")
async def test_the_model_s_server_gets_its_cookies_back_for_a_whole_activation() -> (
    None
):
    first = JSONResponse(answer(call("weigh", thing="a")))
    first.set_cookie("engine", "seven=7")
    busy = Response(status_code=503)
    busy.set_cookie("turn", "2")
    replies = (first, busy, answer(call("weigh", 2, thing="b")), answer(said("D.")))
    async with serving(*replies) as servers:
        harness = SimpleHarness(config=config(servers))
        await run(harness, attempt(servers.direct()))
        sent = [each.headers.get("cookie", "") for each in servers.model.asked]
        servers.answers.append(answer(said("Another.")))
        await run(harness, attempt(servers.direct()))

        assert [cookie_parser(one) for one in sent] == [
            {},
            {"engine": "seven=7"},
            *[{"engine": "seven=7", "turn": "2"}] * 2,
        ]
        assert "cookie" not in servers.model.asked[-1].headers
        assert all("engine" not in a.headers["cookie"] for a in servers.tools.asked)


async def test_a_cookie_of_a_tool_comes_back_to_it_as_it_was_set() -> None:
    value = r'a;b "c" \d'
    twice = answer(call("weigh", thing="a"), call("weigh", 2, thing="b"))
    async with serving(twice, answer(said("Both."))) as servers:
        servers.tool = JSONResponse({})
        servers.tool.set_cookie("jar", value)
        await run(SimpleHarness(config=config(servers)), attempt(servers.direct()))

        second = servers.tools.asked[1].headers["cookie"]
        assert cookie_parser(second) == {"jar": value}


async def test_times_are_seconds_since_the_epoch_as_the_protocol_has_them() -> None:
    began = time.time()
    async with serving(answer(call("weigh", thing="a")), answer(said("D."))) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        [seen] = [r for r in done.bundle["records"] if r["kind"] == "tool_call"]
        assert isinstance(seen["started_at"], float)
        assert began <= seen["started_at"] <= seen["completed_at"] <= time.time()
        assert seen["duration_ms"] >= 0


async def test_two_servers_with_a_tool_of_one_name_are_told_apart() -> None:
    first = answer(call("second__weigh"))
    async with serving(first, answer(said("Done."))) as servers:
        asked = attempt(servers.over_mcp("first"), servers.over_mcp("second"))
        done = await run(SimpleHarness(config=config(servers)), asked)

        names = [tool["name"] for tool in bodies(servers.model)[0]["tools"]]
        assert names == ["weigh", "lift", "second__weigh", "second__lift"]
        assert json.loads(done.results[0])["name"] == "weigh"


async def test_what_the_request_says_of_a_tool_stands() -> None:
    async with serving(answer(call("weigh")), answer(said("Done."))) as servers:
        asked = attempt(servers.over_mcp(), parameters={"input": "x", "tools": [TOOL]})
        done = await run(SimpleHarness(config=config(servers)), asked)

        told = bodies(servers.model)[0]["tools"]
        assert [tool["name"] for tool in told] == ["weigh", "lift"]
        assert told[0] == TOOL
        assert json.loads(done.results[0])["name"] == "weigh"


@pytest.mark.parametrize("required", [True, False])
async def test_a_tool_server_that_is_not_there_is_no_fault_of_the_agent(
    required: bool,
) -> None:
    async with serving(answer(said("Done."))) as servers:
        servers.mcp_down = True
        asked = attempt(servers.over_mcp(required=required))
        done = await run(SimpleHarness(config=config(servers)), asked)

        if required:
            assert done.ending.outcome is Outcome.FAILED
            assert done.ending.upstream_failed
            assert "office" in done.ending.reason
            assert not servers.model.asked
        else:
            assert done.ending.outcome is Outcome.COMPLETED
            (gap,) = done.bundle["gaps"]
            assert gap["code"] == "tools_missing"


async def test_a_tool_server_that_is_lost_on_the_way_masks_the_activation() -> None:
    first = answer(call("weigh"))
    async with serving(first) as servers:
        access = servers.direct()
        object.__setattr__(access, "url", "http://127.0.0.1:9/")
        done = await run(SimpleHarness(config=config(servers)), attempt(access))

        assert done.ending.upstream_failed
        assert done.kinds == ["function_call"], "what was done until then is kept"
        record = done.bundle["records"][1]
        assert record["status"] == "incomplete"


@pytest.mark.parametrize("status", [409, 502])
async def test_a_refusal_of_a_tool_is_told_to_the_model(status: int) -> None:
    async with serving(answer(call("weigh")), answer(said("Oh."))) as servers:
        servers.tool = JSONResponse({"detail": "It is over."}, status)
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert done.ending.outcome is Outcome.COMPLETED
        assert done.results == ['{"detail":"It is over."}']


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"'])
async def test_arguments_that_are_none_are_told_and_not_sent(arguments: str) -> None:
    wrong = {**call("weigh"), "arguments": arguments}
    async with serving(answer(wrong), answer(said("Oh."))) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert "arguments" in done.results[0]
        assert not servers.tools.asked


@pytest.mark.parametrize("name", ["verify", "close_session", "seed_session", ""])
async def test_no_model_drives_its_own_session_by_a_name_that_it_makes_up(
    name: str,
) -> None:
    async with serving(answer(call(name)), answer(said("Oh."))) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert done.results == [f"There is no tool {name!r}."]
        assert not servers.tools.asked


async def test_a_tool_of_such_a_name_is_called_where_the_request_describes_it() -> None:
    tool = {"type": "function", "name": "verify", "parameters": {"type": "object"}}
    async with serving(answer(call("verify")), answer(said("Oh."))) as servers:
        asked = attempt(
            servers.direct(), parameters={"input": "hello", "tools": [tool]}
        )
        await run(SimpleHarness(config=config(servers)), asked)

        assert len(servers.tools.asked) == 1


async def test_a_tool_that_nobody_granted_is_told_as_such() -> None:
    async with serving(answer(call("weigh")), answer(said("Oh."))) as servers:
        done = await run(SimpleHarness(config=config(servers)), attempt())

        assert done.results == ["There is no tool 'weigh'."]


async def test_a_step_is_one_call_to_the_model_and_its_tools() -> None:
    async with serving(answer(call("weigh"))) as servers:
        harness = SimpleHarness(config=config(servers, stepwise=True))
        done = await run(harness, attempt(servers.direct()))

        assert harness.stepwise
        assert done.ending.outcome is Outcome.COMPLETED
        assert done.kinds == ["function_call", "function_call_output"]


async def test_a_loop_has_an_end() -> None:
    answers = [answer(call("weigh")) for _ in range(3)]
    async with serving(*answers) as servers:
        harness = SimpleHarness(config=config(servers, max_steps=3))
        done = await run(harness, attempt(servers.direct()))

        assert done.ending.outcome is Outcome.INCOMPLETE
        assert len(servers.model.asked) == 3


async def test_an_answer_that_was_cut_is_the_last() -> None:
    cut = answer(call("weigh"), status="incomplete")
    async with serving(cut) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert done.ending.outcome is Outcome.INCOMPLETE
        assert not done.ending.upstream_failed
        assert not servers.tools.asked


async def test_a_model_that_comes_back_is_asked_again() -> None:
    busy = JSONResponse({"error": "busy"}, 429)
    async with serving(busy, answer(said("Here."))) as servers:
        done = await run(SimpleHarness(config=config(servers)), attempt())

        assert done.ending.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (JSONResponse({"error": "no such model"}, 404), "no such model"),
        (Response("[]"), "no JSON object"),
        (Response("no json"), "no JSON"),
        (JSONResponse({"hello": "world"}), "no Responses object"),
        (JSONResponse(answer(status="failed", error={"code": "x"})), "code"),
    ],
)
@pytest.mark.case("FC-247")
async def test_a_model_that_fails_is_not_the_agents_fault(
    reply: Response, word: str
) -> None:
    async with serving(reply) as servers:
        done = await run(SimpleHarness(config=config(servers)), attempt())

        assert done.ending.outcome is Outcome.FAILED
        assert done.ending.upstream_failed
        assert word in done.ending.reason


@pytest.mark.case("FC-191")
async def test_a_conversation_that_is_too_long_is_the_agents_own_end() -> None:
    refused = JSONResponse({"error": {"code": "context_length_exceeded"}}, 400)
    async with serving(answer(call("weigh")), refused) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert done.ending.outcome is Outcome.INCOMPLETE
        assert not done.ending.upstream_failed
        assert done.kinds == ["function_call", "function_call_output"]


@pytest.mark.case("FC-182")
async def test_items_of_unknown_kinds_are_passed_on_untouched() -> None:
    unknown = {"type": "thought_of_next_year", "id": "t", "depth": [1, {"a": None}]}
    first = answer(unknown, call("weigh"))
    async with serving(first, answer(said("Done."))) as servers:
        done = await run(
            SimpleHarness(config=config(servers)), attempt(servers.direct())
        )

        assert done.response["output"][0] == unknown
        assert unknown in bodies(servers.model)[1]["input"]


async def test_the_time_of_a_turn_is_kept() -> None:
    async with serving() as servers:
        servers.hang = True
        harness = SimpleHarness(config=config(servers, timeout_seconds=0.2))
        done = await run(harness, attempt())

        assert done.ending.outcome is Outcome.TIMEOUT
        assert not done.ending.upstream_failed


async def test_what_was_done_until_it_was_cancelled_is_kept() -> None:
    async with serving(answer(call("weigh"))) as servers:
        use = use_case(SimpleHarness(config=config(servers)))
        asked = attempt(servers.direct())
        async with anyio.create_task_group() as group:
            group.start_soon(use, asked)
            for _ in range(4000):
                if servers.tools.asked:
                    break
                await anyio.sleep(0.005)
            servers.hang = True
            group.cancel_scope.cancel()
        stopped = read(await use.stop(asked))
        again = read(await use.stop(asked))

        assert stopped.ending.outcome is Outcome.CANCELLED
        assert stopped.kinds[0] == "function_call"
        assert again.ending.outcome is Outcome.CANCELLED
        assert again.response["output"] == []


async def test_a_run_of_a_dead_process_is_over() -> None:
    async with serving() as servers:
        harness = SimpleHarness(config=config(servers))
        done = await run(harness, attempt(fresh=False))

        assert done.ending.outcome is Outcome.CANCELLED
        assert not servers.model.asked


async def test_it_speaks_chat_completions_as_well() -> None:
    first = {
        "id": "c1",
        "model": "m-2",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Let me see.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "weigh", "arguments": '{"a": 1}'},
                        },
                        {
                            "id": "call_2",
                            "type": "function",
                            "function": {"name": "weigh", "arguments": "{}"},
                        },
                    ],
                },
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 6,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }
    last = {"choices": [{"finish_reason": "stop", "message": {"content": "Done."}}]}
    parameters: dict[str, Any] = {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "instructions": "Be brief.",
        "tools": [TOOL],
        "tool_choice": {"type": "function", "name": "weigh"},
        "max_output_tokens": 7,
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": True,
    }
    async with serving(first, last) as servers:
        asked = attempt(servers.direct(), parameters=parameters)
        done = await run(SimpleHarness(config=chat(servers)), asked)

        assert done.ending.outcome is Outcome.COMPLETED
        assert servers.model.paths == ["/v1/chat/completions"] * 2
        one, two = bodies(servers.model)
        assert one["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ]
        assert one["tools"][0]["function"]["name"] == "weigh"
        assert one["tool_choice"] == {
            "type": "function",
            "function": {"name": "weigh"},
        }
        assert one["max_completion_tokens"] == 7
        assert one["reasoning_effort"] == "low"
        roles = [message["role"] for message in two["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool"]
        assert len(two["messages"][2]["tool_calls"]) == 2
        assert done.response["usage"]["input_tokens"] == 5
        assert done.kinds == [
            "message",
            *["function_call"] * 2,
            *["function_call_output"] * 2,
            "message",
        ]


async def test_a_chat_without_tools_says_nothing_of_them() -> None:
    last = {"choices": [{"finish_reason": "length", "message": {"content": "Do"}}]}
    async with serving(last) as servers:
        asked = attempt(parameters={"input": "x", "parallel_tool_calls": True})
        done = await run(SimpleHarness(config=chat(servers)), asked)

        assert done.ending.outcome is Outcome.INCOMPLETE
        assert not {"tools", "parallel_tool_calls"} & set(bodies(servers.model)[0])


@pytest.mark.parametrize(
    "told",
    [{}, {"choices": []}, {"choices": [1]}, {"choices": [{"message": 1}]}],
)
async def test_what_is_no_chat_completion_is_the_servers_failure(told: Any) -> None:
    async with serving(told) as servers:
        done = await run(SimpleHarness(config=chat(servers)), attempt())

        assert done.ending.upstream_failed


async def test_the_credential_goes_to_the_model_and_nowhere_else() -> None:
    async with serving(answer(call("weigh")), answer(said("ok"))) as servers:
        harness = SimpleHarness(
            config=config(servers, credential="s3cret", rollout_prefix=True)
        )
        done = await run(harness, attempt(servers.direct()))

        assert servers.model.paths == ["/ng-rollout/r1/v1/responses"] * 2
        sent = {each.headers["authorization"] for each in servers.model.asked}
        assert sent == {"Bearer s3cret"}
        assert "authorization" not in servers.tools.asked[0].headers
        assert "s3cret" not in f"{done}{harness}"


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": "x", "stream": True}, "stream"),
        ({"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_place(
    parameters: dict[str, Any], field: str
) -> None:
    harness = SimpleHarness(config=SimpleConfig(model_url="http://h"))

    with pytest.raises(RequestRefused) as refused:
        harness.check(attempt(parameters=parameters).request)

    assert refused.value.field == f"responses_create_params.{field}"


async def test_a_script_stands_in_for_a_model(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    script = {
        "1": [
            {"calls": [{"name": "weigh", "arguments": {"a": 1}}, {"name": "lift"}]},
            {"text": "Now.", "calls": [{"name": "lift"}]},
        ],
        "*": [{"text": "Anything."}],
    }
    path.write_text(json.dumps(script))
    async with serving() as servers:
        harness = SimpleHarness(config=SimpleConfig(), script=read_script(path))
        done = await run(harness, attempt(servers.over_mcp()))
        other = await run(harness, attempt(task="2"))

        assert done.kinds == [
            *["function_call"] * 2,
            *["function_call_output"] * 2,
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]
        last = done.response["output"][-1]
        assert last["content"][0]["text"] == "Done."
        assert other.response["output"][0]["content"][0]["text"] == "Anything."


async def test_a_script_goes_on_where_the_conversation_stands(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(
        json.dumps({"*": [{"calls": [{"name": "weigh"}]}, {"text": "Second."}]})
    )
    async with serving() as servers:
        harness = SimpleHarness(
            config=SimpleConfig(stepwise=True), script=read_script(path)
        )
        first = await run(harness, attempt(servers.direct()))
        parameters = {"input": [HELLO, *first.response["output"]]}
        second = await run(harness, attempt(servers.direct(), parameters=parameters))

        assert first.kinds == ["function_call", "function_call_output"]
        assert second.response["output"][0]["content"][0]["text"] == "Second."


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"a": 1}',
        '{"a": [1]}',
        '{"a": [{"words": "x"}]}',
        '{"a": [{"text": 1}]}',
        '{"a": [{"calls": 1}]}',
        '{"a": [{"calls": [1]}]}',
        '{"a": [{"calls": [{}]}]}',
        '{"a": [{"calls": [{"name": "x", "arguments": 1}]}]}',
    ],
)
def test_what_is_no_script_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)

    with pytest.raises(ScriptRefused, match=r"script\.json"):
        read_script(path)


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptRefused):
        read_script(tmp_path / "none.json")


async def test_nothing_is_put_into_a_sandbox() -> None:
    harness = SimpleHarness(config=SimpleConfig())
    launch = await harness.prepare(attempt().request, Place(workdir="/", scratch="/"))

    assert launch.run is None
    assert harness.needs == frozenset()
