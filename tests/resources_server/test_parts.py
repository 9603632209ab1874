# SPDX-License-Identifier: Apache-2.0
"""The parts that the resources server is made of, each by itself."""

import json
import logging
import time
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs
import pytest

from livery.adapters.no_sandboxes import NoSandboxProvider
from livery.adapters.system_clock import SystemClock
from livery.adapters.worlds.desk import DeskTasks, DeskWorld
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.digests import Json
from livery.domain.resources_sessions import ResourcesSessionId
from livery.entrypoints.http_serving.bodies import BodyRefused
from livery.entrypoints.resources_server.documentation import guide
from livery.entrypoints.resources_server.messages import to_rows
from livery.entrypoints.resources_server.metrics import DROPPED, SERIES_MAX, aggregate
from livery.entrypoints.resources_server.networks import is_trusted
from livery.entrypoints.resources_server.tokens import SessionTokens
from livery.entrypoints.trusted_networks import to_networks
from livery.ports.provided.keyed_locks import KeyedLocks
from livery.ports.provided.session_apps import AppsUnusable, SessionApps
from livery.ports.provided.take_turns import TakeTurns
from livery.ports.provided.tool_arguments import check_arguments
from livery.ports.required.apps import BuildWhere, Reach, Reaching, Tool, ToolRefused
from livery.ports.required.sandbox import SandboxAccess
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec, Unsupported
from livery.ports.required.world import TaskRefused

from .serving import BoxWorld

pytestmark = pytest.mark.anyio

SESSION = ResourcesSessionId("s1")
LOOK_SECONDS = 1.0
"""For a million characters: the loop serves nobody else meanwhile."""


# Turns and locks.


async def test_turns_are_taken_in_order_and_each_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = TakeTurns(clock=SystemClock())
    order: list[int] = []

    async def build(number: int) -> int:
        order.append(number)
        await anyio.lowlevel.checkpoint()
        return number

    with caplog.at_level(logging.INFO):
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(turns, lambda number=number: build(number))

    places = [
        r.message.split()[1] for r in caplog.records if "were before" in r.message
    ]
    assert order == list(range(5))
    assert places == ["0", "1", "2", "3", "4"]


async def test_others_are_served_between_turns() -> None:
    turns = TakeTurns(clock=SystemClock(), yield_seconds=5.0)
    served: list[str] = []

    async def other() -> None:
        for number in range(50):
            served.append(f"request {number}")
            await anyio.lowlevel.checkpoint()

    async def build() -> None:
        served.append("built")

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        group.start_soon(turns, build)
        group.start_soon(turns, build)

    between = served.index("built"), len(served) - 1 - served[::-1].index("built")
    assert between[0] > 0, "whoever waited went first"


async def test_others_are_served_for_so_long_and_no_longer() -> None:
    turns = TakeTurns(clock=SystemClock(), yield_seconds=0.05)
    over = anyio.Event()

    async def busy() -> None:
        deadline = anyio.current_time() + 0.002
        while not over.is_set():
            while anyio.current_time() < deadline:
                continue
            deadline = anyio.current_time() + 0.002
            await anyio.lowlevel.checkpoint()

    async def build() -> None:
        over.set()

    async with anyio.create_task_group() as group:
        group.start_soon(busy)
        with anyio.fail_after(60):
            await turns(build)


async def test_a_turn_that_raises_leaves_the_next_its_own() -> None:
    turns = TakeTurns(clock=SystemClock())

    async def broken() -> None:
        raise ValueError("no")

    async def whole() -> str:
        return "built"

    with pytest.raises(ValueError, match="no"):
        await turns(broken)
    assert await turns(whole) == "built"


async def test_a_lock_goes_with_its_last_user_also_a_cancelled_one() -> None:
    locks = KeyedLocks()
    async with anyio.create_task_group() as group, locks.holding("a"):

        async def wait() -> None:
            async with locks.holding("a"):
                raise AssertionError("it is held")

        group.start_soon(wait)
        while locks.users("a") < 2:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert (len(locks), locks.users("a")) == (0, 0)


# Building.


