# SPDX-License-Identifier: Apache-2.0
"""A run's choices: who goes first, what is derived, and what is kept for later."""

from pathlib import Path
from typing import Any

import pytest

from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.domain.digests import Json
from livery.domain.tasks import Task, TaskId
from livery.entrypoints.built_in import HARNESSES
from livery.entrypoints.plug_ins import HarnessPlugIn, SolutionsMissing, Surroundings
from livery.entrypoints.run_plan import RunPlan, from_stored, plan_of, to_stored
from livery.entrypoints.run_tasks import (
    MISTAKES_MAX,
    check_tasks,
    load_tasks,
    solutions_of,
)
from livery.entrypoints.settings import (
    DEFAULT_IMAGE,
    HarnessSettings,
    MountSettings,
    SandboxSettings,
    Settings,
)
from livery.entrypoints.settings_reading import SettingsFile
from livery.ports.required.harness import HarnessRequest
from livery.ports.required.sandbox_provider import Capability, Network
from livery.ports.required.task_source import TasksRefused

NOWHERE = Surroundings(name="x", state=Path("/nowhere"))


def plan(block: SandboxSettings | None = None, **over: Any) -> RunPlan:
    settings = Settings(sandbox={"local": block or SandboxSettings()})
    return plan_of(SettingsFile(settings=settings), over)


@pytest.mark.case("FC-235")
def test_the_image_is_the_given_one_then_the_environments_then_the_default() -> None:
    images, around = frozenset({Capability.IMAGES}), {"LIVERY_IMAGE": "around:1"}

    given = plan(SandboxSettings(image="given:1")).spec(images, around)
    from_around = plan().spec(images, around)
    default = plan().spec(images, {})
    none = plan().spec(frozenset(), around)

    assert given.image == "given:1"
    assert from_around.image == "around:1"
    assert default.image == DEFAULT_IMAGE
    assert none.image is None


@pytest.mark.case("FC-209")
def test_limits_that_nobody_set_have_room_for_the_turn() -> None:
    long = HarnessSettings(turn_timeout_seconds=50_000.0)

    derived = plan(harness_block={"turn_timeout_seconds": 50_000.0})
    chosen = plan(
        SandboxSettings(lifetime_seconds=7200.0), episode_timeout_seconds=8000.0
    )

    assert derived.harness_block == long
    assert derived.lifetime_seconds > 50_000.0
    assert derived.episode_seconds > 50_000.0
    assert (chosen.lifetime_seconds, chosen.episode_seconds) == (7200.0, 8000.0)


def test_a_plan_is_kept_and_read_again_as_it_was() -> None:
    block = SandboxSettings(
        provider="docker",
        network=Network.NONE,
        mounts=(MountSettings(source="/a", target="/b"),),
        ports=(80,),
        options={"key": {"env": "KEY"}, "deep": [1, {"x": "y"}]},
    )
    chosen = plan(block, harness_block={"options": {"command": ["x"]}}, limit=3)

    assert from_stored(to_stored(chosen)) == chosen


class Source:
    """A task source of somebody else's."""

    name = "odd"

    def __init__(self, *names: str, data: dict[str, Json] | None = None) -> None:
        self._names = names
        self._data: dict[str, Json] = {} if data is None else data

    def tasks(self) -> Any:
        return (
            Task(
                task_id=TaskId("odd", name),
                responses_create_params={"input": "x"},
                task_data=self._data,
            )
            for name in self._names
        )


def test_tasks_of_others_are_looked_at_too() -> None:
    with pytest.raises(TasksRefused, match="task odd/a is there twice"):
        load_tasks(Source("a", "b", "a"), named="odd", limit=None)
    with pytest.raises(TasksRefused, match="there is no task in it"):
        load_tasks(Source(), named="odd", limit=None)


def test_the_same_tasks_have_the_same_digest_and_others_another() -> None:
    digests = [
        load_tasks(Source(*names), named="x", limit=limit).digest
        for names, limit in (("ab", None), ("abc", 2), ("ba", None), ("abc", None))
    ]

    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_of_many_mistakes_the_first_are_told() -> None:
    names = [f"t{number}" for number in range(MISTAKES_MAX + 5)]
    tasks = load_tasks(Source(*names), named="odd", limit=None)
    nop = HARNESSES["nop"].load()

    with pytest.raises(TasksRefused) as caught:
        check_tasks(tasks, WorkspaceWorld(), nop.make(NOWHERE, nop.options()))

    lines = [x for x in caught.value.mistakes.splitlines() if x.startswith("Task ")]
    assert len(lines) == MISTAKES_MAX
    assert caught.value.mistakes.endswith("…and more; these are the first.")


def test_solutions_are_the_tasks_own_where_the_source_has_none() -> None:
    data: dict[str, Json] = {
        "grader": {"command": ["true"]},
        "solution": {"files": {"answer": "42"}},
    }
    source = Source("a", data=data)
    tasks = load_tasks(source, named="odd", limit=None)
    world = WorkspaceWorld()

    solutions = solutions_of(source, world, tasks)

    assert solutions is not None
    (file,) = solutions.solution(TaskId("odd", "a"))
    assert (file.path, file.content) == ("answer", b"42")


class Bare:
    """A world that knows no solutions."""

    name = "bare"


def test_where_there_can_be_no_solutions_the_oracle_says_so() -> None:
    source = Source("a")
    tasks = load_tasks(source, named="odd", limit=None)
    oracle: HarnessPlugIn = HARNESSES["oracle"].load()

    assert solutions_of(source, Bare(), tasks) is None  # type: ignore[arg-type]
    with pytest.raises(SolutionsMissing, match="Harness x applies reference solutions"):
        oracle.make(NOWHERE, oracle.options())


def test_a_harness_is_asked_for_each_task() -> None:
    seen: list[HarnessRequest] = []

    class Asked:
        def check(self, request: HarnessRequest) -> None:
            seen.append(request)

    data: dict[str, Json] = {"grader": {"command": ["true"]}}
    tasks = load_tasks(Source("a", "b", data=data), named="odd", limit=None)

    check_tasks(tasks, WorkspaceWorld(), Asked())  # type: ignore[arg-type]

    assert [request.task.task_id for request in seen] == ["a", "b"]
