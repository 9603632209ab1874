# SPDX-License-Identifier: Apache-2.0
"""A cluster for tests: a real API server, and stand-ins for all that is around it.

The stand-ins run in a process of their own, which `Cluster` steers: so a test counts
its own threads and descriptors alone, and can be killed.
"""

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

START_SECONDS_MAX = 240.0
ANSWER_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05
PIECE_BYTES = 1024 * 1024
ROOT = Path(__file__).parent.parent.parent


@attrs.frozen(kw_only=True)
class Where:
    """Where everything is."""

    admin_kubeconfig: str
    kubeconfig: str
    """Of the service account that the provider is, straight to the API server."""
    proxied_kubeconfig: str
    """The same, through the fault proxy `api`."""
    ca: str
    token: str
    api_url: str
    proxied_api_url: str
    namespace: str
    router_url: str
    router_tls_url: str
    gateway: str | None
    """The Gateway's name; None without the right to listen at its port."""
    gateway_ip: str


class Cluster:
    """Steers the process of the stand-ins; its commands are those of `Stage`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        """Read where everything is, once it is there."""
        self._process = process
        self._unread = b""
        self.where = Where(**self._answer(START_SECONDS_MAX))

    def do(self, command: str, **words: Any) -> Any:
        """Carry out a command and return what it tells."""
        assert self._process.stdin is not None
        line = json.dumps({"do": command, **words}) + "\n"
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        return self._answer(ANSWER_SECONDS_MAX)

    def make_pool(self, name: str, *, image: str, **words: Any) -> str:
        """Make a pool, wait until its members are there, and return its name."""
        self.do("make_pool", name=name, image=image, **words)
        wanted = words.get("replicas", 0)
        where = {"namespace": words["namespace"]} if "namespace" in words else {}
        self.until(lambda: self.do("ready_members", name=name, **where) == wanted)
        return name

    def sandbox_of(self, claim: str) -> dict[str, Any]:
        """Return the sandbox that a claim is bound to."""
        found = [one for one in self.do("sandboxes") if one["claim"] == claim]
        assert len(found) == 1, f"claim {claim} has {len(found)} sandboxes"
        return dict(found[0])

    def until(self, seen: Callable[[], bool]) -> None:
        """Wait until something is seen."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not seen():
            assert time.monotonic() < deadline, "not seen in time"
            time.sleep(LOOK_SECONDS)

    def _answer(self, seconds: float) -> Any:
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                assert left > 0, "the cluster does not answer"
                if selector.select(left):
                    piece = os.read(stdout.fileno(), PIECE_BYTES)
                    assert piece, f"the cluster ended with {self._process.wait()}"
                    self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        answer = json.loads(line)
        assert "failed" not in answer, answer["failed"]
        return answer["ok"]


@contextmanager
def open_cluster() -> Iterator[Cluster]:
    """Run a cluster for as long as the block."""
    folder = Path(tempfile.mkdtemp(prefix="lvc-"))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", str(folder / "run")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Cluster(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)
