# SPDX-License-Identifier: Apache-2.0
"""The provider over the real API server while things go wrong between the two."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from livery.adapters.agent_sandbox import ConnectionConfig, Mode
from livery.adapters.agent_sandbox.sandbox import AgentSandbox
from livery.ports.required.sandbox import (
    Ended,
    Exited,
    ExitUnknown,
    Lost,
    shell,
)
from livery.ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimLabel,
    CreateFailed,
    SandboxSpec,
    SpecRefused,
)

from ..cluster.cluster import Cluster
from .main_job import MainJob
from .real import Real, name_of, real

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("docker", "kubernetes"),
]

SECONDS = 120.0
TASKS = 4
PATIENT = SandboxSpec(create_timeout_seconds=SECONDS, ready_timeout_seconds=SECONDS)


async def said(sandbox: AgentSandbox, script: str) -> str:
    ended = await sandbox.exec(shell(script, timeout_seconds=SECONDS))
    assert ended.how == Exited(0), ended
    return ended.stdout.kept.decode()


async def do(at: Real, command: str, **words: object) -> object:
    return await to_thread.run_sync(lambda: at.cluster.do(command, **words))


async def until(at: Real, seen: Callable[[], bool]) -> None:
    await to_thread.run_sync(at.cluster.until, seen)


async def bound_under(at: Real, trouble: Callable[[], object]) -> None:
    """Make trouble while a claim waits, and see it bound in the end."""
    label, heard = at.label(), list[str]()

    async def create() -> None:
        sandbox = await at.provider.create(label, PATIENT)
        heard.append(await said(sandbox, "echo on"))

    await do(at, "behave", holds=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        await until(at, lambda: _is_pending(at, label))
        await to_thread.run_sync(trouble)
        await do(at, "behave")
    assert heard == ["on\n"]
    await at.provider.destroy(label)


def _is_pending(at: Real, label: ClaimLabel) -> bool:
    named = {one["metadata"]["name"]: one for one in at.cluster.do("claims")}
    status = named.get(name_of(label), {}).get("status", {})
    return any(
        one["reason"] == "AdoptionPending" for one in status.get("conditions", [])
    )


async def test_an_api_server_that_is_killed_is_waited_for(
    cluster: Cluster, python_pool: str
) -> None:
    async with real(cluster, python_pool) as at:

        def killed() -> None:
            cluster.do("kill_api_server")
            cluster.do("start_api_server")

        await bound_under(at, killed)


@pytest.mark.parametrize("way", ["cut", "stall"])
async def test_a_watch_that_is_cut_or_held_is_another_one(
    way: str, cluster: Cluster, python_pool: str
) -> None:
    async with real(cluster, python_pool, proxied=True) as at:

        def trouble() -> None:
            cluster.do(way, at="api", target="watch")
            if way == "stall":
                # Dead connections end in the end; that is not waited for here.
                cluster.do("behave")
                cluster.do("cut", at="api", target="watch")

        await bound_under(at, trouble)


async def test_expired_versions_and_tokens_heal(
    cluster: Cluster, python_pool: str
) -> None:
    told = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    other = {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "no"}
    async with real(cluster, python_pool, proxied=True) as at:

        def trouble() -> None:
            for status, body in ((410, told), (401, other)):
                cluster.do(
                    "rule",
                    at="api",
                    does="answer",
                    target="watch",
                    status=status,
                    body=body,
                    times=1,
                )
            cluster.do("cut", at="api", target="watch")

        await bound_under(at, trouble)


async def test_a_lost_reply_and_a_busy_server_give_one_claim(
    cluster: Cluster, python_pool: str
) -> None:
    busy = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "x"}
    async with real(cluster, python_pool, proxied=True) as at:
        label = at.label()
        cluster.do(
            "rule",
            at="api",
            does="answer",
            method="POST",
            status=429,
            body=busy,
            headers={"Retry-After": "1"},
            times=1,
        )
        cluster.do("rule", at="api", does="cut_reply", method="POST", times=1)
        sandbox = await at.provider.create(label, PATIENT)

        assert await said(sandbox, "echo on") == "on\n"
        assert len(cluster.do("claims")) == 1
        await at.provider.destroy(label)
        assert await at.left(label) == ()


async def test_refusals_of_a_cluster_are_told_by_kind(
    cluster: Cluster, python_pool: str
) -> None:
    words = {
        403: 'sandboxclaims "x" is forbidden: exceeded quota: few, requested: count=1',
        400: 'admission webhook "policy.test" denied the request: no such pool here',
    }
    kinds = {403: CapacityExhausted, 400: SpecRefused}
    async with real(cluster, python_pool, proxied=True) as at:
        for status, message in words.items():
            body = {"kind": "Status", "code": status, "message": message}
            cluster.do(
                "rule",
                at="api",
                does="answer",
                method="POST",
                status=status,
                body=body,
                times=1,
            )
            with pytest.raises(kinds[status], match=message.split(":")[1].strip()):
                await at.provider.create(at.label(), PATIENT)

        cluster.do("behave", fails_with="TemplateNotFound: no such template")
        with pytest.raises(CreateFailed, match="TemplateNotFound: no such template"):
            await at.provider.create(at.label(), PATIENT)
        assert cluster.do("claims") == []


async def test_a_server_restarts_under_a_command_and_a_pod_under_another(
    cluster: Cluster, python_pool: str
) -> None:
    async with real(cluster, python_pool) as at:
        label = at.label()
        sandbox = await at.provider.create(label, PATIENT)
        name = cluster.sandbox_of(name_of(label))["name"]
        heard: list[Ended] = []

        async def sleep(script: str) -> None:
            heard.append(await sandbox.exec(shell(script, timeout_seconds=SECONDS)))

        async with anyio.create_task_group() as tasks:
            # The server alone: the worker goes on, and so does the command.
            tasks.start_soon(sleep, ": > on; sleep 4; echo done")
            await said(sandbox, "until test -e on; do sleep 0.1; done")
            await do(at, "restart_server", sandbox=name)
        assert (heard[0].how, heard[0].stdout.kept) == (Exited(0), b"done\n")
        await do(at, "kill_pod", sandbox=name)
        ended = await sandbox.exec(shell("true", timeout_seconds=5.0))
        assert isinstance(ended.how, Lost | ExitUnknown)
        assert isinstance(
            (await sandbox.exec(shell("true", timeout_seconds=5.0))).how, Lost
        )
        await at.provider.destroy(label)


async def test_a_sandbox_that_is_replaced_is_lost(
    cluster: Cluster, python_pool: str
) -> None:
    async with real(cluster, python_pool) as at:
        label = at.label()
        sandbox = await at.provider.create(label, PATIENT)
        name = cluster.sandbox_of(name_of(label))["name"]
        await do(at, "replace_sandbox", sandbox=name)

        ended = await sandbox.exec(shell("true", timeout_seconds=5.0))
        again = await sandbox.exec(shell("true", timeout_seconds=5.0))
        assert isinstance(ended.how, Lost | ExitUnknown)
        assert isinstance(again.how, Lost)
        assert "another" in again.how.reason
        await at.provider.destroy(label)


@pytest.mark.parametrize("mode", [Mode.DIRECT, Mode.GATEWAY])
async def test_a_router_or_gateway_carries_work_also_over_its_own_troubles(
    mode: Mode, cluster: Cluster, python_pool: str
) -> None:
    where = cluster.where
    if mode is Mode.GATEWAY and where.gateway is None:
        pytest.fail("the gateway's port needs root")
    connection = ConnectionConfig(
        mode=mode,
        api_url=where.router_tls_url if mode is Mode.DIRECT else None,
        ca_file=where.ca if mode is Mode.DIRECT else None,
        gateway_name=where.gateway,
        gateway_namespace=where.namespace,
        token="right",
    )
    cluster.do("router_token", token="right")
    async with real(cluster, python_pool, connection=connection) as at:
        label = at.label()
        sandbox = await at.provider.create(label, PATIENT)
        assert await said(sandbox, "echo on") == "on\n"
        cluster.do("rule", at="router", does="answer", status=502, times=6)
        assert await said(sandbox, "echo x >> once; cat once") == "x\n"
        await at.provider.destroy(label)


@pytest.mark.case("FC-169")
async def test_a_read_only_root_works_below_the_servers_folder(
    cluster: Cluster, test_image: str
) -> None:
    pool = cluster.make_pool(
        "read-only",
        image=test_image,
        replicas=1,
        read_only_root=True,
        env={"SANDBOX_BASE_DIR": "/data", "SANDBOX_EXEC_TIMEOUT_SECONDS": "2"},
    )
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    async with real(cluster, pool) as at:
        label = at.label()
        with pytest.raises(SpecRefused, match="Read-only"):
            await at.provider.create(label, PATIENT)
        label = at.label()
        sandbox = await at.provider.create(
            label, SandboxSpec(workdir="/data/work", ready_timeout_seconds=SECONDS)
        )
        assert await said(sandbox, "pwd; sleep 5; touch x && ls") == "/data/work\nx\n"
        assert await said(sandbox, f"test -e {token} || echo none") == "none\n"
        await at.provider.destroy(label)
    cluster.do("drop_pool", name=pool)


@pytest.mark.peer("humaneval")
def test_the_main_job_is_killed_and_resumed_and_leaves_no_claim(
    cluster: Cluster, python_pool: str, tmp_path: Path
) -> None:
    job = MainJob(cluster, python_pool, tmp_path)

    job.kill(job.begin(*job.first(limit=TASKS, concurrency=2)), seconds=4.0)
    resumed = job.begin("--resume", str(job.out))

    assert resumed.wait(SECONDS * 3) == 0
    assert job.passed() == (TASKS, TASKS)
    assert job.claims() == []
