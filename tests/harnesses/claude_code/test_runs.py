# SPDX-License-Identifier: Apache-2.0
"""Programs that misbehave as the real one was reported to, run and read as it is."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.claude_code import ClaudeCodeConfig, ClaudeCodeHarness
from livery.adapters.harnesses.claude_code.command import Paths
from livery.adapters.local_host import LocalHostSandboxProvider
from livery.adapters.system_clock.clock import SystemClock
from livery.adapters.worker_scripts import program
from livery.domain.activations import Ending, Outcome, RunId, Stillness
from livery.domain.digests import Json
from livery.ports.provided.activate_harness import ActivateHarness, Attempt, Equipment
from livery.ports.required.artifact_store import Reader, Shelf
from livery.ports.required.harness import HarnessRequest
from livery.ports.required.model_access import ModelGrant, ModelRecord
from livery.ports.required.sandbox import Sandbox, shell
from livery.ports.required.sandbox_provider import SandboxSpec

from ...channel import processes
from ...local_host import places
from ...local_host.conftest import provider, root
from .captures import asking

__all__ = ["provider", "root"]

pytestmark = pytest.mark.anyio

BOUND_SECONDS = 60.0
GRANT = ModelGrant(base_url="http://127.0.0.1:9", placeholder="placeholder-of-session")


def line(**event: Json) -> str:
    return json.dumps(event)


INIT = line(type="system", subtype="init", session_id="other-id", model="m1")
ANSWER = line(
    type="assistant",
    uuid="u1",
    timestamp="2026-11-29T14:00:00.000Z",
    message={
        "id": "msg_1",
        "model": "m1",
        "content": [
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "x"}}
        ],
    },
)
RESULT_OF_TOOL = line(
    type="user",
    uuid="u2",
    timestamp="2026-11-29T14:00:01.000Z",
    message={
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]
    },
)
FINAL = line(
    type="assistant",
    uuid="u3",
    timestamp="2026-11-29T14:00:02.000Z",
    message={
        "id": "msg_2",
        "model": "m1",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "done"}],
        "usage": {"input_tokens": 5, "output_tokens": 7},
    },
)
SUCCESS = line(
    subtype="success",
    is_error=False,
    usage={"input_tokens": 5, "output_tokens": 7},
    type="result",
)


def say(*lines: str) -> str:
    return "\n".join(f"cat <<'END'\n{one}\nEND" for one in lines)


@attrs.frozen
class Runner:
    """A sandbox, and a program in it that stands for the real one."""

    sandbox: Sandbox
    artifacts: MemoryArtifactStore = attrs.field(factory=MemoryArtifactStore)

    async def __call__(
        self,
        script: str,
        request: HarnessRequest | None = None,
        *,
        run: str = "run-1",
        seen_of_model: ModelRecord | None = None,
        **config: Any,
    ) -> Ending:
        with anyio.fail_after(BOUND_SECONDS):
            activate, attempt = await self.attempt(
                script, request, run=run, seen_of_model=seen_of_model, **config
            )
            return await activate(attempt)

    async def attempt(
        self,
        script: str,
        request: HarnessRequest | None = None,
        *,
        run: str = "run-1",
        seen_of_model: ModelRecord | None = None,
        **config: Any,
    ) -> tuple[ActivateHarness, Attempt]:
        path = f"{self.sandbox.scratch}/claude-{run}"
        text = f"#!/bin/sh\n{script}\n".encode()

        async def once() -> AsyncIterator[bytes]:
            yield text

        await self.sandbox.put(path, once(), size=len(text), mode=0o755)
        config = {"stall_seconds": None, "timeout_seconds": 30.0, **config}
        activate = ActivateHarness(
            harness=ClaudeCodeHarness(config=ClaudeCodeConfig(**config)),
            artifacts=self.artifacts,
            clock=SystemClock(),
            supervisor_program=program("supervisor"),
        )
        attempt = Attempt(
            run=RunId(run),
            request=request or asking(),
            sandbox=self.sandbox,
            fresh=True,
            equipment=Equipment(
                runtime_path=path,
                model=GRANT,
                seen_of_model=(lambda: seen_of_model) if seen_of_model else None,
            ),
        )
        return activate, attempt

    async def artifact(self, name: str) -> bytes:
        async with self.artifacts.get(
            Shelf("r1"), name, reader=Reader.OPERATOR
        ) as chunks:
            return b"".join([chunk async for chunk in chunks])


@pytest.fixture
async def runner(provider: LocalHostSandboxProvider) -> AsyncIterator[Runner]:
    label = places.new_label()
    sandbox = await provider.create(label, SandboxSpec())
    yield Runner(sandbox)
    await provider.destroy(label)


def texts(ending: Ending) -> list[str]:
    items = json.loads(ending.reply)["output"]
    return [item["content"][0]["text"] for item in items if item["type"] == "message"]


def observed(ending: Ending) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(ending.observations)
    return found


def gap_codes(ending: Ending) -> list[str]:
    return [gap["code"] for gap in observed(ending)["gaps"]]


async def test_a_run_that_goes_well_is_read_without_a_gap(runner: Runner) -> None:
    ending = await runner(say(INIT, ANSWER, RESULT_OF_TOOL, FINAL, SUCCESS))

    assert ending.outcome is Outcome.COMPLETED
    assert texts(ending) == ["done"]
    assert gap_codes(ending) == []
    assert ending.stillness is Stillness.PROCESSES_SEEN_DEAD
    kinds = [record["kind"] for record in observed(ending)["records"]]
    assert kinds == ["agent_invocation", "tool_call", "sandbox"]
    sandbox = observed(ending)["records"][-1]
    assert (sandbox["provider"], sandbox["exit_code"]) == ("local", 0)
    assert sandbox["sandbox_id"] == runner.sandbox.sandbox_id


@pytest.mark.case("FC-194")
async def test_a_program_that_never_exits_after_its_result_has_succeeded(
    runner: Runner,
) -> None:
    token = processes.token()
    script = say(INIT, FINAL, SUCCESS) + f"\nexec sleep {token}"

    ending = await runner(script, result_grace_seconds=0.5)

    assert ending.outcome is Outcome.COMPLETED
    assert texts(ending) == ["done"]
    assert gap_codes(ending) == []
    assert processes.with_word(token) == []


@pytest.mark.case("FC-194")
async def test_a_program_that_goes_on_after_a_result_is_let_be(runner: Runner) -> None:
    # A background command woke the model: the first result was not the last.
    more = FINAL.replace("done", "more").replace("u3", "u4").replace("msg_2", "msg_3")
    script = "\n".join(
        [say(INIT, FINAL, SUCCESS, INIT), "sleep 1.5", say(more, SUCCESS)]
    )

    ending = await runner(script, result_grace_seconds=0.5)

    assert ending.outcome is Outcome.COMPLETED
    assert texts(ending) == ["done", "more"]


@pytest.mark.case("FC-195")
async def test_a_program_that_falls_silent_is_ended_and_what_it_did_is_kept(
    runner: Runner,
) -> None:
    token = processes.token()
    script = say(INIT, ANSWER, RESULT_OF_TOOL) + f"\nexec sleep {token}"

    ending = await runner(script, stall_seconds=1.0)

    assert ending.outcome is Outcome.TIMEOUT
    assert ending.upstream_failed, "the model's answer was waited for"
    assert [item["type"] for item in json.loads(ending.reply)["output"]] == [
        "function_call",
        "function_call_output",
    ]
    assert "silent" in ending.reason
    assert gap_codes(ending) == ["transcript_not_observed", "usage_not_observed"]
    assert processes.with_word(token) == []


@pytest.mark.case("FC-195")
async def test_a_silent_command_of_the_agents_is_its_own_doing(runner: Runner) -> None:
    ending = await runner(say(INIT, ANSWER) + "\nexec sleep 60", stall_seconds=1.0)

    assert ending.outcome is Outcome.TIMEOUT
    assert not ending.upstream_failed
    (call,) = (r for r in observed(ending)["records"] if r["kind"] == "tool_call")
    assert call["status"] == "timeout"


@pytest.mark.case("FC-195")
async def test_a_program_that_works_but_stops_printing_is_read_from_its_transcript(
    runner: Runner,
) -> None:
    scratch = f"{runner.sandbox.scratch}/run-1"
    paths = Paths(scratch=scratch, workdir=runner.sandbox.workdir)
    final = json.dumps({**json.loads(FINAL), "isSidechain": False})
    script = f"""
{say(INIT, ANSWER)}
mkdir -p "$(dirname '{paths.transcript}')"
for n in 1 2 3 4 5; do echo '{{"type": "attachment"}}' >> '{paths.transcript}'; sleep 0.6; done
cat >> '{paths.transcript}' <<'END'
{ANSWER}
{RESULT_OF_TOOL}
{final}
END
exec sleep 60
"""

    ending = await runner(script, stall_seconds=1.5)

    assert ending.outcome is Outcome.TIMEOUT
    assert texts(ending) == ["done"], "the transcript tells the end"
    assert json.loads(ending.reply)["usage"]["output_tokens"] == 7
    assert gap_codes(ending) == []
    assert (await runner.artifact("transcript.jsonl")).count(b"attachment") == 5


def turn(number: int) -> tuple[str, str]:
    return (
        ANSWER.replace("t1", f"t{number}").replace("msg_1", f"m{number}"),
        RESULT_OF_TOOL.replace("t1", f"t{number}").replace("u2", f"v{number}"),
    )


@pytest.mark.case("FC-100")
@pytest.mark.parametrize(
    ("then", "outcome", "status"),
    [
        ("sleep 60", Outcome.TIMEOUT, "incomplete"),
        ("kill -TERM $$", Outcome.FAILED, "failed"),
    ],
)
async def test_of_a_run_that_was_cut_short_everything_until_then_is_kept(
    runner: Runner, then: str, outcome: Outcome, status: str
) -> None:
    turns = [one for number in range(5) for one in turn(number)]

    ending = await runner(f"{say(INIT, *turns)}\n{then}", timeout_seconds=1.5)

    assert ending.outcome is outcome
    reply = json.loads(ending.reply)
    assert reply["status"] == status
    assert [item["type"] for item in reply["output"]] == [
        *["function_call", "function_call_output"] * 5
    ]
    assert "transcript_not_observed" in gap_codes(ending)
    assert (await runner.artifact("stdout.log")).count(b"\n") == 11


@pytest.mark.case("FC-205")
async def test_a_program_that_reads_its_input_to_the_end_gets_the_prompt(
    runner: Runner,
) -> None:
    script = 'cat > got; cat; test -z "$(cat)" && ' + say(INIT, FINAL, SUCCESS)

    ending = await runner(script, asking("--help, says the prompt"))

    assert ending.outcome is Outcome.COMPLETED
    got = await runner.sandbox.exec(shell("cat got", timeout_seconds=10.0))
    assert got.stdout.kept == b"--help, says the prompt"


@pytest.mark.case("FC-206")
async def test_what_tool_calls_left_running_is_gone_when_the_run_is(
    runner: Runner,
) -> None:
    token = processes.token()
    busy = f"while :; do : {token}; done"
    script = f"""