@pytest.mark.parametrize("where", list(BuildWhere))
async def test_a_world_is_built_where_it_says(
    where: BuildWhere, tmp_path: Path
) -> None:
    (task, *_) = DeskTasks().tasks()
    apps = SessionApps(
        world=DeskWorld(builds=where),
        folder=tmp_path,
        turns=TakeTurns(clock=SystemClock()),
    )

    opened = await apps.build(SESSION, task)
    again, reopened = await apps.reopen(SESSION)

    assert (await opened.apps.state()).revision == 0
    assert again.task_data == task.task_data
    assert set(reopened.tools) == set(opened.tools)
    await apps.build(SESSION, task)  # What stood there is built anew.
    await apps.remove(SESSION)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AppsUnusable, match="cannot be used"):
        await apps.reopen(SESSION)


@pytest.mark.parametrize("where", list(BuildWhere))
async def test_a_build_that_fails_tells_why_wherever_it_runs(
    where: BuildWhere, tmp_path: Path
) -> None:
    (task, *_) = DeskTasks().tasks()
    task.task_data["office"] = 3
    apps = SessionApps(
        world=DeskWorld(builds=where),
        folder=tmp_path,
        turns=TakeTurns(clock=SystemClock()),
    )

    with pytest.raises(TaskRefused, match=r"task_data\.office"):
        await apps.build(SESSION, task)


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    apps = SessionApps(
        world=BoxWorld(),
        folder=tmp_path / "file",
        turns=TakeTurns(clock=SystemClock()),
    )
    (task, *_) = DeskTasks().tasks()

    with pytest.raises(AppsUnusable):
        await apps.build(SESSION, task)


# Arguments.


def taking(**properties: Json) -> Tool:
    return Tool(
        app="a",
        action="b",
        description="",
        parameters={"type": "object", "properties": properties, "required": ["x"]},
    )


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "integer"}, True, "x must be of type integer"),
        ({"type": ["string", "null"]}, 1, "x must be of type string or null"),
        ({"enum": ["p", "q"]}, "r", "x must be one of p, q"),
        ({"type": "array", "items": {"type": "string"}}, ["a", 1], r"x\[1\] must be"),
        (
            {"type": "object", "properties": {"y": {}}, "required": ["y"]},
            {},
            "x.y is missing",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"y": 1},
            "x.y must be of type string",
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"y": 1},
            "x.y is unknown",
        ),
        ({"type": "string"}, "data:image/png;base64,AAAA", "content of a file"),
        ({"type": "string"}, ("QUJD" * 16 + "\n") * 5, "content of a file"),
        ({"type": "string"}, "See: " + "QUJD" * 64, "content of a file"),
        ({}, {"deep": [{"within": "QUJD" * 64}]}, "content of a file"),
    ],
)
def test_an_argument_that_does_not_fit_is_told(
    schema: dict[str, Any], value: Json, told: str
) -> None:
    with pytest.raises(ToolRefused, match=told):
        check_arguments(taking(x=schema), {"x": value})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": ["string", "null"]}, None),
        ({"type": "number"}, 1),
        ({"type": "boolean"}, False),
        ({}, {"any": 1}),
        (True, {"any": 1}),
        ({"properties": {"y": {}}, "additionalProperties": True}, {"y": 1, "z": 2}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"y": "z"}),
        ({"type": "string"}, "A long text, of words and words. " * 40),
        ({"type": "string"}, f"Title\n{'-' * 300}\n{'_' * 300}"),
        ({"type": "string"}, "/a/b" * 100),
        ({"type": "string"}, "base64 data: is told as ;base64, in URLs"),
    ],
)
def test_an_argument_that_fits_is_taken(schema: dict[str, Any], value: Json) -> None:
    check_arguments(taking(x=schema), {"x": value})


@pytest.mark.parametrize(
    "piece",
    [
        "a" * 250 + " " * 1_000_000,
        ("a" * 255 + ".") * 4_000,
        ("a" * 60 + "\n") * 3 + "\n" * 1_000_000,
        "data:" * 200_000,
        ";base64," * 100_000,
    ],
    ids=["blanks", "runs", "lines", "data", "base64"],
)
@pytest.mark.case("FC-134")
def test_a_long_text_is_looked_at_in_a_moment(piece: str) -> None:
    began = time.process_time()

    check_arguments(taking(x={"type": "string"}), {"x": piece})

    assert time.process_time() - began < LOOK_SECONDS


