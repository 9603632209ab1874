# SPDX-License-Identifier: Apache-2.0
"""A resources and an agent server that do what they should, unless a test says not."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.claims import Holder
from livery.ports.required.journal import Journal

from .partners import Environment, Partner, environment, listening

LOOK_SECONDS = 0.005
CALL = {"type": "function_call", "name": "do", "call_id": "c", "arguments": "{}"}
DONE = {"type": "function_call_output", "call_id": "c", "output": "done"}
ANSWER = {"type": "message", "role": "assistant", "content": []}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a Responses object."""
    return {
        "id": "r",
        "created_at": 1.0,
        "model": "m",
        "object": "response",
        "output": list(output) or [ANSWER],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }


@attrs.define
class World:
    """What the two servers share and tests look at."""

    resources: Partner = attrs.field(init=False)
    agent: Partner = attrs.field(init=False)
    may_act: anyio.Event | None = None
    """Set by a test before an activation is answered."""
    acting: int = 0
    acting_most: int = 0
    answers: dict[str, Callable[[], Response]] = attrs.field(
        factory=dict[str, Callable[[], Response]]
    )
    """What a path is answered instead, by its end."""
    about: dict[str, Any] | None = None
    steps: int = 0
    """How many steps the agent calls a tool in."""
    complete_after: int | None = None
    activations: int = 0

    def __attrs_post_init__(self) -> None:
        self.resources = Partner(self.answer_resources)
        self.agent = Partner(self.answer_agent)

    async def answer_resources(self, request: Request, body: Any) -> Response:
        if (other := self._instead(request)) is not None:
            return other
        path = request.url.path
        if path.endswith("/task_state"):
            done = self.complete_after
            complete = done is not None and self.activations >= done
            return JSONResponse({"complete": complete, "revision": self.activations})
        if path.endswith("/verify"):
            return JSONResponse({**body, "reward": 1.0, "mask_sample": False})
        told = {"resources_session_id": body["resources_session_id"]}
        reply = JSONResponse({**told, "resources_tools": None, "sandbox_access": None})
        reply.set_cookie("r", body["resources_session_id"])
        return reply

    async def answer_agent(self, request: Request, body: Any) -> Response:
        if (other := self._instead(request)) is not None:
            return other
        path = request.url.path
        if path == "/openapi.json":
            return JSONResponse({"info": {"x-livery": self.about or {}}})
        if path.endswith("/responses"):
            return await self._act(request)
        told = {"agent_session_id": body["agent_session_id"]}
        reply = JSONResponse(
            {**told, "agent_observations": None, "resources_cookies": None}
            if path.endswith("/close")
            else told
        )
        reply.set_cookie("a", body["agent_session_id"])
        return reply

    async def _act(self, request: Request) -> Response:
        self.activations += 1
        self.acting += 1
        self.acting_most = max(self.acting, self.acting_most)
        try:
            if self.may_act is not None:
                async with anyio.create_task_group() as group:
                    group.start_soon(_until_left, request, group.cancel_scope)
                    await self.may_act.wait()
                    group.cancel_scope.cancel()
        finally:
            self.acting -= 1
        if self.activations <= self.steps:
            return JSONResponse(response(CALL, DONE))
        return JSONResponse(response(ANSWER))

    def _instead(self, request: Request) -> Response | None:
        for end, answer in self.answers.items():
            if request.url.path.endswith(end):
                return answer()
        return None

    @property
    def closed(self) -> list[str]:
        """Which sessions were closed, as the bodies name them."""
        found: list[str] = []
        for partner in (self.agent, self.resources):
            found += [
                asked.body.get("agent_session_id") or asked.body["resources_session_id"]
                for asked in partner.asked
                if asked.path.endswith(("/close", "/close_session"))
            ]
        return found

    @property
    def seeded(self) -> list[str]:
        """Which sessions were seeded."""
        found: list[str] = []
        for partner in (self.agent, self.resources):
            found += [
                asked.body.get("agent_session_id") or asked.body["resources_session_id"]
                for asked in partner.asked
                if asked.path.endswith(("/agent_sessions", "/seed_session"))
            ]
        return found


async def _until_left(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


@attrs.frozen
class Fleet:
    """Environments on one journal, as many processes would be."""

    world: World
    servers: tuple[Environment, ...]

    @property
    def one(self) -> Environment:
        return self.servers[0]

    async def run(
        self,
        name: str = "r1",
        *,
        server: int = 0,
        attempt: int = 0,
        data: object = None,
    ) -> Any:
        """Run an episode, and return its reply."""
        return await self.servers[server].post("/run", run_body(name, attempt, data))


def run_body(name: str, attempt: int = 0, data: object = None) -> dict[str, Any]:
    """Return the body of a run."""
    return {
        "episode_id": {"rollout_id": name, "attempt": attempt},
        "task": {
            "task_id": {"taskset": "set", "task_id": "1"},
            "task_input": {
                "responses_create_params": {"input": "do it"},
                "task_data": {"data": data},
            },
        },
    }


@asynccontextmanager
async def fleet(
    world: World | None = None,
    *,
    servers: int = 1,
    journal: Journal | None = None,
    **chosen: Any,
) -> AsyncGenerator[Fleet]:
    """Open so many environments over one world and one journal."""
    world, journal = world or World(), journal or MemoryJournal()
    names = [f"process-{number}" for number in range(servers)]
    async with (
        listening(world.resources),
        listening(world.agent),
        _environments(world, journal, names, chosen) as opened,
    ):
        yield Fleet(world, opened)


@asynccontextmanager
async def _environments(
    world: World, journal: Journal, names: list[str], chosen: dict[str, Any]
) -> AsyncGenerator[tuple[Environment, ...]]:
    opened: tuple[Environment, ...] = ()
    async with contextlib.AsyncExitStack() as stack:
        for name in names:
            holders = MemoryHolders(
                own=Holder(name), others={Holder(other) for other in names}
            )
            it = environment(
                world.resources.url,
                world.agent.url,
                journal=journal,
                holders=holders,
                **chosen,
            )
            opened = (*opened, await stack.enter_async_context(it))
        yield opened


async def eventually(holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait until something holds; fail when it does not in time."""
    for _ in range(int(seconds / LOOK_SECONDS)):
        if holds():
            return
        await anyio.sleep(LOOK_SECONDS)
    raise AssertionError("it did not come to hold")
