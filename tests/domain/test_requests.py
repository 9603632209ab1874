# SPDX-License-Identifier: Apache-2.0
"""Requests: one digest for one request, defaults written or not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.domain.requests import DEFAULTS, request_digest, with_defaults

TRANSCRIPT = Path(__file__).parents[3] / "shared/gym-transcripts/20-happy-no-tools.json"
FILLED_IN = json.loads("""{
  "background": null, "include": null,
  "input": [{"content": "hello", "role": "user", "type": "message", "phase": null}],
  "instructions": null, "max_output_tokens": null, "metadata": null, "model": null,
  "parallel_tool_calls": true, "previous_response_id": null, "reasoning": null,
  "temperature": null, "text": null, "tool_choice": "auto", "tools": [],
  "top_p": null, "user": null, "stream": null
}""")
"""A request as NeMo Gym writes it back, its defaults filled in."""

MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "developer", "assistant"]),
        "content": st.one_of(
            st.text(max_size=5),
            st.lists(
                st.fixed_dictionaries(
                    {"type": st.just("input_text"), "text": st.text(max_size=5)}
                ),
                max_size=2,
            ),
        ),
    }
)
TOOLS = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "name": st.text(max_size=3),
        "parameters": st.dictionaries(
            st.sampled_from(["type", "default", "properties"]),
            st.one_of(st.none(), st.text(max_size=3)),
            max_size=2,
        ),
    }
)
BODIES = st.fixed_dictionaries(
    {"input": st.one_of(st.text(max_size=5), st.lists(MESSAGES, max_size=3))},
    optional={
        "tools": st.lists(TOOLS, max_size=2),
        "temperature": st.sampled_from([0, 0.5, 1]),
        "tool_choice": st.sampled_from(["auto", "none", "required"]),
        "parallel_tool_calls": st.booleans(),
        "metadata": st.dictionaries(st.text(max_size=2), st.text(max_size=2)),
        "reasoning": st.fixed_dictionaries(
            {"effort": st.sampled_from(["low", "high"])}
        ),
    },
)


def test_a_request_is_the_one_that_nemo_gym_fills_in() -> None:
    short = {"input": [{"role": "user", "content": "hello"}]}

    assert with_defaults(short) == with_defaults(FILLED_IN)
    assert request_digest({"input": "hello"}) == request_digest(FILLED_IN)


def test_a_recorded_request_is_the_one_that_was_sent() -> None:
    if not TRANSCRIPT.exists():
        pytest.skip("the recorded exchanges are not at hand")
    exchanges = json.loads(TRANSCRIPT.read_text(encoding="utf-8"))["exchanges"]
    run = exchanges[0]
    sent = run["request"]["body"]["task"]["task_input"]["responses_create_params"]
    turn = next(each for each in exchanges if each["path"].endswith("/v1/responses"))
    filled_in = run["response"]["body"]["result"]["responses_create_params"]

    digests = {
        request_digest(each) for each in (sent, turn["request"]["body"], filled_in)
    }

    assert len(digests) == 1


@given(body=BODIES)
def test_filling_in_twice_is_filling_in_once(body: dict[str, Any]) -> None:
    assert with_defaults(with_defaults(body)) == with_defaults(body)


@given(body=BODIES, written=st.sets(st.sampled_from(sorted(DEFAULTS))))
def test_a_default_that_is_written_does_not_count(
    body: dict[str, Any], written: set[str]
) -> None:
    longer = {key: DEFAULTS[key] for key in written} | body

    assert request_digest(longer) == request_digest(body)


@given(
    body=BODIES,
    nulls=st.sets(st.sampled_from(["model", "stream", "user", "prompt", "whatever"])),
)
def test_a_null_is_nothing(body: dict[str, Any], nulls: set[str]) -> None:
    assert request_digest(dict.fromkeys(nulls) | body) == request_digest(body)


@given(messages=st.lists(MESSAGES, min_size=1, max_size=3))
def test_a_null_in_a_message_or_its_parts_is_nothing(
    messages: list[dict[str, Any]],
) -> None:
    longer = [
        {
            **message,
            "type": "message",
            "phase": None,
            "content": message["content"]
            if isinstance(message["content"], str)
            else [{**part, "logprobs": None} for part in message["content"]],
        }
        for message in messages
    ]

    assert request_digest({"input": longer}) == request_digest({"input": messages})


@given(body=BODIES)
def test_the_order_of_keys_and_spacing_do_not_count(body: dict[str, Any]) -> None:
    other = json.loads(json.dumps(dict(reversed(body.items())), indent=3))

    assert request_digest(other) == request_digest(body)


@given(text=st.text())
def test_a_text_is_one_message_of_the_user(text: str) -> None:
    assert with_defaults({"input": text})["input"] == [
        {"role": "user", "content": text, "type": "message"}
    ]


@pytest.mark.case("FC-110")
@pytest.mark.parametrize(
    "change",
    [
        {"input": "hello!"},
        {"input": [{"role": "developer", "content": "hello"}]},
        {"input": [{"role": "user", "content": "hello", "phase": "commentary"}]},
        {"input": [{"role": "user", "content": "hello"}] * 2},
        {"input": []},
        {"model": "other"},
        {"temperature": 0},
        {"tool_choice": "none"},
        {"parallel_tool_calls": False},
        {"metadata": {"a": "b"}},
        {"tools": [{"type": "function", "name": "f"}]},
        {"stream": False},
    ],
)
def test_any_real_difference_counts(change: dict[str, Any]) -> None:
    body = {"input": "hello"}

    assert request_digest(body | change) != request_digest(body)


def test_a_null_in_the_schema_of_a_tool_is_the_callers_own() -> None:
    def asking(schema: dict[str, Any]) -> dict[str, Any]:
        tool = {"type": "function", "name": "f", "parameters": schema}
        return {"input": "hello", "tools": [tool]}

    assert request_digest(asking({"default": None})) != request_digest(asking({}))
    assert request_digest(asking({"enum": [None]})) != request_digest(
        asking({"enum": []})
    )


@given(body=BODIES)
def test_the_body_that_was_given_is_not_changed(body: dict[str, Any]) -> None:
    before = json.dumps(body)

    with_defaults(body)

    assert json.dumps(body) == before
    assert with_defaults({})["tools"] is not with_defaults({})["tools"]
