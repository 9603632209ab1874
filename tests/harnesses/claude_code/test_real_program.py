# SPDX-License-Identifier: Apache-2.0
"""The real program, of every version that is named, against a scripted model.

It runs in a local sandbox with an address of loopback for its model server.
"""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.claude_code import (
    ClaudeCodeConfig,
    ClaudeCodeHarness,
    Wire,
)
from livery.adapters.local_host import LocalHostSandboxProvider
from livery.adapters.system_clock.clock import SystemClock
from livery.adapters.worker_scripts import program
from livery.domain.activations import Ending, Outcome, RunId
from livery.domain.resources_sessions import ResourcesSessionId
from livery.ports.provided.activate_harness import ActivateHarness, Attempt, Equipment
from livery.ports.required.harness import ToolAccess, ToolTransport
from livery.ports.required.model_access import ModelGrant
from livery.ports.required.sandbox import Sandbox, shell
from livery.ports.required.sandbox_provider import SandboxSpec

from ... import peers
from ...local_host import places
from ...local_host.conftest import provider, root
from ...resources_server.serving import BoxWorld
from ...resources_server.serving import serving as resources_serving
from .captures import asking
from .scripted_model import ScriptedModel, scripted_model

__all__ = ["provider", "root"]

pytestmark = [pytest.mark.anyio, pytest.mark.peer("claude_code")]

BOUND_SECONDS = 120.0
SLOW_SECONDS = 6.0
"""Longer than the program waits for a tool server by itself."""
PLACEHOLDER = "placeholder-of-session"
REPAIR = (
    ("Write", {"file_path": "answer.txt", "content": "41\n"}),
    ("Bash", {"command": "cat answer.txt; exit 3"}),
    ("Read", {"file_path": "answer.txt"}),
    ("Edit", {"file_path": "answer.txt", "old_string": "41", "new_string": "42"}),
    "It is 42.",
)