setsid sh -c '{busy}' {token} >/dev/null 2>&1 &
(setsid nohup sh -c 'sleep {token}' {token} >/dev/null 2>&1 &)
{say(INIT, FINAL, SUCCESS)}
"""

    ending = await runner(script)

    assert ending.outcome is Outcome.COMPLETED
    assert ending.stillness is Stillness.PROCESSES_SEEN_DEAD
    assert processes.with_word(token) == []


@pytest.mark.case("FC-210")
async def test_the_agents_shell_has_the_places_own_interpreter(runner: Runner) -> None:
    look = (
        'echo "$PATH|${VIRTUAL_ENV-}|${PYTHONPATH-}|${PYTHONHOME-}|${LD_LIBRARY_PATH-}"'
    )
    own = await runner.sandbox.exec(shell(look, timeout_seconds=10.0))

    await runner(f"{look} > seen\n{say(INIT, FINAL, SUCCESS)}")

    seen = await runner.sandbox.exec(shell("cat seen", timeout_seconds=10.0))
    assert seen.stdout.kept == own.stdout.kept
    assert own.stdout.kept.strip().endswith(b"||||")


@pytest.mark.case("FC-215")
async def test_a_program_that_asks_at_its_limit_ends_as_a_spent_budget(
    runner: Runner,
) -> None:
    script = f"""
{say(INIT, ANSWER, RESULT_OF_TOOL, FINAL)}
printf 'The limit is reached. Go on? [y/n] ' >&2
read answer || {{ echo 'not a terminal' >&2; exit 1; }}
"""

    ending = await runner(f"cat >/dev/null\n{script}", max_turns=2)

    assert ending.outcome is Outcome.INCOMPLETE
    assert not ending.upstream_failed
    assert texts(ending) == ["done"]
    assert "turn limit" in ending.reason


@pytest.mark.case("FC-200")
async def test_runs_at_once_in_one_sandbox_have_their_own_configuration(
    runner: Runner,
) -> None:
    script = (
        'test "$(stat -c %a "$CLAUDE_CONFIG_DIR")" = 700 || exit 9\n'
        'test ! -e "$CLAUDE_CONFIG_DIR/.claude.json" || exit 8\n'
        'echo "$CLAUDE_CONFIG_DIR" > "$CLAUDE_CONFIG_DIR/.claude.json"\n'
        + say(INIT, FINAL, SUCCESS)
    )
    endings: list[Ending] = []

    async def one(number: int) -> None:
        endings.append(await runner(script, run=f"run-{number}"))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(one, number)

    assert [ending.outcome for ending in endings] == [Outcome.COMPLETED] * 8


@pytest.mark.case("FC-199")
async def test_the_marker_of_a_boundary_is_set_where_there_is_one_alone(
    runner: Runner,
) -> None:
    script = 'echo "${IS_SANDBOX-absent} $*" > seen\n' + say(INIT, FINAL, SUCCESS)

    await runner(script)

    seen = await runner.sandbox.exec(shell("cat seen", timeout_seconds=10.0))
    assert seen.stdout.kept.startswith(b"absent ")
    assert b"--dangerously-skip-permissions" not in seen.stdout.kept


@pytest.mark.parametrize("settings_are_gone", [False, True])
async def test_a_stopped_run_is_cancelled_and_what_it_did_is_kept(
    runner: Runner, tmp_path: Path, settings_are_gone: bool
) -> None:
    token = processes.token()
    script = say(INIT, ANSWER) + f"\nexec sleep {token}"
    settings = tmp_path / "settings.json"
    settings.write_text("{}")
    activate, attempt = await runner.attempt(script, settings=str(settings))
    endings: list[Ending] = []

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(activate, attempt)
            await processes.until_there(token)
            if settings_are_gone:
                settings.unlink()
            endings.append(await activate.stop(attempt))

    (ending,) = endings
    assert ending.outcome is Outcome.CANCELLED
    (call,) = (r for r in observed(ending)["records"] if r["kind"] == "tool_call")
    assert call["status"] == "cancelled"


@pytest.mark.parametrize("failures", [3, 2])
async def test_the_gateways_record_tells_whether_the_model_failed(
    runner: Runner, failures: int
) -> None:
    record = ModelRecord(calls=3, failures=failures)
    script = say(INIT) + "\nexit 1"

    ending = await runner(script, seen_of_model=record)

    assert ending.upstream_failed is (failures == 3)
    assert ending.outcome is Outcome.FAILED


async def test_a_program_that_cannot_start_is_the_sandboxes_failure(
    runner: Runner,
) -> None:
    ending = await runner("echo 'version GLIBC_2.26 not found' >&2; exit 127")

    assert ending.outcome is Outcome.SANDBOX_ERROR
    assert "GLIBC_2.26" in ending.reason
    assert gap_codes(ending) == ["tool_calls_not_observed"]
