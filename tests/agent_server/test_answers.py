# SPDX-License-Identifier: Apache-2.0
"""What an activation is answered: whole, as it came, and only once all is known."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from starlette.types import Message

from livery.domain.activations import Outcome
from livery.domain.claims import ClaimId
from livery.domain.digests import Json
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.logs import Layout, Level, logging_to
from livery.ports.provided.secret_values import SecretValues
from livery.ports.required.sandbox import SandboxFailed, SandboxLost

from ..use_cases.outside import OWNER
from .processes import Ground
from .scripted import COOKIE, HELLO, ScriptedHarness, lent, seed, serving

pytestmark = pytest.mark.anyio

ACTIVATIONS = "/v1/responses"
WAIT_SECONDS = 10.0
NEXT_YEARS: Mapping[str, Json] = {
    "type": "thought_graph",
    "id": "tg_1",
    "nodes": [{"weight": 0.5, "of": None}],
}
WHOLE: Mapping[str, Json] = {
    "type": "message",
    "prompt_token_ids": [1, 2],
    "generation_token_ids": [3, 4],
    "generation_log_probs": [-0.5, -1.0],
}


def without(*names: str, **more: Json) -> dict[str, Json]:
    return {**{k: v for k, v in WHOLE.items() if k not in names}, **more}


@pytest.mark.case("FC-182")
async def test_an_item_of_a_kind_that_nobody_knows_is_passed_on() -> None:
    harness = ScriptedHarness(items=(NEXT_YEARS,))
    async with serving(harness=harness) as it:
        reply = await it.post(ACTIVATIONS, HELLO, await it.seeded())

    assert reply.status_code == 200
    assert reply.json()["output"][1] == NEXT_YEARS


@pytest.mark.case("FC-183")
@pytest.mark.parametrize(
    "item",
    [
        without("generation_log_probs"),
        without("generation_token_ids"),
        without("prompt_token_ids"),
        without(generation_log_probs=None),
        without(generation_log_probs=[-0.5]),
        without(generation_token_ids="34"),
        without(prompt_token_ids=0),
    ],
)
async def test_half_of_the_token_data_is_taken_off_and_that_is_said(
    item: dict[str, Json],
) -> None:
    async with serving(harness=ScriptedHarness(items=(WHOLE, item))) as it:
        reply = await it.post(ACTIVATIONS, HELLO, await it.seeded())
        closed = await it.close()

    _, whole, rest = reply.json()["output"]
    (gap,) = closed.json()["agent_observations"]["gaps"]
    assert whole == WHOLE
    assert rest == {"type": "message"}
    assert gap["code"] == "token_data_incomplete"
    assert gap["detail"].startswith("output[2] ")


@pytest.mark.case("FC-224")
async def test_nothing_of_an_answer_goes_out_before_the_work_is_over() -> None:
    sent: list[Message] = []
    harness = ScriptedHarness(may_end=anyio.Event())
    harness.fault = SandboxFailed("fake", "s", "exec", "no room for a process")
    async with serving(harness=harness) as it:
        cookie = await it.seeded()
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": ACTIVATIONS,
            "query_string": b"",
            "headers": [(b"cookie", f"{COOKIE}={cookie}".encode())],
        }
        body: list[Message] = [
            {"type": "http.request", "body": json.dumps(HELLO).encode()}
        ]

        async def receive() -> Message:
            return body.pop() if body else await anyio.sleep_forever()  # type: ignore[return-value]

        async def send(message: Message) -> None:
            sent.append(message)

        app = to_application(it.routes.routes())
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(app, scope, receive, send)
                await harness.running.wait()
                before = len(sent)
                assert harness.may_end is not None
                harness.may_end.set()

    assert before == 0
    assert sent[0]["status"] == 502
    assert json.loads(sent[1]["body"])["kind"] == "sandbox_failed"


@pytest.mark.case("FC-224")
def test_a_command_that_cannot_start_is_no_success(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    settings = tmp_path / "livery.toml"
    text = settings.read_text()
    settings.write_text(text.replace('command = ["sh"', 'command = ["/no/such"'))
    with ground.server() as server:
        cookie = server.seeded()
        reply = server.post(ACTIVATIONS, {"input": "x"}, cookie)
        again = server.post(ACTIVATIONS, {"input": "x"}, cookie)
        changed = server.post(ACTIVATIONS, {"input": "y"}, cookie)
        server.close()

    assert (reply.status_code, changed.status_code) == (422, 409)
    assert reply.json()["kind"] == "command_missing"
    assert "program /no/such: No such file" in reply.json()["detail"]
    assert again.content == reply.content


@pytest.mark.case("FC-113")
async def test_after_a_failure_too_the_first_answer_stands_until_the_close() -> None:
    async with serving(harness=ScriptedHarness(outcome=Outcome.FAILED)) as it:
        cookie = await it.seeded()
        first = await it.post(ACTIVATIONS, HELLO, cookie)
        it.harness.outcome = Outcome.COMPLETED
        again = await it.post(ACTIVATIONS, HELLO, cookie)
        changed = await it.post(ACTIVATIONS, {**HELLO, "temperature": 0}, cookie)
        await it.close()
        late = await it.post(ACTIVATIONS, HELLO, cookie)

    assert first.json()["status"] == "failed"
    assert again.content == first.content
    # As NeMo Gym answers: what was activated is told by the environment's own record.
    assert [(r.status_code, r.json()["kind"]) for r in (changed, late)] == [
        (409, "activation_conflict"),
        (409, "session_closed"),
    ]
    assert len(it.harness.started) == 1


@pytest.mark.case("FC-248")
@pytest.mark.parametrize(
    ("scripted", "kind"),
    [
        (
            {"outcome": Outcome.FAILED, "upstream_failed": True},
            "agent_request_failed",
        ),
        ({"outcome": Outcome.SANDBOX_ERROR}, "session_lost"),
        ({"outcome": Outcome.OOM}, "provider_oom_killed"),
        ({"outcome": Outcome.CANCELLED}, "cancelled"),
    ],
)
async def test_who_does_not_read_the_outcome_gets_no_work_that_measures_nothing(
    scripted: dict[str, Any], kind: str
) -> None:
    async with serving(harness=ScriptedHarness(**scripted)) as it:
        other = attrs.evolve(it, reads_outcome=False)
        cookie = await it.seeded()
        refusals = [await other.post(ACTIVATIONS, HELLO, cookie) for _ in range(2)]
        read = await it.post(ACTIVATIONS, HELLO, cookie)
        closed = await other.close()

    assert [(r.status_code, r.json()["kind"]) for r in refusals] == [(502, kind)] * 2
    assert all("set-cookie" in r.headers for r in refusals)
    assert (read.status_code, read.json()["object"]) == (200, "response")
    assert read.headers["x-livery-outcome"] == scripted["outcome"]
    assert closed.json()["agent_observations"]["records"]
    assert len(it.harness.started) == 1


@pytest.mark.parametrize(
    "outcome",
    [Outcome.COMPLETED, Outcome.INCOMPLETE, Outcome.FAILED, Outcome.TIMEOUT],
)
async def test_an_agent_s_own_end_is_an_answer_for_everybody(outcome: Outcome) -> None:
    async with serving(harness=ScriptedHarness(outcome=outcome)) as it:
        other = attrs.evolve(it, reads_outcome=False)
        cookie = await it.seeded()
        reply = await other.post(ACTIVATIONS, HELLO, cookie)

    assert (reply.status_code, reply.json()["object"]) == (200, "response")


@pytest.mark.case("FC-248", "FC-054")
async def test_a_sandbox_that_is_lost_is_told_as_the_sandbox_s_failure() -> None:
    lost = SandboxLost("fake", "box", "its main process was killed")
    async with serving(harness=ScriptedHarness(fault=lost)) as it:
        it.provider.live[ClaimId("box")] = OWNER
        cookie = await it.seeded(sandbox_access=lent("box"))
        reply = await it.post(ACTIVATIONS, HELLO, cookie)
        gone = await it.post(
            "/v1/agent_sessions", seed("s2", sandbox_access=lent("no box"))
        )

    told = reply.json()
    assert (reply.status_code, told["status"]) == (200, "failed")
    assert "its main process was killed" in told["error"]["message"]
    assert "reward" not in told
    assert (gone.status_code, gone.json()["kind"]) == (502, "sandbox_lost")


async def test_a_line_about_a_failed_answer_names_whose_request_it_was() -> None:
    lines = io.StringIO()
    told = logging_to(
        lines, level=Level.ERROR, layout=Layout.TEXT, secrets=SecretValues()
    )
    async with serving(harness=ScriptedHarness()) as it:
        with told:
            await it.post("/v1/agent_sessions", seed("s2", sandbox_access=lent("gone")))

    (line,) = lines.getvalue().splitlines()
    assert "Answered with 502: " in line
    assert " session=s2" in line
    assert " episode=" in line
