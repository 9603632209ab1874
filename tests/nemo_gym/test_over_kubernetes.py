# SPDX-License-Identifier: Apache-2.0
"""Real NeMo Gym over claims on a real API server, found by entry point."""

import os
from pathlib import Path
from typing import Any

import pytest

from ..cluster.cluster import Cluster

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("nemo_gym"),
    pytest.mark.peer("docker"),
    pytest.mark.peer("kubernetes"),
]

pytest.importorskip("nemo_gym", reason="NeMo Gym is not here")

from nemo_gym.sandbox import (  # noqa: E402
    AsyncSandbox,
    SandboxCreateError,
    SandboxSpec,
    SandboxStatus,
    create_provider,
)

Config = dict[str, Any]


def upstream(cluster: Cluster, pool: str, state: Path, **connection: Any) -> Config:
    """Return a configuration in the upstream provider's words."""
    return {
        "agent_sandbox": {
            "connection": {"kubeconfig": cluster.where.kubeconfig, **connection},
            "create": {"warmpool": pool, "namespace": cluster.where.namespace},
            "probe": {"command": "printf ready", "expected_stdout": "ready"},
            "state": str(state),
        }
    }


def ours(cluster: Cluster, pool: str, state: Path) -> Config:
    """Return a configuration in Livery's words."""
    return {
        "livery_agent_sandbox": {
            "connection": {
                "kubeconfig": cluster.where.kubeconfig,
                "namespace": cluster.where.namespace,
                "warmpool": pool,
            },
            "state": str(state),
        }
    }


@pytest.mark.parametrize("make", [upstream, ours], ids=["agent_sandbox", "livery_"])
async def test_a_claimed_sandbox_from_create_to_close(
    make: Any, cluster: Cluster, python_pool: str, tmp_path: Path
) -> None:
    config = make(cluster, python_pool, tmp_path / "state")
    source, target = tmp_path / "here", tmp_path / "back"
    source.write_bytes(os.urandom(300_000))
    spec = SandboxSpec(
        ttl_s=600,
        ready_timeout_s=60,
        env={"A": "from the spec"},
        files={"/data/a.txt": "put before the first command"},
        metadata={"team": "a"},
        resources={"cpu": 1, "gpu": 1},
    )

    async with AsyncSandbox(config, spec) as sandbox:
        await sandbox.start()
        (claim,) = cluster.do("claims")
        ran = await sandbox.exec('echo "$A"; cat /data/a.txt; echo err >&2; exit 3')
        slow = await sandbox.exec("echo begun; sleep 600", timeout_s=1)
        astray = await sandbox.exec("true", cwd="/no/such/folder")
        await sandbox.upload(source, "/data/deep/binary")
        await sandbox.download("/data/deep/binary", target)
        descriptor = await sandbox.serialize()
        other = create_provider(make(cluster, python_pool, tmp_path / "other"))
        borrowed = await AsyncSandbox.connect(descriptor, provider=other)
        lent = await borrowed.exec("cat /data/a.txt")
        await borrowed.disconnect()

        assert (ran.stdout, ran.stderr) == (
            "from the spec\nput before the first command",
            "err\n",
        )
        assert (ran.return_code, ran.error_type) == (3, None)
        assert (slow.return_code, slow.error_type) == (125, "timeout")
        assert slow.stdout == "begun\n"
        assert (astray.return_code, astray.error_type) == (125, None)
        assert target.read_bytes() == source.read_bytes()
        assert lent.stdout == "put before the first command"
        assert await sandbox.status() is SandboxStatus.RUNNING
        assert claim["metadata"]["labels"]["team"] == "a"
        managed_by = "nemo-gym" if make is upstream else "livery"
        assert claim["metadata"]["labels"]["app.kubernetes.io/managed-by"] == managed_by
        assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    assert cluster.do("claims") == []


@pytest.mark.parametrize("mode", ["direct", "gateway"])
async def test_it_goes_through_the_router_as_well(
    mode: str, cluster: Cluster, python_pool: str, tmp_path: Path
) -> None:
    where = cluster.where
    if mode == "gateway" and where.gateway is None:
        pytest.skip("only root can listen at the gateway's port")
    more = {
        "direct": {"api_url": where.router_url},
        "gateway": {
            "gateway_name": where.gateway,
            "gateway_namespace": where.namespace,
        },
    }
    config = upstream(cluster, python_pool, tmp_path / "state", mode=mode, **more[mode])

    async with AsyncSandbox(config, SandboxSpec(ttl_s=600)) as sandbox:
        await sandbox.start()
        result = await sandbox.exec("pwd")

    assert (result.stdout, result.error_type) == ("/app\n", None)
    seen = cluster.do("seen", at="router")
    assert {one["headers"]["X-Sandbox-Namespace"] for one in seen} == {where.namespace}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SandboxSpec(entrypoint=["/bin/x"]), "own entry point"),
        (SandboxSpec(ttl_s=-1), "ttl_s is -1"),
        (SandboxSpec(metadata={"a b": "c"}), "it is no Kubernetes label"),
        (SandboxSpec(provider_options={"warmpol": "x"}), "unknown; known are"),
        (
            SandboxSpec(provider_options={"warmpool": "no-such-pool"}),
            "no-such-pool",
        ),
    ],
    ids=["entrypoint", "ttl", "metadata", "option", "pool"],
)
async def test_what_cannot_be_is_a_create_error_and_leaves_no_claim(
    spec: SandboxSpec, words: str, cluster: Cluster, python_pool: str, tmp_path: Path
) -> None:
    provider = create_provider(upstream(cluster, python_pool, tmp_path / "state"))

    with pytest.raises(SandboxCreateError, match=words):
        await provider.create(spec)
    await provider.aclose()

    assert cluster.do("claims") == []


async def test_without_any_pool_it_says_what_to_set(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = upstream(cluster, "-", tmp_path / "state")
    del config["agent_sandbox"]["create"]["warmpool"]
    provider = create_provider(config)

    with pytest.raises(SandboxCreateError, match="no warm pool serves it"):
        await provider.create(SandboxSpec())
    await provider.aclose()


async def test_a_claim_that_another_deletes_is_told_and_its_close_is_a_success(
    cluster: Cluster, python_pool: str, tmp_path: Path
) -> None:
    config = upstream(cluster, python_pool, tmp_path / "state")
    async with AsyncSandbox(config, SandboxSpec(ttl_s=600)) as sandbox:
        await sandbox.start()
        (claim,) = cluster.do("claims")

        cluster.do("delete_claim", name=claim["metadata"]["name"])
        cluster.until(lambda: cluster.do("claims") == [])
        result = await sandbox.exec("true")

        assert (result.return_code, result.error_type) == (125, "sandbox")
        assert await sandbox.status() is SandboxStatus.STOPPED
