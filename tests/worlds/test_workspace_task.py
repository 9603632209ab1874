# SPDX-License-Identifier: Apache-2.0
"""Reading `task_data`: strict, and every mistake of a task told at once."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.worlds.strict import Mistaken
from livery.adapters.worlds.workspace_paths import clashes, to_relative_path
from livery.adapters.worlds.workspace_task import (
    GRADER_TIMEOUT_SECONDS,
    GRADER_TIMEOUT_SECONDS_MAX,
    ExitCode,
    JsonFile,
    NumberFile,
    to_workspace_task,
)
from livery.domain.digests import Json
from livery.ports.required.sandbox_provider import Network
from livery.ports.required.world import GradeWhere

GRADER: dict[str, Json] = {"command": ["sh", "grade.sh"]}


def mistakes(task_data: object) -> dict[str, str]:
    with pytest.raises(Mistaken) as caught:
        to_workspace_task(task_data)  # type: ignore[arg-type]
    return dict(caught.value.found)


def grader_mistakes(**fields: Json) -> dict[str, str]:
    return mistakes({"grader": {**GRADER, **fields}})


def test_a_grader_command_is_all_that_a_task_needs() -> None:
    task = to_workspace_task({"grader": GRADER})

    assert task.grader.command == ("sh", "grade.sh")
    assert task.grader.timeout_seconds == GRADER_TIMEOUT_SECONDS
    assert task.grader.grade is GradeWhere.FRESH
    assert task.grader.reward == ExitCode()
    assert task.files == task.grader.files == ()
    assert task.solution is None


def test_every_field_is_read() -> None:
    task = to_workspace_task(
        {
            "files": {
                "a/plain.txt": "text",
                "./run": {"text": "#!/bin/sh\n", "mode": "0755"},
                "raw": {"base64": base64.b64encode(b"\0\xff").decode()},
            },
            "workdir": "/srv//work/",
            "sandbox": {
                "image": "img:1",
                "env": {"A": ""},
                "user": "nobody",
                "cpus": 0.5,
                "memory_mib": 512,
                "processes_max": 64,
                "network": "none",
            },
            "grader": {
                "command": ["./g", "-x"],
                "files": {"g": {"text": "", "mode": "755"}},
                "env": {"B": "c"},
                "input": "more\n",
                "timeout_seconds": 1.5,
                "grade": "same",
                "reward": {"number_file": "out/reward"},
            },
            "solution": {"files": {"a/plain.txt": "solved"}},
        }
    )

    assert [(f.path, f.content, f.mode) for f in task.files] == [
        ("a/plain.txt", b"text", 0o644),
        ("run", b"#!/bin/sh\n", 0o755),
        ("raw", b"\0\xff", 0o644),
    ]
    assert task.workdir == "/srv/work"
    assert task.sandbox.network is Network.NONE
    assert (task.sandbox.cpus, task.sandbox.memory_mib) == (0.5, 512)
    assert task.grader.timeout_seconds == 1.5
    assert task.grader.grade is GradeWhere.SAME
    assert task.grader.reward_path == "out/reward"
    assert task.grader.files[0].mode == 0o755
    assert task.solution is not None
    assert task.solution.files[0].content == b"solved"


def test_a_task_without_a_grader_is_refused() -> None:
    assert mistakes({}) == {"task_data.grader": "missing; it must be there"}
    assert "null" in mistakes({"grader": None})["task_data.grader"]


@pytest.mark.case("FC-250")
def test_a_misspelt_key_is_named_with_what_was_meant() -> None:
    found = mistakes({"grader": {"comand": ["a"], "command": ["a"]}, "filse": {}})

    assert "did you mean 'command'?" in found["task_data.grader.comand"]
    assert "did you mean 'files'?" in found["task_data.filse"]


@pytest.mark.case("FC-251")
@pytest.mark.parametrize("command", ["sh grade.sh", {"sh": 1}, 5, None, True])
def test_a_command_that_is_no_list_is_refused(command: Json) -> None:
    found = grader_mistakes(command=command)

    assert "must be a list of words" in found["task_data.grader.command"]


def test_the_words_of_a_command_are_text() -> None:
    assert "no program" in grader_mistakes(command=[])["task_data.grader.command"]
    assert "no program" in grader_mistakes(command=[""])["task_data.grader.command"]
    found = grader_mistakes(command=["a", 1, "b\0c"])
    assert found.keys() == {
        "task_data.grader.command[1]",
        "task_data.grader.command[2]",
    }


@pytest.mark.case("FC-253")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("exit_code", ExitCode()),
        ({"number_file": "r"}, NumberFile(to_relative_path("r"))),
        ({"json_file": "r"}, JsonFile(to_relative_path("r"))),
    ],
)
def test_each_way_to_tell_a_reward_is_read_as_itself(
    written: Json, read: object
) -> None:
    task = to_workspace_task({"grader": {**GRADER, "reward": written}})

    assert task.grader.reward == read


@pytest.mark.case("FC-253")
@pytest.mark.parametrize(
    "written",
    ["exit code", {}, {"number_file": "a", "json_file": "b"}, [], None, 1],
)
def test_a_reward_is_told_in_one_way_alone(written: Json) -> None:
    assert "must be" in grader_mistakes(reward=written)["task_data.grader.reward"]


@pytest.mark.case("FC-254")
def test_all_mistakes_of_a_task_are_told_at_once() -> None:
    found = mistakes(
        {
            "files": {"../a": "", "b": 5, "c": {"base64": "!"}, "d": {"txt": ""}},
            "workdir": "relative",
            "sandbox": {"network": "on", "mounts": [], "memory_mib": 1.5},
            "grader": {
                "command": "sh",
                "timeout_seconds": 0,
                "grade": "fresch",
                "env": {"A=B": "", "C": 1},
            },
            "solution": {},
        }
    )

    assert found.keys() == {
        'task_data.files["../a"]',
        "task_data.files.b",
        "task_data.files.c.base64",
        "task_data.files.d.txt",
        "task_data.workdir",
        "task_data.sandbox.network",
        "task_data.sandbox.mounts",
        "task_data.sandbox.memory_mib",
        "task_data.grader.command",
        "task_data.grader.timeout_seconds",
        "task_data.grader.grade",
        'task_data.grader.env["A=B"]',
        "task_data.grader.env.C",
        "task_data.solution.files",
    }


@pytest.mark.case("FC-258")
@pytest.mark.parametrize(
    "seconds",
    [0, -1, 1e12, float("inf"), float("nan"), "1.5s", "2", True, None, [1], 10**400],
)
def test_a_duration_that_is_none_is_refused(seconds: Json) -> None:
    found = grader_mistakes(timeout_seconds=seconds)

    assert list(found) == ["task_data.grader.timeout_seconds"]
    assert "seconds as a number" in found["task_data.grader.timeout_seconds"]


@pytest.mark.case("FC-258")
@pytest.mark.parametrize("seconds", [0.25, 1, 1.5, GRADER_TIMEOUT_SECONDS_MAX])
def test_a_duration_is_read_with_its_fraction(seconds: float) -> None:
    task = to_workspace_task({"grader": {**GRADER, "timeout_seconds": seconds}})

    assert task.grader.timeout_seconds == seconds


@pytest.mark.parametrize(
    "path",
    ["", "/a", "../a", "a/../b", "a/..", ".", "a/", "a/.", "a\0b", "x" * 256],
)
def test_a_path_out_of_the_workspace_or_without_a_name_is_refused(path: str) -> None:
    assert len(mistakes({"grader": GRADER, "files": {path: ""}})) == 1


@pytest.mark.parametrize("path", ["a b", "-x", "é", 'q"u', "n\nl", "...", ".a", "a..b"])
def test_an_odd_name_is_taken_as_it_is(path: str) -> None:
    task = to_workspace_task({"grader": GRADER, "files": {path: ""}})

    assert task.files[0].path == path


def test_two_names_of_one_file_are_refused() -> None:
    found = mistakes({"grader": GRADER, "files": {"a": "1", "./a": "2"}})

    assert found == {"task_data.files": '"a" is named twice'}


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"files": {"a": "", "a/b": ""}}, "task_data.files"),
        (
            {"files": {"t/x": ""}, "grader": {**GRADER, "files": {"t": ""}}},
            "task_data.grader.files",
        ),
        (
            {"files": {"a": ""}, "solution": {"files": {"a/b": ""}}},
            "task_data.solution.files",
        ),
        (
            {
                "grader": {
                    **GRADER,
                    "files": {"r": ""},
                    "reward": {"number_file": "r"},
                }
            },
            "task_data.grader.reward",
        ),
    ],
)
def test_a_file_is_not_also_something_else(data: dict[str, Json], path: str) -> None:
    assert list(mistakes({"grader": GRADER, **data})) == [path]


def test_a_grader_file_may_have_the_name_of_a_file_of_the_task() -> None:
    data: dict[str, Json] = {
        "files": {"tests/t.py": "seen"},
        "grader": {**GRADER, "files": {"tests/t.py": "hidden"}},
    }

    assert to_workspace_task(data).grader.files[0].content == b"hidden"


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    found = mistakes({"grader": GRADER, "files": {"a": "\ud800"}})

    assert "surrogate" in found["task_data.files.a"]


@pytest.mark.parametrize("mode", ["0999", "4755", 755, "rwx", "", "00755"])
def test_a_mode_that_is_no_octal_text_is_refused(mode: Json) -> None:
    found = mistakes({"grader": GRADER, "files": {"a": {"text": "", "mode": mode}}})

    assert "octal" in found["task_data.files.a.mode"]


@pytest.mark.parametrize("entry", [{}, {"text": "", "base64": ""}, {"mode": "0644"}])
def test_a_file_has_one_content(entry: Json) -> None:
    found = mistakes({"grader": GRADER, "files": {"a": entry}})

    assert "either text or base64" in found["task_data.files.a"]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["files", "grader", "command", "reward", "sandbox", "env", "x", "a/b"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(ANY_JSON)
def test_any_json_is_read_or_refused_with_paths(value: Json) -> None:
    found: list[tuple[str, str]] = []
    try:
        to_workspace_task(value)  # type: ignore[arg-type]
    except Mistaken as mistaken:
        found.extend(mistaken.found or [("", "")])

    assert all(path.startswith("task_data") and text for path, text in found)


@given(st.lists(st.sampled_from(["a", "b", "a/b", "a/b/c", "b/c", "c"]), max_size=6))
def test_what_does_not_clash_can_stand_in_one_folder(paths: list[str]) -> None:
    files = set(paths)
    parents = {
        path[:end] for path in paths for end in range(len(path)) if path[end] == "/"
    }

    assert bool(clashes(paths)) == (len(files) < len(paths) or bool(files & parents))
