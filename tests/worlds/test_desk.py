# SPDX-License-Identifier: Apache-2.0
"""The office: every task is solved by its own calls, and by nothing else."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from livery.adapters.worlds.desk import DeskTasks, DeskWorld
from livery.adapters.worlds.desk.desk_task import Change
from livery.adapters.worlds.desk.grading import Difference, faults
from livery.adapters.worlds.desk.world import ACTIONS, DeskApps
from livery.domain.digests import Json
from livery.domain.scores import GraderEnd
from livery.domain.tasks import Task, TaskId
from livery.ports.provided.tool_arguments import check_arguments, paths_in
from livery.ports.required.apps import Reach, ToolCall, ToolRefused
from livery.ports.required.sandbox_provider import SandboxSpec
from livery.ports.required.task_source import NoSolution, TasksRefused
from livery.ports.required.world import TaskRefused

pytestmark = pytest.mark.anyio

TASKS = DeskTasks()
WORLD = DeskWorld()
NOW = {"me": "a@b", "now": "2031-01-01T00:00"}
MAIL = {"sender": "c@d", "to": [], "subject": "s", "body": "b", "sent_at": "2031"}


@attrs.define
class Hand:
    """Calls an office, and keeps the files of a workspace."""

    apps: DeskApps
    files: dict[str, bytes] = attrs.field(factory=dict[str, bytes])

    async def call(self, name: str, arguments: Mapping[str, Json]) -> Json:
        tool = ACTIONS[name].tool
        check_arguments(tool, arguments)
        files = {path: self.files[path] for path in paths_in(tool, arguments)}
        result = await self.apps.call(
            ToolCall(tool=name, arguments=arguments, files=files)
        )
        self.files |= {file.name: file.content for file in result.files}
        return result.told


async def hand(task: Task, folder: Path) -> Hand:
    WORLD.check(task)
    WORLD.build(task, str(folder))
    placed = {file.path: file.content for file in WORLD.files(task)}
    return Hand(await WORLD.open(task, str(folder)), placed)


def task(name: str) -> Task:
    return next(one for one in TASKS.tasks() if one.task_id.task_id == name)


def made(**data: Any) -> Task:
    return Task(
        task_id=TaskId("own", "1"),
        responses_create_params={},
        task_data={"office": dict(NOW), **data},
    )


def test_there_are_thirty_tasks_or_more_each_with_a_name_of_its_own() -> None:
    names = [task.task_id.task_id for task in TASKS.tasks()]

    assert len({*names}) == len(names) >= 30


@pytest.mark.parametrize("name", [one.task_id.task_id for one in TASKS.tasks()])
async def test_a_task_is_solved_by_its_calls_and_not_before(
    name: str, tmp_path: Path
) -> None:
    at = await hand(task(name), tmp_path)
    *before, last = TASKS.calls(TaskId("desk", name))
    for call in before:
        await at.call(call.tool, call.arguments)

        assert not (await at.apps.state()).complete
    await at.call(last.tool, last.arguments)

    state, evidence = await at.apps.state(), await at.apps.evidence()
    assert (state.complete, state.revision) == (True, len(before) + 1)
    assert (evidence.reward, evidence.details) == (1.0, {})


@pytest.mark.parametrize("name", [one.task_id.task_id for one in TASKS.tasks()])
async def test_whatever_else_is_changed_costs_the_reward(
    name: str, tmp_path: Path
) -> None:
    at = await hand(task(name), tmp_path)
    for call in TASKS.calls(TaskId("desk", name)):
        await at.call(call.tool, call.arguments)

    await at.call("chat_post", {"channel": "general", "text": "Done!"})

    evidence = await at.apps.evidence()
    assert evidence.reward == 0.0
    assert "was not wanted" in str(evidence.details)


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    at = await hand(made(office={"base": "usual"}), tmp_path)

    for name, arguments in {
        "people_find": {"name": "sales"},
        "mail_list": {"unseen": True},
        "mail_read": {"id": 1},
        "mail_save": {"id": 1, "name": "harbour-offer.txt"},
        "drive_list": {"folder": "hand"},
        "drive_read": {"path": "customers.csv"},
        "drive_download": {"path": "customers.csv", "name": "mine.csv"},
        "calendar_list": {"day": "2031-03-05"},
        "chat_channels": {},
        "chat_history": {"channel": "general"},
        "tickets_list": {"status": "open"},
        "tickets_show": {"id": 3},
    }.items():
        assert await at.call(name, arguments)

    assert (await at.apps.evidence()).reward == 1.0
    assert not (await at.apps.state()).complete, "nothing is wanted, so nothing is done"
    assert at.files["mine.csv"].startswith(b"name,city")
    await at.apps.close()


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("mail_read", {"id": 99}, "no mail 99"),
        ("mail_send", {"to": ["x@y"], "subject": "", "body": ""}, "Nobody here"),
        ("mail_save", {"id": 1, "name": "x"}, "has no file x"),
        ("drive_read", {"path": "x"}, "no x on the drive"),
        ("drive_move", {"path": "customers.csv", "to": "drafts/old.txt"}, "already"),
        ("drive_upload", {"path": "p", "file": "odd"}, "no text file"),
        ("chat_post", {"channel": "x", "text": "y"}, "no channel x"),
        ("tickets_update", {"id": 1, "assignee": "x@y"}, "Nobody here"),
        (
            "tickets_create",
            {"title": "t", "body": "b", "assignee": "x@y"},
            "Nobody here",
        ),
        (
            "calendar_update",
            {"id": 1, "attendees": ["x@y"]},
            "Nobody here",
        ),
    ],
)
async def test_what_cannot_be_done_is_told_and_changes_nothing(
    name: str, arguments: Mapping[str, Json], words: str, tmp_path: Path
) -> None:
    at = await hand(made(office={"base": "usual"}), tmp_path)
    at.files["odd"] = b"\xff"

    with pytest.raises(ToolRefused, match=words):
        await at.call(name, arguments)

    assert (await at.apps.state()).revision == 0
    assert (await at.apps.evidence()).reward == 1.0


async def test_a_call_of_no_tool_is_told(tmp_path: Path) -> None:
    at = await hand(made(office={"base": "usual"}), tmp_path)

    with pytest.raises(ToolRefused, match="no mail_burn"):
        await at.apps.call(ToolCall(tool="mail_burn", arguments={}))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"offise": {}}, "task_data.offise: unknown key; did you mean 'office'"),
        ({"office": 3}, "task_data.office: is 3, must be an object"),
        ({"office": {}}, "task_data.office.me: is null, must be text"),
        ({"office": {"base": "x", **NOW}}, 'task_data.office.base: is "x"'),
        ({"office": {**NOW, "mails": []}}, "did you mean 'mail'"),
        ({"office": {**NOW, "mail": 1}}, "task_data.office.mail: is 1"),
        ({"office": {**NOW, "mail": [1]}}, "task_data.office.mail[0]: is 1"),
        ({"office": {**NOW, "people": [{"email": "x"}]}}, "people[0].name: missing"),
        (
            {"office": {**NOW, "people": [{"email": 1, "name": "n"}]}},
            "people[0].email: is 1, must be text",
        ),
        (
            {"office": {**NOW, "people": [{"email": "e", "name": "n", "x": 1}]}},
            "people[0].x: unknown key",
        ),
        ({"changes": 1}, "task_data.changes: is 1"),
        ({"changes": [1]}, "task_data.changes[0]: is 1"),
        ({"changes": [{"table": "x"}]}, 'task_data.changes[0].table: is "x"'),
        ({"changes": [{"table": "mail"}]}, 'must have "table", and'),
        (
            {"changes": [{"table": "mail", "id": 1, "changed": {"sean": True}}]},
            "did you mean 'seen'",
        ),
        ({"reach": "phone"}, 'task_data.reach: is "phone"'),
        ({"documentation": "a b"}, "task_data.documentation"),
        ({"files": {"a": 1}}, "task_data.files"),
        ({"files": {"../a": "x"}}, "must be below the workspace"),
        ({"files": {"/a": "x"}}, "must be below the workspace"),
        ({"files": {"": "x"}}, "is no path"),
        ({"files": {"a": "x", "a/b": "y"}}, "also a folder"),
        ({"files": {"a": "x", "./a": "y"}}, "is named twice"),
        (
            {"office": {**NOW, "mail": [{**MAIL, "files": [{"name": 1, "text": ""}]}]}},
            "mail[0].files: is a list, must be files",
        ),
    ],
)
def test_a_task_s_mistakes_are_told_with_their_place(
    data: dict[str, Any], told: str
) -> None:
    with pytest.raises(TaskRefused) as refused:
        WORLD.check(made(**data))

    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": "1", "removed": True}, 'changes[0].id: is "1", must be the number'),
        ({"id": True, "removed": True}, "changes[0].id: is true, must be the number"),
        ({"id": 0, "removed": True}, "must be the number of one of the 1 rows of mail"),
        ({"id": 2, "changed": {"seen": True}}, "changes[0].id: is 2, must be"),
        ({"id": 1, "removed": False}, "changes[0].removed: is false, must be true"),
        ({"added": {"subject": "Hello"}}, "changes[0].added.body: missing"),
        (
            {"id": 1, "changed": {"body": {"contains": [1]}}},
            "changes[0].changed.body: is an object, must be text",
        ),
    ],
)
@pytest.mark.case("FC-250")
def test_a_change_that_no_office_could_ever_show_is_a_mistake(
    change: dict[str, Any], told: str
) -> None:
    office = {**NOW, "mail": [MAIL]}

    with pytest.raises(TaskRefused) as refused:
        WORLD.check(made(office=office, changes=[{"table": "mail", **change}]))

    assert told in str(refused.value)


async def test_what_was_wanted_and_is_missing_is_told(tmp_path: Path) -> None:
    wanted = [
        {"table": "mail", "id": 1, "removed": True},
        {"table": "people", "added": {"email": "x@y", "name": {"contains": ["V"]}}},
    ]
    office = {"base": "usual"}
    at = await hand(made(office=office, changes=wanted), tmp_path)
    await at.call("drive_delete", {"path": "customers.csv"})

    faults = (await at.apps.evidence()).details["faults"]

    assert faults == [
        "a change of mail 1 is missing",
        "a change of people is missing",
        "drive 7 is gone, which was not wanted",
    ]


@pytest.mark.parametrize("posts", [("tea", "tea, milk"), ("tea, milk", "tea")])
@pytest.mark.parametrize("parts", [(["tea"], ["milk"]), (["milk"], ["tea"])])
async def test_two_changes_of_which_one_fits_both_are_both_seen(
    tmp_path: Path, posts: tuple[str, ...], parts: tuple[list[str], ...]
) -> None:
    wanted = [
        {
            "table": "messages",
            "added": {"channel": "general", "text": {"contains": each}},
        }
        for each in parts
    ]
    at = await hand(made(office={"base": "usual"}, changes=wanted), tmp_path)
    for post in posts:
        await at.call("chat_post", {"channel": "general", "text": post})

    evidence = await at.apps.evidence()

    assert (evidence.reward, evidence.details) == (1.0, {})


PARTS = some.lists(some.sampled_from("abc"), min_size=1, max_size=3, unique=True)


@example([["a", "b"], ["a"]], [["a"], ["b"]])
@example([["a", "b"], ["a", "c"], ["c"]], [["a"], ["c"], ["b"]])
@given(some.lists(PARTS, max_size=4), some.lists(PARTS, max_size=3))
def test_changes_are_all_seen_where_each_can_have_a_difference_of_its_own(
    shown: list[list[str]], asked: list[list[str]]
) -> None:
    found = [
        Difference("messages", number, None, {"text": " ".join(parts)})
        for number, parts in enumerate(shown)
    ]
    wanted = [
        Change(table="messages", values={"text": {"contains": list(parts)}})
        for parts in asked
    ]
    most = max(
        sum({*parts} <= {*row} for parts, row in zip(asked, rows, strict=False))
        for rows in itertools.permutations([*shown, *[[]] * len(asked)], len(asked))
    )

    told = faults(found, wanted, me="a@b", now="2031-01-01T00:00")

    missing = [one for one in told if "is missing" in one]
    assert len(missing) == len(asked) - most
    assert len(told) - len(missing) == len(shown) - most


@pytest.mark.parametrize("way", ["mcp", "commands", "endpoints", "direct"])
def test_the_tasks_are_had_for_each_way_of_reaching_the_apps(way: str) -> None:
    (first, *_) = DeskTasks(way).tasks()

    assert WORLD.reaching(first).way == (Reach.MCP if way == "direct" else Reach(way))
    assert ("tools" in first.responses_create_params) is (way == "direct")
    WORLD.check(first)


def test_another_way_is_refused() -> None:
    with pytest.raises(TasksRefused, match="'phone' is no way"):
        DeskTasks("phone")


def test_no_file_solves_a_task_and_no_other_task_has_calls() -> None:
    with pytest.raises(NoSolution):
        TASKS.solution(TaskId("desk", "answer-lunch"))
    with pytest.raises(NoSolution):
        TASKS.calls(TaskId("desk", "x"))


def test_without_apps_there_is_nothing_to_judge() -> None:
    (first, *_) = TASKS.tasks()

    assert WORLD.evidence(first, None).end is GraderEnd.NOT_STARTED
    assert WORLD.grader(first, "m") is None
    assert WORLD.sandbox(first, SandboxSpec()) == SandboxSpec()
    assert TASKS.name == "desk"
