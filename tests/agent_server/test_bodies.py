# SPDX-License-Identifier: Apache-2.0
"""Bodies are read strictly, and what is wrong is told with its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.domain.agent_sessions import AgentSessionId
from livery.domain.tasks import EpisodeId, TaskId
from livery.entrypoints.agent_server.messages import (
    to_close,
    to_parameters,
    to_seed,
)
from livery.entrypoints.http_serving.answers import place_of
from livery.entrypoints.http_serving.bodies import BodyRefused
from livery.ports.required.harness import ToolAccess, ToolTransport
from livery.ports.required.sandbox import SandboxAccess

from .scripted import seed

DIRECT = {
    "kind": "direct_http",
    "name": "d",
    "required": False,
    "base_url": "http://h/",
    "cookies": {"a": "1=", "b": "2"},
    "headers": {"X": "y"},
}
MCP = {
    "kind": "mcp",
    "name": "m",
    "required": True,
    "connection": {"url": "http://h/mcp", "headers": {"T": "t"}},
}
ACCESS = {
    "connection": {
        "provider_config_ref": "box",
        "descriptor": {"sandbox_id": "x", "ports": [1], "none": None},
    },
    "workdir": "/w",
}


def mistakes(body: object) -> list[tuple[str, tuple[str | int, ...]]]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(BodyRefused) as caught:
        to_seed(text)
    return [(one.type, one.loc) for one in caught.value.mistakes]


def with_(**changes: Any) -> dict[str, object]:
    return seed(**changes)


def test_a_seed_is_read_whole() -> None:
    body = with_(tool_accesses=[DIRECT, MCP], sandbox_access=ACCESS)

    read = to_seed(json.dumps(body).encode())

    assert read.session == AgentSessionId("s1")
    assert read.episode == EpisodeId("r1", 0)
    assert read.grant.task == TaskId("set", "1")
    assert read.grant.access == SandboxAccess(
        provider="box", descriptor={"sandbox_id": "x", "ports": "[1]"}, workdir="/w"
    )
    assert read.grant.tools == (
        ToolAccess(
            transport=ToolTransport.DIRECT_HTTP,
            name="d",
            url="http://h/",
            headers={"X": "y"},
            cookies={"a": "1=", "b": "2"},
            required=False,
        ),
        ToolAccess(
            transport=ToolTransport.MCP,
            name="m",
            url="http://h/mcp",
            headers={"T": "t"},
            required=True,
        ),
    )


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", [("missing", ())]),
        (b"{", [("json_invalid", ())]),
        (b'{"a": NaN}', [("json_invalid", ())]),
        (b'{"a": [1e999]}', [("json_invalid", ())]),
        (b'{"a": -1e999}', [("json_invalid", ())]),
        (b'"\\ud800"', [("json_invalid", ())]),
        (b"\xff", [("json_invalid", ())]),
        (b"[" * 100_000, [("json_invalid", ())]),
        ([], [("model_attributes_type", ())]),
        (
            {},
            [
                ("missing", ("agent_session_id",)),
                ("missing", ("episode_id",)),
                ("missing", ("task_id",)),
            ],
        ),
        (with_(extra=1), [("extra_forbidden", ("extra",))]),
        (with_(agent_session_id=7), [("string_type", ("agent_session_id",))]),
        (with_(agent_session_id=""), [("string_too_short", ("agent_session_id",))]),
        (
            with_(agent_session_id="x" * 513),
            [("string_too_long", ("agent_session_id",))],
        ),
        (
            with_(episode_id={"rollout_id": "a b"}),
            [("string_pattern_mismatch", ("episode_id", "rollout_id"))],
        ),
        (
            with_(episode_id={"rollout_id": "a\n"}),
            [("string_pattern_mismatch", ("episode_id", "rollout_id"))],
        ),
        (
            with_(episode_id={"rollout_id": "a-a2"}),
            [("value_error", ("episode_id", "rollout_id"))],
        ),
        (
            with_(episode_id={"rollout_id": "a", "attempt": -1}),
            [("greater_than_equal", ("episode_id", "attempt"))],
        ),
        (
            with_(episode_id={"rollout_id": "a", "attempt": 2**31}),
            [("less_than_equal", ("episode_id", "attempt"))],
        ),
        (
            with_(episode_id={"rollout_id": "a", "attempt": True}),
            [("int_type", ("episode_id", "attempt"))],
        ),
        (with_(tool_accesses={}), [("list_type", ("tool_accesses",))]),
        (with_(tool_accesses=[1]), [("model_attributes_type", ("tool_accesses", 0))]),
        (with_(tool_accesses=[{}]), [("union_tag_not_found", ("tool_accesses", 0))]),
        (
            with_(tool_accesses=[{"kind": "x"}]),
            [("union_tag_invalid", ("tool_accesses", 0))],
        ),
        (
            with_(tool_accesses=[{**DIRECT, "required": 1}]),
            [("bool_type", ("tool_accesses", 0, "direct_http", "required"))],
        ),
        (
            with_(tool_accesses=[{**DIRECT, "headers": {"a": 1}}]),
            [("string_type", ("tool_accesses", 0, "direct_http", "headers", "a"))],
        ),
        (
            with_(tool_accesses=[{**DIRECT, "base_url": "file:///etc/passwd"}]),
            [
                (
                    "string_pattern_mismatch",
                    ("tool_accesses", 0, "direct_http", "base_url"),
                )
            ],
        ),
        (
            with_(tool_accesses=[{**MCP, "connection": {"url": "http:///mcp"}}]),
            [
                (
                    "string_pattern_mismatch",
                    ("tool_accesses", 0, "mcp", "connection", "url"),
                )
            ],
        ),
        (
            with_(tool_accesses=[DIRECT, {**MCP, "name": "d"}]),
            [("value_error", ("tool_accesses",))],
        ),
        (
            with_(
                sandbox_access={
                    **ACCESS,
                    "connection": {**ACCESS["connection"], "kind": "relayed"},  # type: ignore[dict-item]
                }
            ),
            [("literal_error", ("sandbox_access", "connection", "kind"))],
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    body: object, told: list[tuple[str, tuple[str | int, ...]]]
) -> None:
    assert mistakes(body) == told


def test_a_whole_number_may_be_written_with_a_point() -> None:
    body = (
        b'{"agent_session_id": "s", "episode_id": {"rollout_id": "r", "attempt": 1.0}}'
    )

    assert to_close(body).episode == EpisodeId("r", 1)


@pytest.mark.parametrize("body", [b"{}", b'{"input": null}', b'{"input": 1}'])
def test_an_activation_needs_an_input(body: bytes) -> None:
    with pytest.raises(BodyRefused) as caught:
        to_parameters(body)

    assert caught.value.mistakes[0].loc == ("input",)


def test_a_field_that_a_harness_names_has_its_place() -> None:
    assert place_of("responses_create_params.input[1].content[0]") == (
        "input",
        1,
        "content",
        0,
    )
    assert place_of("metadata.x") == ("metadata", "x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    | st.fixed_dictionaries(
        {},
        optional={
            name: st.just(value) | st.integers() | st.text() | st.lists(st.integers())
            for name, value in with_(tool_accesses=[MCP], sandbox_access=ACCESS).items()
        },
    )
)
def test_any_body_is_read_or_refused_in_json(value: object) -> None:
    for read in (to_seed, to_close, to_parameters):
        try:
            told: object = read(json.dumps(value).encode())
        except BodyRefused as refused:
            told = json.dumps([one.told() for one in refused.mistakes])
        assert told


@pytest.mark.parametrize("found", [5, 5.5, True, ["x"], {}])
def test_the_id_of_a_lent_sandbox_is_text(found: object) -> None:
    connection = {"provider_config_ref": "b", "descriptor": {"sandbox_id": found}}

    assert mistakes(with_(sandbox_access={**ACCESS, "connection": connection})) == [
        ("string_type", ("sandbox_access", "connection", "descriptor", "sandbox_id"))
    ]


@pytest.mark.case("FC-080")
def test_a_word_of_a_descriptor_cannot_be_one_of_ours() -> None:
    for word in ("livery.claim", "livery.owner", "livery.expires", "livery."):
        words = {"sandbox_id": "x", word: "y", "livery.shared": "true"}
        connection = {"provider_config_ref": "b", "descriptor": words}
        access = {**ACCESS, "connection": connection}

        assert mistakes(with_(sandbox_access=access)) == [
            ("value_error", ("sandbox_access", "connection", "descriptor", word))
        ]


@pytest.mark.case("FC-253")
def test_what_may_be_left_out_decides_no_choice() -> None:
    direct = {
        "kind": "direct_http",
        "name": "d",
        "required": True,
        "base_url": "http://h/",
    }
    mcp = {
        "kind": "mcp",
        "name": "m",
        "required": True,
        "connection": {"url": "http://u"},
    }
    access = {
        "connection": {"provider_config_ref": "b", "descriptor": {}},
        "workdir": "/w",
    }
    spelled = {
        **access,
        "connection": {**access["connection"], "kind": "direct"},  # type: ignore[dict-item]
    }
    bodies = [
        with_(tool_accesses=[direct, mcp], sandbox_access=access),
        with_(
            tool_accesses=[
                {**direct, "cookies": {}, "headers": {}},
                {
                    **mcp,
                    "connection": {
                        "url": "http://u",
                        "transport": "streamable_http",
                        "headers": {},
                    },
                },
            ],
            sandbox_access=spelled,
        ),
    ]

    short, long = (to_seed(json.dumps(body).encode()) for body in bodies)

    assert short == long
    assert [tool.transport for tool in short.grant.tools] == ["direct_http", "mcp"]


@pytest.mark.case("FC-250", "FC-251")
def test_a_misspelt_field_and_a_text_for_a_list_are_named() -> None:
    body = with_(sandbox_acess=None, tool_accesses="direct_http")

    assert mistakes(body) == [
        ("extra_forbidden", ("sandbox_acess",)),
        ("list_type", ("tool_accesses",)),
    ]
