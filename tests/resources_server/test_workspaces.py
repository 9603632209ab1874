# SPDX-License-Identifier: Apache-2.0
"""Workspaces over HTTP: what still runs is ended before the work is copied and judged."""

from pathlib import Path

import anyio
import pytest

from livery.adapters.local_host import LocalHostConfig, open_local_host
from livery.adapters.worlds.workspace import WorkspaceWorld
from livery.domain.claims import ClaimId
from livery.ports.required.sandbox import SandboxAccess, shell

from ..use_cases.stable import task
from .folders import FolderProvider
from .serving import RESPONSE, ScriptedWorld, seed, serving

pytestmark = pytest.mark.anyio

SECONDS = 60.0
BORROWER = ClaimId("agent")
BUSY = (
    "printf 42 > answer.txt;"
    " setsid sh -c 'while :; do date >> ticks; sleep 0.02; done'"
    " > /dev/null 2>&1 < /dev/null &"
)


async def test_a_process_that_an_agent_left_is_dead_before_the_work_is_judged(
    tmp_path: Path,
) -> None:
    async with (
        open_local_host(LocalHostConfig(root=tmp_path / "boxes")) as provider,
        serving(tmp_path / "state", WorkspaceWorld(), provider) as server,
    ):
        data = task().task_data
        reply = await server.post("/seed_session", seed(task_data=data))
        told = reply.json()["sandbox_access"]
        access = SandboxAccess(
            provider=told["connection"]["provider_config_ref"],
            descriptor=told["connection"]["descriptor"],
            workdir=told["workdir"],
        )
        # An agent of another make: it borrows, leaves a process, and lets go.
        borrowed = await provider.connect(access, borrower=BORROWER)
        await borrowed.exec(shell(BUSY, timeout_seconds=SECONDS))
        guide = (Path(told["workdir"]) / "GUIDE.md").read_text()
        await borrowed.disconnect()

        cookie = reply.headers["set-cookie"].partition("=")[2].partition(";")[0]
        verdict = (await server.verify(cookie, **data)).json()
        again = (await server.verify(cookie, **data)).json()
        other = await server.verify(cookie, response={**RESPONSE, "id": "resp_2"})
        await server.close()

        assert list((tmp_path / "boxes").iterdir()) == []

    assert (verdict["reward"], verdict["mask_sample"]) == (1.0, False), verdict
    assert again == verdict
    assert (other.status_code, other.json()["kind"]) == (409, "resources_conflict")
    assert "This folder is yours" in guide


@pytest.mark.parametrize(
    ("headers", "masked", "kind"),
    [
        ({"x-livery-outcome": "sandbox_error"}, True, "session_lost"),
        ({"x-livery-outcome": "oom"}, True, "provider_oom_killed"),
        ({"x-livery-upstream-failed": "true"}, True, "agent_request_failed"),
        ({"x-livery-outcome": "odd", "x-livery-stillness": "odd"}, False, None),
        ({"x-livery-stillness": "every process was seen dead"}, False, None),
    ],
)
async def test_an_environment_of_ours_tells_more_than_a_response_can(
    headers: dict[str, str], masked: bool, kind: str | None, tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        cookie = await server.seeded()
        reply = await server.client.post(
            "/verify",
            json={"responses_create_params": {}, "response": dict(RESPONSE)},
            headers={"cookie": f'session="{cookie}"', **headers},
        )

    verdict = reply.json()
    assert (verdict["mask_sample"], verdict["failure_kind"]) == (masked, kind)


@pytest.mark.parametrize("status", ["failed", "cancelled", "incomplete", "completed"])
async def test_a_responses_status_says_how_the_turn_ended(
    status: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        cookie = await server.seeded()
        response = {**RESPONSE, "status": status}
        verdict = (await server.verify(cookie, response=response)).json()

    assert verdict["mask_sample"] is (status == "cancelled")
    assert verdict["livery"]["outcome"] == status


async def test_a_seed_that_comes_to_nothing_leaves_its_id_free(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    provider.create_fault = RuntimeError("no engine")
    async with serving(tmp_path / "state", ScriptedWorld(), provider) as server:
        failed = await server.post("/seed_session", seed())
        provider.create_fault = None
        other = await server.post("/seed_session", seed(task_data={"other": 1}))

        assert (failed.status_code, other.status_code) == (500, 200)
        assert len(provider.live) == 1
        assert (await server.close()).status_code == 200
        assert provider.live == {}


@pytest.mark.case("FC-109", "FC-110")
async def test_twenty_equal_seeds_are_one_and_another_is_a_conflict(
    tmp_path: Path,
) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    statuses: list[int] = []
    async with serving(tmp_path / "state", ScriptedWorld(), provider) as server:

        async def ask() -> None:
            statuses.append((await server.post("/seed_session", seed())).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask)
        other = await server.post("/seed_session", seed(task_data={"other": 1}))

    assert statuses == [200] * 20
    assert len(provider.made) == 1
    assert other.status_code == 409
    assert other.json()["state"] == "ready"
