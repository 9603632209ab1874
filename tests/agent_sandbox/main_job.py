# SPDX-License-Identifier: Apache-2.0
"""The main job on the real API server: HumanEval's reference solutions in claims.

`python -m tests.agent_sandbox.main_job [--limit N] [--kill SECONDS]` runs it, kills
it hard after so many seconds and resumes it, and fails for a task that did not pass
and for a claim that is left.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .. import peers
from ..cluster.cluster import Cluster, open_cluster
from ..entrypoints.command_lines import PROGRAM

SETTINGS = """
[sandbox.claims]
provider = "agent_sandbox"

[sandbox.claims.options]
kubeconfig = "KUBECONFIG"
namespace = "NAMESPACE"
image_warmpools = {"IMAGE" = "POOL"}
"""
RUN_SECONDS_MAX = 3600.0


class MainJob:
    """The command, over one cluster and into one folder."""

    def __init__(self, cluster: Cluster, pool: str, folder: Path) -> None:
        """Write the settings."""
        self._folder = folder
        self._cluster = cluster
        where, image = cluster.where, peers.image()
        text = SETTINGS.replace("KUBECONFIG", where.kubeconfig)
        text = text.replace("NAMESPACE", where.namespace)
        text = text.replace("IMAGE", image).replace("POOL", pool)
        (folder / "livery.toml").write_text(text)

    @property
    def out(self) -> Path:
        return self._folder / "out"

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start it in a session of its own, so that a kill hits it alone."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "run", *words],
            cwd=self._folder,
            env={
                **os.environ,
                "LIVERY_IMAGE": peers.image(),
                "XDG_STATE_HOME": str(self._folder / "state"),
            },
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def first(self, *, limit: int | None, concurrency: int) -> list[str]:
        """Return the words of the first run."""
        words = ["humaneval", "--harness", "oracle", "--sandbox", "claims"]
        words += ["--out", str(self.out), "--concurrency", str(concurrency)]
        return words + (["--limit", str(limit)] if limit else [])

    def passed(self) -> tuple[int, int]:
        """Return how many episodes there are, and how many of them passed."""
        file = self.out / "results.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        results = [row["result"] or {} for row in rows]
        return len(rows), sum(result.get("reward") == 1.0 for result in results)

    def claims(self) -> list[str]:
        """Return the claims that the cluster has."""
        return [claim["metadata"]["name"] for claim in self._cluster.do("claims")]

    def kill(self, running: "subprocess.Popen[bytes]", *, seconds: float) -> None:
        """Kill the command as soon as its episodes have claims, and so many seconds
        have passed.

        Before that it has the claim of its check alone, and nothing to go on with.
        """
        until = time.monotonic() + seconds
        begun = self.out / "run.json"
        self._cluster.until(lambda: begun.exists() and bool(self.claims()))
        time.sleep(max(0.0, until - time.monotonic()))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def main(arguments: list[str]) -> int:
    """Run the job as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.agent_sandbox.main_job")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--kill", type=float)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, open_cluster() as cluster:
        pool = cluster.make_pool("main-job", image=peers.image(), replicas=4)
        job = MainJob(cluster, pool, Path(folder))
        begun = time.monotonic()
        first = job.first(limit=chosen.limit, concurrency=chosen.concurrency)
        running = job.begin(*first)
        if chosen.kill is not None:
            job.kill(running, seconds=chosen.kill)
            print(f"killed with {len(job.claims())} claims", flush=True)
            running = job.begin("--resume", str(job.out))
        status = running.wait(RUN_SECONDS_MAX)
        episodes, passed = job.passed()
        left = job.claims()
    seconds = time.monotonic() - begun
    print(
        f"status {status}: {episodes} episodes, {passed} passed, {len(left)} claims"
        f" left, {seconds:.0f} s"
    )
    wanted = chosen.limit or 164
    return 0 if (status, passed, left) == (0, wanted, []) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