@pytest.fixture(
    params=peers.claude_code_programs() or (Path("claude"),),
    ids=lambda path: path.parent.parent.name or "none",
)
def real_program(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
async def sandbox(provider: LocalHostSandboxProvider) -> AsyncIterator[Sandbox]:
    label = places.new_label()
    yield await provider.create(label, SandboxSpec())
    await provider.destroy(label)


async def ran(
    sandbox: Sandbox,
    path: Path,
    model: ScriptedModel,
    prompt: str,
    accesses: tuple[ToolAccess, ...] = (),
    **config: Any,
) -> Ending:
    """Run it as behind a boundary: as root it does nothing else unasked."""
    settings = {"bare": False, "model_retries": 0, "timeout_seconds": 60.0, **config}
    activate = ActivateHarness(
        harness=ClaudeCodeHarness(config=ClaudeCodeConfig(**settings)),
        artifacts=MemoryArtifactStore(),
        clock=SystemClock(),
        supervisor_program=program("supervisor"),
    )
    attempt = Attempt(
        run=RunId("run-1"),
        request=asking(prompt, accesses=accesses, model="model-1"),
        sandbox=sandbox,
        fresh=True,
        equipment=Equipment(
            is_boundary=True,
            runtime_path=str(path),
            model=ModelGrant(base_url=model.url, placeholder=PLACEHOLDER),
        ),
    )
    with anyio.fail_after(BOUND_SECONDS):
        return await activate(attempt)


@asynccontextmanager
async def slow_way(url: str) -> AsyncGenerator[str]:
    """Lead to a server, after a while at first."""
    place, waits = urlsplit(url), [SLOW_SECONDS]

    async def carried(near: SocketStream) -> None:
        await anyio.sleep(waits.pop() if waits else 0.0)
        far = await anyio.connect_tcp("127.0.0.1", place.port or 0)
        async with near, far, anyio.create_task_group() as group:
            group.start_soon(pumped, near, far)
            group.start_soon(pumped, far, near)

    async def pumped(source: SocketStream, target: SocketStream) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for piece in source:
                await target.send(piece)
            await target.send_eof()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        port = listener.extra(SocketAttribute.local_port)
        group.start_soon(listener.serve, carried)
        yield f"http://127.0.0.1:{port}"
        group.cancel_scope.cancel()


async def test_tools_of_a_server_that_is_slow_to_answer_are_waited_for(
    sandbox: Sandbox, real_program: Path, tmp_path: Path
) -> None:
    turn = ("mcp__box__box_put", {"word": "gold"})
    async with (
        resources_serving(tmp_path, BoxWorld(wants_sandbox=False)) as server,
        slow_way(server.application.sandbox_url) as url,
        scripted_model(turn, "It is put.") as model,
    ):
        await server.seeded()
        access = ToolAccess(
            transport=ToolTransport.MCP,
            name="box",
            url=f"{url}/mcp",
            headers=server.application.tokens.headers(ResourcesSessionId("s1")),
        )
        ending = await ran(sandbox, real_program, model, "Put it.", accesses=(access,))

    assert ending.outcome is Outcome.COMPLETED, ending.reason
    assert tools_of(ending) == [("mcp__box__box_put", "completed")]
    assert json.loads(ending.observations)["gaps"] == []


def tools_of(ending: Ending) -> list[tuple[str, str]]:
    return [
        (record["tool_name"], record["status"])
        for record in json.loads(ending.observations)["records"]
        if record["kind"] == "tool_call"
    ]


@pytest.mark.parametrize("wire", Wire)
async def test_scripted_tool_calls_are_done_and_seen(
    sandbox: Sandbox, real_program: Path, wire: Wire
) -> None:
    workdir = sandbox.workdir
    turns = [
        turn
        if isinstance(turn, str)
        else (
            turn[0],
            {
                key: f"{workdir}/{value}" if key == "file_path" else value
                for key, value in turn[1].items()
            },
        )
        for turn in REPAIR
    ]

    async with scripted_model(*turns) as model:
        ending = await ran(sandbox, real_program, model, "/repair it", wire=wire)

    assert ending.outcome is Outcome.COMPLETED, ending.reason
    assert tools_of(ending) == [
        ("Write", "completed"),
        ("Bash", "failed"),
        ("Read", "completed"),
        ("Edit", "completed"),
    ]
    assert json.loads(ending.observations)["gaps"] == []
    answer = await sandbox.exec(shell("cat answer.txt", timeout_seconds=10.0))
    assert answer.stdout.kept == b"42\n"
    assert "/repair it" in json.dumps(model.asked[0]["messages"])
    assert all(PLACEHOLDER in head for head in model.heads)
    roles = {message["role"] for body in model.asked for message in body["messages"]}
    assert wire is Wire.NATIVE or roles == {"user", "assistant"}


async def test_a_model_that_fails_is_told(sandbox: Sandbox, real_program: Path) -> None:
    async with scripted_model(500, 500, 500) as model:
        ending = await ran(sandbox, real_program, model, "hello")

    assert ending.outcome is Outcome.FAILED
    assert ending.upstream_failed
    assert json.loads(ending.reply)["output"] == []


async def test_the_agents_commands_see_the_places_own_path(
    sandbox: Sandbox, real_program: Path
) -> None:
    look = 'echo "$PATH|${VIRTUAL_ENV-}|${PYTHONPATH-}|${TMPDIR-}" > seen'

    async with scripted_model(("Bash", {"command": look}), "done") as model:
        ending = await ran(sandbox, real_program, model, "look")

    assert ending.outcome is Outcome.COMPLETED, ending.reason
    seen = await sandbox.exec(shell("cat seen; rm seen", timeout_seconds=10.0))
    await sandbox.exec(shell(look, timeout_seconds=10.0))
    own = await sandbox.exec(shell("cat seen", timeout_seconds=10.0))
    assert seen.stdout.kept == own.stdout.kept


async def test_it_asks_nobody_but_its_model(
    sandbox: Sandbox, real_program: Path
) -> None:
    # It follows a proxy for everything but its model, so what would go elsewhere
    # is seen here.
    fetch = ("WebFetch", {"url": "https://example.org/", "prompt": "what?"})

    async with (
        scripted_model() as elsewhere,
        scripted_model(fetch, "so be it") as model,
    ):
        proxies = {"HTTP_PROXY": elsewhere.url, "HTTPS_PROXY": elsewhere.url}
        ending = await ran(sandbox, real_program, model, "look", env=proxies)

    assert ending.outcome is Outcome.COMPLETED, ending.reason
    assert tools_of(ending) == [("WebFetch", "failed")]
    assert elsewhere.connections == 0
    assert model.connections > 0


async def test_long_prompts_arrive_whole(sandbox: Sandbox, real_program: Path) -> None:
    prompt, system = f"{'p' * 300_000}-end-p", f"{'s' * 200_000}-end-s"

    async with scripted_model() as model:
        ending = await ran(
            sandbox, real_program, model, prompt, system_prompt=system, bare=True
        )

    assert ending.outcome is Outcome.COMPLETED, ending.reason
    assert prompt in json.dumps(model.asked[0]["messages"])
    assert system in json.dumps(model.asked[0]["system"])
