# SPDX-License-Identifier: Apache-2.0
"""The `task_data` of a workspace task, read strictly.

The one place that turns a task's JSON into values. Durations are seconds, as
numbers. What is wrong is told with the path of each field, all of it at once.
"""

import posixpath
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NewType, cast

import attrs
from cattrs import Converter

from ...ports.required.sandbox_provider import Network
from ...ports.required.world import GradeWhere
from .strict import (
    Mistaken,
    below,
    is_list,
    shown,
    strict_converter,
    structured,
    to_int,
    to_number,
    to_object,
    to_text,
    unknown,
    wrong,
)
from .workspace_paths import (
    NO_FILES,
    Mode,
    Placed,
    RelativePath,
    clashes,
    to_mode,
    to_placed,
    to_relative_path,
)

GRADER_TIMEOUT_SECONDS: Final = 300.0
GRADER_TIMEOUT_SECONDS_MAX: Final = 86_400.0
CPUS_MAX: Final = 1024.0
MEMORY_MIB_MAX: Final = 16 * 1024 * 1024
PROCESSES_MAX: Final = 4_194_304

Seconds = NewType("Seconds", float)
Cpus = NewType("Cpus", float)
MemoryMib = NewType("MemoryMib", int)
Processes = NewType("Processes", int)
Words = NewType("Words", tuple[str, ...])
Targets = NewType("Targets", tuple[str, ...])
"""A command, word by word."""
Environment = NewType("Environment", Mapping[str, str])
FolderPath = NewType("FolderPath", str)
"""Absolute and normalised."""


@attrs.frozen
class ExitCode:
    """Status 0 is a reward of 1, all else is 0."""


@attrs.frozen
class NumberFile:
    """The reward is the number that the file holds."""

    path: RelativePath


@attrs.frozen
class JsonFile:
    """The reward is `reward` of the JSON object that the file holds."""

    path: RelativePath


Reward = ExitCode | NumberFile | JsonFile


@attrs.frozen(kw_only=True)
class Wishes:
    """How the task bends the configured sandbox."""

    image: str | None = None
    env: Environment = attrs.field(factory=lambda: Environment({}))
    user: str | None = None
    cpus: Cpus | None = None
    memory_mib: MemoryMib | None = None
    processes_max: Processes | None = None
    network: Network = Network.DEFAULT
    reachable: Targets = Targets(())
    """With the network "listed": what the task reaches."""


@attrs.frozen(kw_only=True)
class Grader:
    """How the work is graded."""

    command: Words
    files: Placed = NO_FILES
    env: Environment = attrs.field(factory=lambda: Environment({}))
    input: str = ""
    timeout_seconds: Seconds = Seconds(GRADER_TIMEOUT_SECONDS)
    grade: GradeWhere = GradeWhere.FRESH
    reward: Reward = ExitCode()

    @property
    def reward_path(self) -> RelativePath | None:
        """The file that the reward is read from, if it is read from one."""
        return None if isinstance(self.reward, ExitCode) else self.reward.path


@attrs.frozen(kw_only=True)
class Solution:
    """What the oracle puts down."""

    files: Placed


@attrs.frozen(kw_only=True)
class WorkspaceTask:
    """What the world knows of one task."""

    grader: Grader
    files: Placed = NO_FILES
    workdir: FolderPath | None = None
    sandbox: Wishes = attrs.field(factory=Wishes)
    solution: Solution | None = None


def to_workspace_task(task_data: Mapping[str, object]) -> WorkspaceTask:
    """Return the task that `task_data` describes.

    Raises:
        Mistaken: With every mistake; the paths begin with `task_data`.
    """
    task = structured(_CONVERTER, task_data, WorkspaceTask, "task_data")
    if found := list(_clashes(task)):
        raise Mistaken(found)
    return task


def _clashes(task: WorkspaceTask) -> list[tuple[str, str]]:
    """Tell what is right by itself and cannot stand beside the rest."""
    at_start = {file.path for file in task.files}
    graders = {file.path for file in task.grader.files}
    found = [
        ("task_data.grader.files", text) for text in clashes(sorted(at_start | graders))
    ]
    reward = task.grader.reward_path
    if reward is not None:
        path = "task_data.grader.reward"
        if reward in graders:
            found.append((path, f"{shown(reward)} is one of the grader's files"))
        found += [(path, text) for text in clashes(sorted(graders | {reward}))]
    if task.solution is not None:
        solved = at_start | {file.path for file in task.solution.files}
        found += [
            ("task_data.solution.files", text) for text in clashes(sorted(solved))
        ]
    return found


def _to_bounded(value: object, *, most: float, expected: str) -> float:
    number = to_number(value, expected)
    if not 0 < number <= most:
        raise ValueError(wrong(value, expected))
    return number


