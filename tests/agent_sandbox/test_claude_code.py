# SPDX-License-Identifier: Apache-2.0
"""The real Claude Code in a claimed sandbox on a network that leads nowhere.

Its model listens on this host's loopback, and is reached through the relay, over the
provider's own calls: the pod is on a network that the engine calls internal.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import pytest

from .. import peers
from ..claude_code import mending
from ..cluster.cluster import Cluster
from ..docker_engine import raw_engine
from ..entrypoints.command_lines import PROGRAM, rows_of, task_file
from ..harnesses.claude_code.scripted_model import scripted_model

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("claude_code", "docker", "kubernetes"),
]

RUN_SECONDS = 600.0
GONE_SECONDS = 60.0
"""The pods of a pool that was dropped leave their network in this time."""
WORKDIR = "/workspace"
SETTINGS = """
[model]
url = "URL"
credential = {env = "KEY"}

[harness.claude_code.options]
model = "model-1"
bare = false
model_retries = 0
OPTIONS
[sandbox.claims]
provider = "agent_sandbox"
image = "IMAGE"

[sandbox.claims.options]
kubeconfig = "KUBECONFIG"
namespace = "NAMESPACE"
image_warmpools = {"IMAGE" = "POOL"}

[run]
harness = "claude_code"
sandbox = "claims"
concurrency = 1
"""


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A network of the engine that leads nowhere but to its own members."""
    name = f"livery-test-{secrets.token_hex(4)}"
    raw_engine.request(
        "POST", "/networks/create", {"Name": name, "Internal": True, "Labels": {}}
    )
    yield name
    deadline = time.monotonic() + GONE_SECONDS
    while raw_engine.request("DELETE", f"/networks/{name}")[0] != 204:
        assert time.monotonic() < deadline, f"network {name} is left"
        time.sleep(0.2)


def drop(cluster: Cluster, pool: str) -> None:
    """Take a pool away, with all that it made."""
    cluster.do("drop_pool", name=pool)
    cluster.until(
        lambda: not [one for one in cluster.do("sandboxes") if pool in one["name"]]
    )


@pytest.mark.parametrize("program", peers.claude_code_programs()[-1:] or ("none",))
async def test_it_mends_a_task_through_the_relay(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    nowhere: str,
    test_image: str,
    tmp_path: Path,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(mending.KEY, mending.REAL)
    pool = cluster.make_pool("inside", image=test_image, replicas=1, network=nowhere)
    request.addfinalizer(lambda: drop(cluster, pool))
    options: Mapping[str, str] = mending.options_of(program)
    tasks = task_file(tmp_path, mending.row("mend", mending.MEND))
    config, out, state = tmp_path / "livery.toml", tmp_path / "out", tmp_path / "state"
    text = SETTINGS.replace("KEY", mending.KEY).replace("IMAGE", test_image)
    text = text.replace("KUBECONFIG", cluster.where.kubeconfig).replace("POOL", pool)
    text = text.replace("NAMESPACE", cluster.where.namespace)
    lines = "".join(f'{name} = "{value}"\n' for name, value in options.items())
    text = text.replace("OPTIONS", lines)
    async with scripted_model(choice=mending.model_at(WORKDIR)) as model:
        config.write_text(text.replace("URL", model.url))
        words = ("run", tasks, "--config", config, "--state", state, "--out", out)
        with anyio.fail_after(RUN_SECONDS):
            ended = await anyio.run_process(
                [sys.executable, "-c", PROGRAM, *map(str, words)],
                check=False,
                env={**os.environ},
            )

    told = ended.stderr.decode()
    (row,) = rows_of(out)
    assert row["result"] is not None, told
    assert (row["result"]["reward"], row["result"]["mask_sample"]) == (1.0, False), told
    assert row["result"]["ng_agent_observations"]["gaps"] == []
    assert all(mending.REAL in head for head in model.heads)
    assert cluster.do("claims") == []
