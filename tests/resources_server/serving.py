# SPDX-License-Identifier: Apache-2.0
"""A resources server whose world and provider do what a test says, and its client."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx

from livery.domain.digests import Json
from livery.domain.scores import GraderEnd, GraderEvidence
from livery.domain.tasks import Task
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.resources_server.composition import (
    ResourcesApplication,
    open_resources,
)
from livery.entrypoints.resources_settings import ResourcesServerSettings
from livery.entrypoints.settings import Settings
from livery.entrypoints.settings_reading import SettingsFile
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.required.apps import (
    BuildWhere,
    Reach,
    Reaching,
    SavedFile,
    Tool,
    ToolCall,
    ToolRefused,
    ToolResult,
)
from livery.ports.required.harness import PlacedFile
from livery.ports.required.participants import TaskState
from livery.ports.required.sandbox_provider import SandboxProvider, SandboxSpec
from livery.ports.required.world import GraderPlan, GraderRun, TaskRefused, World

EPISODE: Mapping[str, Json] = {"rollout_id": "r1", "attempt": 0}
RESPONSE: Mapping[str, Json] = {"id": "resp_1", "object": "response", "output": []}


@attrs.define
class ScriptedWorld:
    """Lends a sandbox where there is a provider; is graded as it is told."""

    name: str = "scripted"
    refused: str = ""
    check_fault: Exception | None = None
    reward: float = 1.0
    evidence_fault: Exception | None = None
    wants_sandbox: bool = True

    def check(self, task: Task) -> None:
        if self.refused:
            raise TaskRefused(task_id=task.task_id.task_id, mistakes=self.refused)
        if self.check_fault is not None:
            raise self.check_fault

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        return configured if self.wants_sandbox else None

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        return ()

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        return None

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        if self.evidence_fault is not None:
            raise self.evidence_fault
        return GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=self.reward)


def tool(action: str, *attached: str, **parameters: Json) -> Tool:
    return Tool(
        app="box",
        action=action,
        description=f"Does {action}.",
        parameters={
            "type": "object",
            "properties": parameters,
            "required": [],
        },
        attached=frozenset(attached),
    )


@attrs.define
class BoxApps:
    """Keeps words, and waits where a test says."""

    world: "BoxWorld"
    folder: Path
    revision: int = 0
    closed: bool = False

    async def call(self, call: ToolCall) -> ToolResult:
        self.world.under_way.set()
        if self.world.may_go_on is not None:
            await self.world.may_go_on.wait()
        if self.world.call_fault is not None:
            raise self.world.call_fault
        self.revision += 1
        match call.tool:
            case "box_put":
                self._write([*self.words, str(call.arguments["word"])])
                return ToolResult(told={"kept": len(self.words)})
            case "box_attach":
                sizes = {path: len(content) for path, content in call.files.items()}
                self._write([*self.words, *sizes])
                return ToolResult(told={"sizes": sizes})
            case "box_export":
                name = str(call.arguments.get("name", "export.txt"))
                content = "\n".join(self.words).encode()
                return ToolResult(
                    told={"ok": True}, files=(SavedFile(name=name, content=content),)
                )
            case _:
                raise ToolRefused("There is no such word.")

    async def state(self) -> TaskState:
        complete = self.world.wanted in self.words
        return TaskState(complete=complete, revision=self.revision)

    async def evidence(self) -> GraderEvidence:
        reward = float(self.world.wanted in self.words)
        return GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=reward)

    async def close(self) -> None:
        self.closed = True

    @property
    def words(self) -> list[str]:
        return json.loads((self.folder / "words").read_text())

    def _write(self, words: list[str]) -> None:
        (self.folder / "words").write_text(json.dumps(words))


@attrs.define
class BoxWorld(ScriptedWorld):
    """A box of words; the task is complete when the wanted one is in it."""

    name: str = "box"
    server_name: str = "box"
    wanted: str = "gold"
    builds: BuildWhere = BuildWhere.LOOP
    way: Reach = Reach.MCP
    under_way: anyio.Event = attrs.field(factory=anyio.Event)
    may_go_on: anyio.Event | None = None
    call_fault: Exception | None = None
    built: list[str] = attrs.field(factory=list[str])
    build_fault: Exception | None = None

    def tools(self, task: Task) -> tuple[Tool, ...]:
        return (
            tool("put", word={"type": "string"}),
            tool(
                "attach", "files", files={"type": "array", "items": {"type": "string"}}
            ),
            tool("export", name={"type": "string"}),
        )

    def reaching(self, task: Task) -> Reaching:
        return Reaching(way=self.way, documentation="office-docs")

    def build(self, task: Task, folder: str) -> None:
        self.built.append(task.task_id.task_id)
        if self.build_fault is not None:
            raise self.build_fault
        (Path(folder) / "words").write_text("[]")

    async def open(self, task: Task, folder: str) -> BoxApps:
        return BoxApps(self, Path(folder))


@attrs.frozen
class Server:
    """A served application, and how to talk to it."""

    client: httpx.AsyncClient
    application: ResourcesApplication

    async def post(
        self, path: str, body: object, cookie: str | None = None, token: str = ""
    ) -> httpx.Response:
        """Post a body of JSON, or of bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **_shown(cookie, token)}
        self.client.cookies.clear()
        return await self.client.post(path, content=content, headers=headers)

    async def get(
        self, path: str, cookie: str | None = None, token: str = ""
    ) -> httpx.Response:
        self.client.cookies.clear()
        return await self.client.get(path, headers=_shown(cookie, token))

    async def seeded(self, session: str = "s1", **more: object) -> str:
        """Seed a session, and return its cookie."""
        reply = await self.post("/seed_session", seed(session, **more))
        assert reply.status_code == 200, reply.text
        return cookie_of(reply)

    async def verify(self, cookie: str | None, **more: object) -> httpx.Response:
        body = {"responses_create_params": {}, "response": dict(RESPONSE), **more}
        return await self.post("/verify", body, cookie)

    async def close(self, session: str = "s1") -> httpx.Response:
        body = {"resources_session_id": session, "episode_id": EPISODE}
        return await self.post("/close_session", body)