def _to_count(value: object, *, most: int, expected: str) -> int:
    number = to_int(value, expected)
    if not 1 <= number <= most:
        raise ValueError(wrong(value, expected))
    return number


def _to_words(value: object) -> Words:
    expected = 'a list of words, ["sh", "grade.sh"] say'
    if not is_list(value):
        raise ValueError(wrong(value, expected))
    found: list[tuple[str, str]] = []
    words: list[str] = []
    for index, word in enumerate(value):
        if isinstance(word, str) and "\0" not in word:
            words.append(to_text(word))
        else:
            found.append((f"[{index}]", wrong(word, "text without NUL")))
    if not value or value[0] == "":
        found.append(("", f"has no program, must be {expected}"))
    if found:
        raise Mistaken(found)
    return Words(tuple(words))


def _to_environment(value: object) -> Environment:
    found: list[tuple[str, str]] = []
    values: dict[str, str] = {}
    for name, text in to_object(value, "an object {name: text}").items():
        path = below("", name)
        if not name or "=" in name or "\0" in name:
            found.append((path, "is no name of an environment variable"))
        elif not isinstance(text, str):
            found.append((path, wrong(text, "text")))
        elif "\0" in text:
            found.append((path, "holds a NUL character"))
        else:
            values[name] = to_text(text)
    if found:
        raise Mistaken(found)
    return Environment(values)


def _to_targets(value: object) -> Targets:
    expected = "a list of host names and addresses"
    if not isinstance(value, list):
        raise ValueError(wrong(value, expected))
    found = cast("list[object]", value)
    return Targets(tuple(to_text(one, expected) for one in found))


def _to_folder(value: object) -> FolderPath:
    expected = 'an absolute folder, "/workspace" say'
    path = to_text(value, expected)
    plain = posixpath.normpath(path)
    if not path.startswith("/") or plain in ("/", "//") or "\0" in path:
        raise ValueError(wrong(value, expected))
    if ".." in path.split("/"):
        raise ValueError(f"{shown(path)} holds '..', must be {expected}")
    return FolderPath(plain.replace("//", "/"))


def _to_word_of(value: object, words: type[Network] | type[GradeWhere]) -> object:
    if value not in [word.value for word in words]:
        known = " or ".join(f'"{word.value}"' for word in words)
        raise ValueError(wrong(value, known))
    return words(value)


def _to_reward(value: object) -> Reward:
    kinds: dict[str, type[NumberFile] | type[JsonFile]] = {
        "number_file": NumberFile,
        "json_file": JsonFile,
    }
    expected = '"exit_code", {"number_file": path} or {"json_file": path}'
    if value == "exit_code":
        return ExitCode()
    entries = to_object(value, expected)
    if found := [(below("", n), unknown(n, kinds)) for n in entries if n not in kinds]:
        raise Mistaken(found)
    if len(entries) != 1:
        raise ValueError(f"must be one of {expected}")
    ((kind, path),) = entries.items()
    try:
        return kinds[kind](to_relative_path(path))
    except ValueError as error:
        raise Mistaken([(below("", kind), str(error))]) from error


def _converter() -> Converter:
    converter = strict_converter()
    seconds = (
        f"seconds as a number, more than 0, at most {GRADER_TIMEOUT_SECONDS_MAX:g}"
    )
    cpus = f"a number of processors, more than 0, at most {CPUS_MAX:g}"
    mebibytes = f"whole mebibytes, from 1 to {MEMORY_MIB_MAX}"
    processes = f"a whole number from 1 to {PROCESSES_MAX}"
    # `Any`: cattrs has no word for "a type form", which a NewType or a union is.
    hooks: dict[Any, Any] = {
        Seconds: partial(
            _to_bounded, most=GRADER_TIMEOUT_SECONDS_MAX, expected=seconds
        ),
        Cpus: partial(_to_bounded, most=CPUS_MAX, expected=cpus),
        MemoryMib: partial(_to_count, most=MEMORY_MIB_MAX, expected=mebibytes),
        Processes: partial(_to_count, most=PROCESSES_MAX, expected=processes),
        Words: _to_words,
        Targets: _to_targets,
        Environment: _to_environment,
        FolderPath: _to_folder,
        RelativePath: to_relative_path,
        Mode: to_mode,
        Network: partial(_to_word_of, words=Network),
        GradeWhere: partial(_to_word_of, words=GradeWhere),
        Reward: _to_reward,
        Placed: partial(to_placed, converter),
    }
    for wanted, read in hooks.items():
        converter.register_structure_hook(wanted, partial(_called, read))
    return converter


def _called(read: Any, value: object, _: object) -> Any:
    return read(value)


_CONVERTER: Final = _converter()