def test_a_tool_without_parameters_takes_none() -> None:
    plain = Tool(app="a", action="b", description="", parameters={"type": "object"})

    check_arguments(plain, {})
    with pytest.raises(ToolRefused, match="there are no parameters"):
        check_arguments(plain, {"x": 1})


# Who may, and what is told.


def test_networks_are_told_apart() -> None:
    networks = to_networks(("10.0.0.0/8", "::1/128"))

    assert is_trusted("10.1.2.3", networks)
    assert is_trusted("::ffff:10.1.2.3", networks)
    assert is_trusted("::1", networks)
    assert not is_trusted("11.1.2.3", networks)
    assert not is_trusted("somewhere", networks)
    with pytest.raises(ValueError, match="here"):
        to_networks(("here",))


def test_a_token_is_the_same_for_a_secret_and_tells_nothing() -> None:
    tokens, others = SessionTokens("one"), SessionTokens("another")
    plain = SessionTokens("one", "X-Token")

    token = tokens.token(SESSION)

    assert SessionTokens("one").token(SESSION) == token != others.token(SESSION)
    assert "s1" not in token
    assert tokens.shown(f"Bearer {token}") == SESSION
    assert tokens.shown(token) is None
    assert plain.headers(SESSION) == {"X-Token": token}
    assert plain.shown(token) == SESSION
    assert "one" not in repr(tokens)
    tokens.forget(SESSION)
    assert tokens.session(token) is None
    tokens.learn([SESSION])
    assert tokens.session(token) == SESSION


@pytest.mark.parametrize("folder", ["", "bin/"])
def test_the_guide_tells_each_way(folder: str) -> None:
    tool = taking(x={})
    told = {
        way: guide([tool], Reaching(way=way), folder=folder, url="http://h")
        for way in Reach
    }

    assert "You have tools for: a." in told[Reach.MCP]
    assert f"`{folder}a --help`" in told[Reach.COMMANDS]
    assert f"`{folder}docs` tells" in told[Reach.ENDPOINTS]
    assert "apps" not in guide((), None, folder="", url="")


# Metrics.


def test_rows_without_rewards_have_no_reward_to_sum_up() -> None:
    told = aggregate([{"_ng_task_index": 0, "note": "x"}, {"_ng_task_index": 0}])

    assert told["key_metrics"] == {}
    assert told["agent_metrics"] == {"num_repeats": 1}


def test_numbers_are_summed_up_by_task_repeat_and_in_all() -> None:
    rows = [
        {
            "_ng_task_index": task,
            "_ng_rollout_index": repeat,
            "reward": float(task == repeat),
            "agent_ref": {"name": "a"},
            **({"steps": 3} if task else {}),
        }
        for task in range(2)
        for repeat in range(3)
        if (task, repeat) != (1, 2)
    ]

    told: Any = aggregate(rows)

    assert told["agent_metrics"]["mean/reward"] == pytest.approx(2 / 5)
    assert told["agent_metrics"]["mean/steps"] == 3
    assert told["agent_metrics"]["num_repeats"] == 3
    first, second = told["group_level_metrics"]
    assert (first["num_rollouts"], second["missing_num_rollouts"]) == (3, 1)
    assert "mean/steps" not in first
    assert first["sample"] == {"agent_ref": {"name": "a"}}
    assert [r["missing_count"] for r in told["repeat_level_metrics"]] == [0, 0, 1]
    assert told["repeat_level_metrics"][0]["p75/reward"] == pytest.approx(0.75)


@pytest.mark.case("FC-241")
def test_a_thousand_made_up_names_are_no_thousand_series() -> None:
    rows = [
        {"_ng_task_index": 0, f"session-{number}": 1, "reward": 1.0}
        for number in range(1000)
    ]

    told: Any = aggregate(rows)

    means = [name for name in told["agent_metrics"] if name.startswith("mean/")]
    assert len(means) == SERIES_MAX
    assert means[0] == "mean/reward"
    assert told["agent_metrics"][DROPPED] == 1001 - SERIES_MAX
    (group,) = told["group_level_metrics"]
    assert len([name for name in group if name.startswith("mean/")]) == SERIES_MAX


