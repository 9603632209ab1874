# SPDX-License-Identifier: Apache-2.0
"""The world `workspace`: what it asks for, and how it reads a grader's end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.domain.activations import Outcome
from livery.domain.digests import Json
from livery.domain.scores import Evidence, GraderEnd, GraderEvidence, Verdict, judge
from livery.domain.tasks import Task, TaskId
from livery.ports.required.harness import PlacedFile
from livery.ports.required.sandbox import (
    Ended,
    Exited,
    ExitUnknown,
    How,
    Lost,
    NotStarted,
    Output,
    Signalled,
    TimedOut,
)
from livery.ports.required.sandbox_provider import Network, SandboxSpec
from livery.ports.required.task_source import NoSolution
from livery.ports.required.world import (
    GraderRun,
    GradeWhere,
    SolvedWorld,
    TaskRefused,
)

MARK = "mark-0123456789abcdef"
WORLD: SolvedWorld = WorkspaceWorld()
DONE = Exited(0)


def a_task(**task_data: Json) -> Task:
    grader: Json = {"command": ["sh", "grade.sh"]}
    return Task(
        task_id=TaskId("set", "one"),
        responses_create_params={"input": "do it"},
        task_data={"grader": grader, **task_data},
    )


def output(text: bytes, keep: int = 1 << 20) -> Output:
    if len(text) <= keep:
        return Output(head=text, size=len(text))
    half = keep // 2
    return Output(head=text[:half], tail=text[-half:], size=len(text))


def evidence(
    how: How = DONE,
    stdout: Output | None = None,
    reward: Json = "exit_code",
    file: bytes | None = None,
) -> GraderEvidence:
    task = a_task(grader={"command": ["g"], "reward": reward})
    told = output(f"{MARK}\n".encode()) if stdout is None else stdout
    run = GraderRun(mark=MARK, ended=Ended(how=how, stdout=told), reward_file=file)
    return WORLD.evidence(task, run)


def verdict(found: GraderEvidence) -> Verdict:
    return judge(Evidence(outcome=Outcome.COMPLETED, grader=found))


def test_a_task_bends_the_configured_sandbox() -> None:
    configured = SandboxSpec(image="base", env={"A": "1", "B": "2"}, cpus=2.0)
    task = a_task(
        workdir="/repo",
        sandbox={"env": {"B": "3"}, "memory_mib": 256, "image": "other"},
    )

    spec = WORLD.sandbox(task, configured)

    assert spec == SandboxSpec(
        image="other",
        workdir="/repo",
        env={"A": "1", "B": "3"},
        cpus=2.0,
        memory_mib=256,
    )


def test_a_task_that_asks_for_nothing_gets_the_configured_sandbox() -> None:
    configured = SandboxSpec(image="base", workdir="/w", network=Network.NONE)

    assert WORLD.sandbox(a_task(), configured) == configured


@pytest.mark.parametrize(
    ("configured", "wished", "got"),
    [
        ("default", "default", "default"),
        ("default", "none", "none"),
        ("none", "default", "none"),
        ("none", "none", "none"),
    ],
)
def test_a_task_closes_the_network_and_never_opens_it(
    configured: str, wished: str, got: str
) -> None:
    spec = WORLD.sandbox(
        a_task(sandbox={"network": wished}), SandboxSpec(network=Network(configured))
    )

    assert spec is not None
    assert spec.network is Network(got)


def test_the_grader_gets_the_mark_first_and_then_its_input() -> None:
    task = a_task(
        grader={
            "command": ["python3", "g.py"],
            "files": {"g.py": "pass"},
            "env": {"X": "y"},
            "input": "tests",
            "timeout_seconds": 2.5,
            "grade": "same",
        }
    )

    plan = WORLD.grader(task, MARK)

    assert plan is not None
    assert plan.where is GradeWhere.SAME
    assert plan.files == (PlacedFile(path="g.py", content=b"pass"),)
    assert plan.command.argv == ("python3", "g.py")
    assert plan.command.stdin == f"{MARK}\ntests".encode()
    assert plan.command.env == {"X": "y"}
    assert plan.command.timeout_seconds == 2.5
    assert plan.command.cwd is None
    assert plan.reward_file is None


def test_the_mark_is_nowhere_but_on_standard_input() -> None:
    plan = WORLD.grader(a_task(), MARK)

    assert plan is not None
    assert MARK not in " ".join((*plan.command.argv, *plan.command.env.values()))
    assert not any(MARK.encode() in file.content for file in plan.files)


def test_a_reward_file_that_the_agent_wrote_is_emptied_before_grading() -> None:
    task = a_task(grader={"command": ["g"], "reward": {"number_file": "out/r"}})

    plan = WORLD.grader(task, MARK)

    assert plan is not None
    assert plan.reward_file == "out/r"
    assert plan.files == (PlacedFile(path="out/r", content=b""),)


@pytest.mark.parametrize(
    "text",
    [
        f"{MARK}",
        f"{MARK}\n",
        f"noise\n{MARK}\n",
        f"noise\n{MARK}\r\n\n  \n",
        f"\n  {MARK}  ",
        f"other\n{MARK}\n{MARK}\n",
    ],
)
def test_the_mark_as_the_last_line_that_is_not_blank_counts(text: str) -> None:
    assert evidence(stdout=output(text.encode())).marked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        f"{MARK}\nmore",
        f"x{MARK}\n",
        f"{MARK}x\n",
        f"{MARK} passed\n",
        "mark-ffffffffffffffff\n",
        MARK[:-1],
    ],
)
def test_anything_else_at_the_end_is_no_pass_and_the_agents_fault(text: str) -> None:
    found = evidence(stdout=output(text.encode()))

    assert not found.marked
    assert verdict(found) == Verdict(
        reward=0.0, failure_reason="the grader was ended before its end mark"
    )


def test_a_cut_output_still_shows_its_last_line() -> None:
    flood = b"x" * 5000 + b"\n"

    assert evidence(stdout=output(flood + MARK.encode() + b"\n", keep=1000)).marked


def test_a_line_that_may_have_begun_in_what_was_cut_is_no_mark() -> None:
    cut = Output(head=b"x", tail=MARK.encode(), size=5000)

    assert not evidence(stdout=cut).marked


@given(st.binary(max_size=60), st.integers(min_value=60, max_value=200))
def test_no_output_without_the_mark_passes(text: bytes, keep: int) -> None:
    assert not evidence(stdout=output(text, keep)).marked


@given(st.binary(max_size=300), st.integers(min_value=120, max_value=400))
def test_the_mark_is_found_after_any_output(text: bytes, keep: int) -> None:
    ended = text + b"\n" + MARK.encode() + b"\n"

    assert evidence(stdout=output(ended, keep)).marked


@pytest.mark.parametrize(
    ("how", "reward"), [(Exited(0), 1.0), (Exited(1), 0.0), (Signalled(9), 0.0)]
)
def test_status_zero_alone_is_a_reward(how: How, reward: float) -> None:
    assert verdict(evidence(how)) == Verdict(reward=reward)


@pytest.mark.parametrize(
    ("how", "end"),
    [
        (Exited(3), GraderEnd.ENDED),
        (Signalled(11), GraderEnd.ENDED),
        (TimedOut(5.0), GraderEnd.TIMED_OUT),
        (NotStarted("no such program"), GraderEnd.NOT_STARTED),
        (ExitUnknown("the keeper is gone"), GraderEnd.LOST),
        (Lost("the container was removed"), GraderEnd.LOST),
        (Lost("the container ran out of memory (OOM)"), GraderEnd.OUT_OF_MEMORY),
        (Lost("killed: Out of memory"), GraderEnd.OUT_OF_MEMORY),
        (Lost("removed from the room"), GraderEnd.LOST),
    ],
)
def test_each_way_to_end_is_told_apart(how: How, end: GraderEnd) -> None:
    assert evidence(how).end is end


@pytest.mark.case("FC-248")
@pytest.mark.parametrize("how", [NotStarted("x"), ExitUnknown("x"), Lost("x")])
def test_a_grader_that_the_infrastructure_failed_is_masked(how: How) -> None:
    found = verdict(evidence(how))

    assert found.masked
    assert found.failure_reason is not None
    assert found.failure_reason.endswith("x")


def test_a_grader_that_hangs_is_the_agents_fault() -> None:
    assert not verdict(evidence(TimedOut(1.0))).masked


@pytest.mark.parametrize(
    ("file", "reward"),
    [
        (b"1", 1.0),
        (b" 0.25\n", 0.25),
        (b"-1.5", -1.5),
        (b"1e3", 1000.0),
        (b".5", 0.5),
        (b"+2.", 2.0),
    ],
)
def test_a_number_in_a_file_is_the_reward(file: bytes, reward: float) -> None:
    found = evidence(Exited(1), reward={"number_file": "r"}, file=file)

    assert verdict(found) == Verdict(reward=reward)


@pytest.mark.parametrize(
    "file",
    [
        None,
        b"",
        b" \n",
        b"nan",
        b"inf",
        b"1e999",
        b"1_0",
        b"0x1",
        b"one",
        b"1 2",
        b"\xff",
    ],
)
def test_a_number_that_cannot_be_read_is_the_graders_fault(file: bytes | None) -> None:
    found = evidence(reward={"number_file": "r"}, file=file)

    assert found.reward is None
    assert "the reward file r" in found.reason
    assert verdict(found).masked


def test_json_gives_the_reward_and_keeps_the_rest() -> None:
    found = evidence(
        reward={"json_file": "r"}, file=b'{"reward": 0.5, "passed": 3, "of": [6]}'
    )

    assert verdict(found) == Verdict(reward=0.5)
    assert found.details == {"passed": 3, "of": [6]}


@pytest.mark.parametrize(
    "file",
    [
        None,
        b"",
        b"1.0",
        b"{}",
        b'{"reward": "1"}',
        b'{"reward": true}',
        b'{"reward": NaN}',
        b'{"reward": 1e999}',
        b'{"reward": 1, "x": NaN}',
        b'{"reward": 1, "x": "\\ud800"}',
        b'{"reward": 1',
        b'{"reward": 1' + b"0" * 400 + b"}",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_json_that_cannot_be_read_is_the_graders_fault(file: bytes | None) -> None:
    found = evidence(reward={"json_file": "r"}, file=file)

    assert found.reward is None
    assert "the reward file r" in found.reason
    assert verdict(found).masked


@given(st.binary(max_size=40))
def test_any_reward_file_is_read_or_told(file: bytes) -> None:
    for kind in ("number_file", "json_file"):
        found = evidence(reward={kind: "r"}, file=file)

        assert (found.reward is None) == bool(found.reason)


def test_the_solution_is_the_tasks_own() -> None:
    task = a_task(solution={"files": {"a": "solved"}})

    assert WORLD.solution(task) == (PlacedFile(path="a", content=b"solved"),)
    with pytest.raises(NoSolution):
        WORLD.solution(a_task())


@pytest.mark.case("FC-254")
def test_a_refused_task_names_itself_and_every_mistake() -> None:
    task = a_task(files={"/a": ""}, workdir="w")

    with pytest.raises(TaskRefused) as caught:
        WORLD.check(task)

    assert str(caught.value).startswith("Task one: task_data.files")
    assert len(caught.value.mistakes.splitlines()) == 2


def test_what_was_not_run_is_not_graded() -> None:
    assert WORLD.evidence(a_task(), None).end is GraderEnd.NOT_STARTED
