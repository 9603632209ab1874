# SPDX-License-Identifier: Apache-2.0
"""Tasks as JSON Lines: read strictly, and every mistake of a file told at once."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.task_sources.json_lines import (
    MISTAKES_TOLD_MAX,
    JsonLinesTasks,
)
from livery.adapters.task_sources.json_rows import RowRefused, to_row
from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.domain.digests import Json
from livery.domain.tasks import Task, TaskId
from livery.ports.required.harness import PlacedFile
from livery.ports.required.task_source import (
    NoSolution,
    Solutions,
    TaskSource,
    TasksRefused,
)

GRADER: Json = {"command": ["sh", "grade.sh"]}


def a_row(name: str = "one", **task_input: Json) -> dict[str, Json]:
    return {
        "task_id": {"taskset": "set", "task_id": name},
        "task_input": {
            "responses_create_params": {"input": "do it"},
            "task_data": {"grader": GRADER},
            **task_input,
        },
    }


def source(path: Path, *rows: object, end: str = "\n") -> JsonLinesTasks:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + end for line in lines), encoding="utf-8")
    return JsonLinesTasks(path, WorkspaceWorld())


def mistakes(tasks: JsonLinesTasks) -> list[str]:
    with pytest.raises(TasksRefused) as caught:
        tasks.tasks()
    assert caught.value.where == str(tasks.path)
    return caught.value.mistakes.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.jsonl"


def test_the_rows_are_told_in_order_and_each_time_anew(path: Path) -> None:
    tasks: TaskSource = source(path, a_row("b"), a_row("a"), a_row("c"))

    names = [task.task_id.task_id for task in tasks.tasks()]

    assert names == ["b", "a", "c"]
    assert [task.task_id.task_id for task in tasks.tasks()] == names
    assert tasks.name == "tasks"


def test_a_row_is_told_as_it_is(path: Path) -> None:
    (task,) = source(path, a_row()).tasks()

    assert task == Task(
        task_id=TaskId("set", "one"),
        responses_create_params={"input": "do it"},
        task_data={"grader": GRADER},
    )


def test_keys_beside_the_two_merge_into_the_tasks_data(path: Path) -> None:
    row = a_row(workdir="/w", grader=GRADER)
    flat: dict[str, Json] = {
        "task_id": {"taskset": "set", "task_id": "flat"},
        "task_input": {
            "responses_create_params": {"input": [{"role": "user", "content": "x"}]},
            "grader": GRADER,
        },
    }

    first, second = source(path, row, flat).tasks()

    assert first.task_data == {"grader": GRADER, "workdir": "/w"}
    assert second.task_data == {"grader": GRADER}


def test_a_key_that_stands_twice_with_two_values_is_refused(path: Path) -> None:
    row = a_row(grader={"command": ["other"]})

    assert mistakes(source(path, row)) == [
        "line 1: task_input.grader: is not what task_data has under that key;"
        " leave one out"
    ]


def test_blank_lines_at_the_end_do_no_harm(path: Path) -> None:
    tasks = source(path, a_row(), "", "  ", "")

    assert len(list(tasks.tasks())) == 1
    assert len(list(source(path, a_row(), end="").tasks())) == 1
    assert len(list(source(path, a_row(), a_row("b"), end="\r\n").tasks())) == 2


def test_a_blank_line_between_rows_is_told(path: Path) -> None:
    found = mistakes(source(path, a_row(), "", "", a_row("two")))

    assert found == ["line 2: is blank, must be a JSON object"]


@pytest.mark.parametrize("text", ["", "\n", "\n \n"])
def test_an_empty_file_is_told(path: Path, text: str) -> None:
    path.write_text(text)

    found = mistakes(JsonLinesTasks(path, WorkspaceWorld()))

    assert found == ["line 1: holds no task, must hold one JSON object a line"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON at character 2"),
        ("hello", "is not JSON at character 1"),
        ('{"a": 1} {"b": 2}', "is not JSON at character 10: Extra data"),
        ("[]", "is an empty list, must be an object"),
        ("null", "is null, must be an object"),
        ("5", "is the number 5, must be an object"),
        ('"text"', 'is the text "text", must be an object'),
        ('{"a": 1, "a": 2}', 'has the key "a" twice in one object'),
        ("[" * 100_000, "is nested too deeply"),
        ("1" * 5000, "holds a whole number of more digits than are read"),
    ],
)
def test_a_line_that_is_no_row_is_told_with_its_number(
    path: Path, line: str, words: str
) -> None:
    (found,) = mistakes(source(path, a_row(), line))

    assert found.startswith(f"line 2: {words}")


def test_what_is_not_utf8_is_told_with_its_place(path: Path) -> None:
    path.write_bytes(b'{"a": "\xff"}\n')

    (found,) = mistakes(JsonLinesTasks(path, WorkspaceWorld()))

    assert found == "line 1: is not UTF-8 at byte 8, must be JSON in UTF-8"


def test_a_byte_order_mark_is_told(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(a_row()).encode())

    (found,) = mistakes(JsonLinesTasks(path, WorkspaceWorld()))

    assert "byte order mark" in found


def test_utf16_is_told(path: Path) -> None:
    path.write_text(json.dumps(a_row()), encoding="utf-16")

    assert (
        "line 1: is not UTF-8 at byte 1"
        in mistakes(JsonLinesTasks(path, WorkspaceWorld()))[0]
    )


def test_an_id_that_stands_twice_is_told_with_both_lines(path: Path) -> None:
    found = mistakes(source(path, a_row(), a_row("two"), a_row(), a_row()))

    assert found == [
        "line 3: task_id: is that of line 1 too, must be new",
        "line 4: task_id: is that of line 1 too, must be new",
    ]


def test_a_task_without_a_grader_is_told(path: Path) -> None:
    found = mistakes(source(path, a_row(task_data={})))

    assert found == ["line 1: task_input.task_data.grader: missing; it must be there"]


@pytest.mark.case("FC-250")
@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({**a_row(), "extra": 1}, "extra"),
        ({**a_row(), "task_id": {"taskset": "s", "task_id": "t", "x": 1}}, "task_id.x"),
        (
            a_row(task_data={"grader": {**GRADER, "typo": 1}}),
            "task_input.task_data.grader.typo",
        ),  # type: ignore[dict-item]
        (a_row(typo=1), "task_input.typo"),
    ],
)
def test_an_unknown_key_is_told_with_its_path(
    path: Path, row: dict[str, Json], field: str
) -> None:
    (found,) = mistakes(source(path, row))

    assert found.startswith(f"line 1: {field}: unknown key")


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "task_id"),
        ({**a_row(), "task_id": "one"}, "task_id"),
        ({**a_row(), "task_id": {"taskset": "s"}}, "task_id.task_id"),
        ({**a_row(), "task_id": {"taskset": "", "task_id": "x"}}, "task_id.taskset"),
        ({**a_row(), "task_id": {"taskset": 1, "task_id": "x"}}, "task_id.taskset"),
        ({**a_row(), "task_input": []}, "task_input"),
        (a_row(responses_create_params=None), "task_input.responses_create_params"),
        (a_row(responses_create_params={}), "task_input.responses_create_params.input"),
        (
            a_row(responses_create_params={"input": []}),
            "task_input.responses_create_params.input",
        ),
        (a_row(task_data=[], grader=GRADER), "task_input.task_data"),
    ],
)
def test_a_wrong_type_is_told_with_its_path(
    path: Path, row: dict[str, Json], field: str
) -> None:
    assert mistakes(source(path, row))[0].startswith(f"line 1: {field}: ")


@pytest.mark.case("FC-258")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_told_once(path: Path, number: str) -> None:
    grader = {"command": ["g"], "timeout_seconds": "X"}
    line = json.dumps(a_row(task_data={"grader": grader})).replace('"X"', number)

    (found,) = mistakes(source(path, line))

    field = "task_input.task_data.grader.timeout_seconds"
    assert found.startswith(f"line 1: {field}: is ")
    assert found.endswith("must be a finite number")


def test_a_number_that_is_not_finite_is_told_anywhere(path: Path) -> None:
    params = '{"input": [{"role": "user", "content": "x", "odd name": [NaN]}]}'
    line = json.dumps(a_row(responses_create_params="X")).replace('"X"', params)

    (found,) = mistakes(source(path, line))

    where = 'task_input.responses_create_params.input[0]["odd name"][0]'
    assert found == f"line 1: {where}: is nan, must be a finite number"


def test_half_of_a_surrogate_pair_is_told(path: Path) -> None:
    line = json.dumps(a_row(responses_create_params={"input": "\ud800"}))

    (found,) = mistakes(source(path, line))

    assert "surrogate" in found


@pytest.mark.case("FC-254")
def test_all_mistakes_of_a_file_are_told_at_once(path: Path) -> None:
    found = mistakes(
        source(
            path,
            a_row(),
            "{",
            {**a_row("two"), "x": 1, "task_id": 5},
            a_row("three", files={"/a": ""}, task_data={"grader": {"command": "sh"}}),
            a_row(),
        )
    )

    assert [line.partition(": ")[0] for line in found] == [
        "line 2",
        "line 3",
        "line 3",
        "line 4",
        "line 4",
        "line 5",
    ]
    fields = {line.split(": ")[1] for line in found}
    assert {
        'task_input.files["/a"]',
        "task_input.task_data.grader.command",
        "x",
        "task_id",
    } <= fields


def test_more_mistakes_than_can_be_read_are_counted(path: Path) -> None:
    found = mistakes(source(path, *["{"] * (MISTAKES_TOLD_MAX + 5)))

    assert len(found) == MISTAKES_TOLD_MAX + 1
    assert found[-1] == "and 5 more"


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    places = {
        tmp_path / "none.jsonl": "No such file",
        tmp_path: "no regular file",
        pipe: "no regular file",
        tmp_path / "none" / "x": "No such file",
    }

    for place, words in places.items():
        (found,) = mistakes(JsonLinesTasks(place, WorkspaceWorld()))
        assert words in found


def test_a_forbidden_file_is_told(path: Path) -> None:
    tasks = source(path, a_row())
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        # Root may read everything, so be somebody else for a moment.
        os.seteuid(65534)
    try:
        found = mistakes(tasks)
    finally:
        os.seteuid(user)

    assert "Permission denied" in found[0]


def test_nothing_is_told_of_a_file_with_a_mistake_at_its_end(path: Path) -> None:
    assert mistakes(source(path, a_row(), a_row("two"), "{"))


def test_a_file_that_changed_is_checked_again(path: Path) -> None:
    tasks = source(path, a_row())
    assert len(list(tasks.tasks())) == 1

    source(path, a_row(), a_row("two"))

    assert len(list(tasks.tasks())) == 2
    source(path, "{")
    assert mistakes(tasks)


def test_a_file_that_changes_under_the_reader_is_told(path: Path) -> None:
    rows = [a_row(f"{number}") for number in range(2000)]
    told: Iterator[Task] = source(path, *rows).tasks()
    next(told)

    source(path, *reversed(rows))

    with pytest.raises(TasksRefused, match="changed while it was read"):
        list(told)


@pytest.mark.parametrize("end", [0, 1, 2], ids=str)
@pytest.mark.parametrize("begun", [False, True])
def test_a_file_that_becomes_shorter_under_the_reader_is_told(
    path: Path, end: int, begun: bool
) -> None:
    rows = [a_row(f"{number}") for number in range(20)]
    told = source(path, *rows, end=" " * 10_000 + "\n").tasks()
    if begun:
        next(told)

    # Cut off behind a line, as an editor or a copy that begins anew does.
    with path.open("r+b") as file:
        for _ in range(end + begun):
            file.readline()
        file.truncate(file.tell())

    with pytest.raises(TasksRefused, match="changed while it was read"):
        list(told)


def test_lines_that_become_blank_under_the_reader_are_told(path: Path) -> None:
    told = source(path, a_row("one"), a_row("two")).tasks()

    source(path, a_row("one"))
    with path.open("ab") as file:
        file.write(b"\n\n")

    with pytest.raises(TasksRefused, match="1 tasks are gone"):
        list(told)


def test_the_solution_of_a_row_is_found_by_its_id(path: Path) -> None:
    solutions: Solutions = source(
        path,
        a_row(),
        *(
            a_row(name, solution={"files": {"a": f"solved {name}"}})
            for name in ("two", "é", "three")
        ),
    )

    for name in ("é", "two", "three"):
        assert solutions.solution(TaskId("set", name)) == (
            PlacedFile(path="a", content=f"solved {name}".encode()),
        )
    for missing in (TaskId("set", "one"), TaskId("set", "four"), TaskId("x", "two")):
        with pytest.raises(NoSolution):
            solutions.solution(missing)


KEYS = [
    "task_id",
    "task_input",
    "taskset",
    "responses_create_params",
    "input",
    "task_data",
    "grader",
    "command",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_line_is_a_row_or_told(value: Json) -> None:
    line = json.dumps(value).encode()
    told: list[str] = []
    try:
        row = to_row(line)
    except RowRefused as refused:
        told.extend(text for _, text in refused.mistakes)
    else:
        told.append(row.task.task_id.task_id)

    assert told
    assert all(told)


@given(st.binary(max_size=30))
def test_any_bytes_are_a_row_or_told(line: bytes) -> None:
    with pytest.raises(RowRefused):
        to_row(line)