def finished(task: int, repeat: int, reward: float, **more: Any) -> dict[str, Any]:
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "reward": reward,
    } | more


def test_truth_values_are_summed_up_as_numbers_and_a_mask_is_none() -> None:
    rows = [finished(0, 0, 1.0, solved=True), finished(1, 0, 0.0, solved=False)]

    told: Any = aggregate([{**row, "mask_sample": False} for row in rows])

    assert told["agent_metrics"]["mean/solved"] == 0.5
    assert [g["rollout_infos"][0]["solved"] for g in told["group_level_metrics"]] == [
        *(1, 0)
    ]
    assert "mean/mask_sample" not in told["agent_metrics"]


def test_what_a_response_took_is_summed_up_and_never_goes_before_a_grade() -> None:
    usage = {"input_tokens": 5, "details": {"cached": 1}, "reward": 7.0}
    rows = [
        finished(0, 0, 0.5, response={"usage": usage}),
        finished(1, 0, 0.5, response={"usage": None}),
        finished(2, 0, 0.5, response=None),
    ]

    told: Any = aggregate(rows)

    assert told["agent_metrics"]["mean/input_tokens"] == 5.0
    assert told["agent_metrics"]["mean/reward"] == 0.5
    assert "mean/details" not in told["agent_metrics"]


def test_a_repeat_tells_how_far_its_mean_can_be_trusted() -> None:
    rows = [finished(task, 0, reward) for task, reward in enumerate((0.0, 1.0, 0.0))]

    (repeat,) = cast("Any", aggregate(rows))["repeat_level_metrics"]
    (alone,) = cast("Any", aggregate(rows[:1]))["repeat_level_metrics"]

    # As NeMo Gym's own server told it of these rewards.
    assert repeat["ci_low_95/reward"] == pytest.approx(-1.100884243249821)
    assert repeat["ci_high_95/reward"] == pytest.approx(1.7675509099164874)
    assert not [name for name in alone if name.startswith("ci_")]


def test_many_rows_are_summed_up_in_a_moment_and_without_a_step() -> None:
    wide = [
        cast("Any", aggregate([finished(t, 0, float(t % 2)) for t in range(count)]))
        for count in (1000, 1002, 20_000)
    ]

    near, beyond, many = (one["repeat_level_metrics"][0] for one in wide)
    assert near["ci_high_95/reward"] == pytest.approx(beyond["ci_high_95/reward"], 1e-3)
    margin = many["ci_high_95/reward"] - many["mean/reward"]
    assert margin == pytest.approx(1.96 * many["sem/reward"], 1e-3)


def test_a_number_beyond_bounds_in_a_usage_is_the_caller_s_mistake() -> None:
    row = finished(0, 0, 1.0, response={"usage": {"input_tokens": 10**200}})

    with pytest.raises(BodyRefused) as refused:
        to_rows(json.dumps({"verify_responses": [row]}).encode())

    (mistake,) = refused.value.mistakes
    assert mistake.loc == ("verify_responses", 0, "response", "usage", "input_tokens")


# No provider at all.


async def test_a_server_without_a_provider_makes_finds_and_ends_nothing() -> None:
    none = NoSandboxProvider("why")
    label = ClaimLabel(claim=ClaimId("c"), owner=OwnerId("o"))

    with pytest.raises(Unsupported, match="why"):
        await none.create(label, SandboxSpec())
    access = SandboxAccess(provider="none", descriptor={}, workdir="/")
    with pytest.raises(Unsupported, match="why"):
        await none.connect(access, borrower=ClaimId("b"))
    assert await none.find(label) is None
    assert [one async for one in none.list(OwnerId("o"))] == []
    await none.destroy(label)
    await none.aclose()
    assert (none.name, none.capabilities) == ("none", frozenset())


def test_a_desk_can_be_told_where_to_be_built() -> None:
    assert attrs.evolve(DeskWorld(), builds=BuildWhere.THREAD).builds == "thread"