def _shown(cookie: str | None, token: str) -> dict[str, str]:
    headers = {} if cookie is None else {"cookie": f'session="{cookie}"'}
    return headers | ({"authorization": f"Bearer {token}"} if token else {})


def seed(session: str = "s1", **more: object) -> dict[str, object]:
    """Return the body of a seed."""
    return {
        "resources_session_id": session,
        "episode_id": EPISODE,
        "task_id": {"taskset": "set", "task_id": "1"},
        "task_data": {},
        **more,
    }


def cookie_of(reply: httpx.Response) -> str:
    """Return the value of the cookie that a reply sets."""
    header = reply.headers["set-cookie"]
    name, _, value = header.partition(";")[0].partition("=")
    assert name == "session"
    return value


@asynccontextmanager
async def serving(
    state: Path,
    world: World | None = None,
    provider: SandboxProvider | None = None,
    client_at: str = "127.0.0.1",
    **settings: Any,
) -> AsyncGenerator[Server]:
    """Serve a world over ASGI."""
    file = SettingsFile(
        settings=Settings(resources_server=ResourcesServerSettings(**settings))
    )
    surroundings = Surroundings(name="resources", state=state)
    async with open_resources(
        file,
        open_state_folder(state),
        surroundings,
        world=world or ScriptedWorld(wants_sandbox=provider is not None),
        provider=provider,
    ) as application:
        transport = httpx.ASGITransport(
            app=to_application(application.routes), client=(client_at, 1)
        )
        async with httpx.AsyncClient(
            transport=transport, base_url="http://resources"
        ) as client:
            yield Server(client, application)
