# SPDX-License-Identifier: Apache-2.0
"""A world is somebody's code: where it fails, no agent is to blame and no server."""

import math
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest

from livery.adapters.system_clock import SystemClock
from livery.domain.tasks import Task, TaskId
from livery.entrypoints.secret_references import Secret
from livery.ports.provided.session_apps import AppsUnusable, SessionApps
from livery.ports.provided.take_turns import TakeTurns
from livery.ports.required.apps import BuildWhere, ToolCall, ToolRefused, ToolResult
from livery.ports.required.participants import TaskState

from .serving import BoxApps, BoxWorld, seed, serving
from .test_calls import over_mcp, token_of
from .test_parts import SESSION

pytestmark = pytest.mark.anyio

SECRET = "canary-8f14e45fceea167a"
TASK = Task(task_id=TaskId("t", "1"), responses_create_params={}, task_data={})


@attrs.define
class FailingApps(BoxApps):
    """Tells what a test says, and fails where it says."""

    async def call(self, call: ToolCall) -> ToolResult:
        assert isinstance(self.world, FailingWorld)
        if self.world.told is None:
            return await BoxApps.call(self, call)
        return ToolResult(told=self.world.told)

    async def state(self) -> TaskState:
        assert isinstance(self.world, FailingWorld)
        if self.world.fails_at == "state":
            raise ZeroDivisionError("in the world")
        return await BoxApps.state(self)

    async def close(self) -> None:
        raise ZeroDivisionError("in the world")


@attrs.define
class FailingWorld(BoxWorld):
    """Opens failing apps, or does not open any."""

    wants_sandbox: bool = False
    fails_at: str = ""
    told: Any = None

    async def open(self, task: Task, folder: str) -> BoxApps:
        if self.fails_at == "open":
            raise ZeroDivisionError("in the world")
        return FailingApps(self, Path(folder))


@pytest.mark.parametrize(
    "told",
    [math.nan, {"mean": math.inf}, {1, 2}, b"bytes", "half \ud800"],
    ids=["NaN", "infinity", "a set", "bytes", "half a character"],
)
@pytest.mark.case("FC-248")
async def test_what_json_cannot_write_is_the_worlds_failure_on_every_way(
    told: Any, tmp_path: Path
) -> None:
    world = FailingWorld()
    async with serving(tmp_path, world) as server:
        cookie = await server.seeded()
        world.told = told

        direct = await server.post("/box_put", {"word": "gold"}, cookie)
        result = await over_mcp(
            server,
            token_of(server),
            "tools/call",
            name="box_put",
            arguments={"word": "gold"},
        )
        verdict = (await server.verify(cookie)).json()

    assert (direct.status_code, direct.json()["kind"]) == (502, "workspace_unavailable")
    assert result.json()["result"]["structuredContent"]["status"] == 502
    assert verdict["mask_sample"]
    assert "the world failed" in verdict["failure_reason"]


@pytest.mark.case("FC-248")
async def test_a_state_that_fails_masks_the_sample(tmp_path: Path) -> None:
    world = FailingWorld()
    async with serving(tmp_path, world) as server:
        cookie = await server.seeded()
        world.fails_at = "state"

        reply = await server.post("/box_put", {"word": "gold"}, cookie)
        verdict = (await server.verify(cookie)).json()

    assert (reply.status_code, reply.json()["kind"]) == (502, "workspace_unavailable")
    assert verdict["mask_sample"]


@pytest.mark.parametrize("refuses", [True, False])
async def test_no_way_of_calling_tells_a_secret_of_this_server(
    refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", SECRET)
    words = f"db://user:{SECRET}@host is no word"
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world, cookie_secret=Secret(env="CANARY")) as server:
        cookie = await server.seeded()
        world.call_fault = ToolRefused(words) if refuses else ValueError(words)

        direct = await server.post("/box_put", {"word": "x"}, cookie)
        result = await over_mcp(
            server,
            token_of(server),
            "tools/call",
            name="box_put",
            arguments={"word": "x"},
        )
        verdict = await server.verify(cookie)

    told = direct.text + result.text + verdict.text
    assert SECRET not in told
    assert verdict.json()["mask_sample"] is not refuses
    assert ("is no word" in result.text) is refuses
    assert ("is no word" in verdict.text) is not refuses


async def test_apps_that_fail_to_close_keep_no_session_open(tmp_path: Path) -> None:
    async with serving(tmp_path, FailingWorld()) as server:
        await server.seeded()

        closes = [(await server.close()).status_code for _ in range(2)]

        assert closes == [200, 200]
        assert server.application.served.sessions.open_here == ()


@pytest.mark.parametrize("fails_at", ["open", "state"])
async def test_one_session_that_cannot_be_opened_again_keeps_no_server_from_starting(
    fails_at: str, tmp_path: Path
) -> None:
    world = FailingWorld()
    async with serving(tmp_path, world) as server:
        await server.seeded()
        server.application.served.sessions._open.clear()  # As a kill leaves it.
    world.fails_at = fails_at

    async with serving(tmp_path, world) as server:
        other = (await server.get("/readyz")).status_code
        closed = (await server.close()).status_code

    assert (other, closed) == (200, 200)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ZeroDivisionError("in the world"), "ZeroDivisionError: in the world"),
        (TimeoutError(), "TimeoutError"),
        (OSError("odd"), "odd"),
    ],
)
async def test_a_build_that_fails_says_why(
    fault: Exception, words: str, tmp_path: Path
) -> None:
    world = FailingWorld(build_fault=fault)
    async with serving(tmp_path, world) as server:
        reply = await server.post("/seed_session", seed())
        world.build_fault = None
        again = await server.post("/seed_session", seed())

    assert (reply.status_code, reply.json()["kind"]) == (500, "apps_unusable")
    assert reply.json()["detail"] == f"The apps of session s1 cannot be used: {words}."
    assert again.status_code == 200


async def test_a_build_that_hangs_in_its_thread_holds_up_nobody(tmp_path: Path) -> None:
    hangs = threading.Event()

    @attrs.define
    class HangingWorld(BoxWorld):
        def build(self, task: Task, folder: str) -> None:
            hangs.wait()

    apps = SessionApps(
        world=HangingWorld(builds=BuildWhere.THREAD),
        folder=tmp_path,
        turns=TakeTurns(clock=SystemClock()),
        build_seconds=0.05,
    )
    try:
        for _ in range(2):
            with pytest.raises(AppsUnusable, match=r"not built within 0\.05 seconds"):
                await apps.build(SESSION, TASK)
    finally:
        hangs.set()
