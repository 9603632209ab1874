# SPDX-License-Identifier: Apache-2.0
"""The stand-ins are kept honest by a client that is not ours."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster

pytestmark = [
    pytest.mark.peer("docker"),
    pytest.mark.peer("kubernetes"),
    pytest.mark.peer("k8s_agent_sandbox"),
]

SCRIPT = Path(__file__).with_name("official_client.py")
SECONDS_MAX = 120.0


def official(cluster: Cluster, *words: str) -> dict[str, Any]:
    """Run the official client and return what it saw."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", SCRIPT, *words],
        env={**os.environ, "KUBECONFIG": cluster.where.kubeconfig},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.mark.parametrize("mode", ["in_cluster", "gateway", "direct"])
def test_the_official_client_uses_a_sandbox_from_claim_to_delete(
    mode: str, cluster: Cluster, python_pool: str
) -> None:
    where = cluster.where
    if mode == "gateway" and where.gateway is None:
        pytest.skip("only root can listen at the gateway's port")
    more = {
        "in_cluster": "-",
        "gateway": where.gateway or "",
        "direct": where.router_url,
    }

    seen = official(cluster, mode, python_pool, where.namespace, more[mode])

    assert seen["status"] == "SandboxReady"
    assert seen["sandbox"].startswith(f"{python_pool}-")
    assert seen["claims"] == [seen["claim"]]
    assert seen["ran"] == ["out\n", "err\n", 3]
    assert seen["without a shell"] == "one $HOME && echo two\n"
    assert seen["missing"] == [1, True]
    assert seen["slow"] == [1, True]
    assert seen["undecodable"] == 500
    assert seen["binary"] == [True, True]
    assert seen["exists"] == [True, False]
    assert seen["list"][0][0::2] == ["er", "directory"]
    assert (seen["none"], seen["outside"]) == (404, 403)
    assert seen["left"] == []
    cluster.until(
        lambda: seen["sandbox"] not in [one["name"] for one in cluster.do("sandboxes")]
    )


def test_the_official_client_reads_the_controllers_refusals(
    cluster: Cluster, python_pool: str
) -> None:
    seen = official(cluster, "refusals", cluster.where.namespace)

    assert seen["[]"].startswith("SandboxWarmPoolNotFoundError")
    assert "EnvVarsInjectionRejected" in seen["['env']"]
    assert "InvalidMetadata" in seen["['pod_labels']"]
    assert seen["left"] == "[]"
