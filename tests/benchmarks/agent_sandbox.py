# SPDX-License-Identifier: Apache-2.0
"""What Livery adds to the HTTP calls that a claim needs: from create to first answer.

On the real API server with Docker containers for pods, on a pool hit. The floor asks
the same calls with one plain client each, in their order: the claim, its watch, what
it is bound to, the runtime server's to open it, and a command. Floor and Livery take
turns and medians are compared; the ratio may not be above `RATIO_MAX`. Beside it, and
without a bound, stands what a client without any of Livery's promises would ask: the
claim, its watch, a probe and a command. Then so many claims wait at once, with their
cost in memory and watches.
"""

import base64
import json
import os
import secrets
import shlex
import ssl
import statistics
import sys
import time
from collections.abc import Callable

import anyio
import attrs
import httpx

from livery.adapters.agent_sandbox import (
    AgentSandboxConfig,
    AgentSandboxProvider,
    ClusterAddress,
    open_agent_sandbox,
    opening,
)
from livery.adapters.agent_sandbox.carried_stream import TAKE
from livery.adapters.agent_sandbox.manifests import Pools, to_manifest, to_route
from livery.adapters.worker_scripts import program
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.provided.worker_frames import (
    Frame,
    FrameKind,
    FrameReader,
    to_payload,
)
from livery.ports.required.sandbox import Command
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from .. import peers
from ..cluster.cluster import Cluster, open_cluster

RATIO_MAX = 1.5
ROUNDS = 10
WAITING = 1000
WAITING_MIB_MAX = 100.0
POOL = "bench"
MEMBERS = 2
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/agents/sandboxclaims"
POOLS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/agents/sandboxwarmpools"
TEMPLATES = (
    "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/agents/sandboxtemplates"
)
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/agents/sandboxes"
TRUST = ssl.create_default_context()
OWNER = OwnerId(f"bench-{secrets.token_hex(4)}")
SPEC = SandboxSpec()
TRUE = Command(argv=("true",), timeout_seconds=60.0)


def new_label() -> ClaimLabel:
    return ClaimLabel(claim=ClaimId(f"bench-{secrets.token_hex(6)}"), owner=OWNER)


@attrs.frozen
class Bare:
    """The calls by hand."""

    cluster: httpx.Client

    def create(self, label: ClaimLabel) -> tuple[str, str]:
        """Make a claim and wait for it; return the pod's address and the Sandbox."""
        pools = Pools(provider="bench", namespace="agents", warmpool=POOL)
        now = time.time()
        made = self.cluster.post(
            CLAIMS,
            json=to_manifest(
                label,
                SPEC,
                to_route(SPEC, pools=pools),
                now=now,
                shutdown_at=now + 3600,
                managed_by="bench",
            ),
        )
        metadata = made.raise_for_status().json()["metadata"]
        query = {
            "watch": "1",
            "resourceVersion": metadata["resourceVersion"],
            "fieldSelector": f"metadata.name={metadata['name']}",
        }
        with self.cluster.stream("GET", CLAIMS, params=query) as events:
            for line in events.iter_lines():
                status = json.loads(line)["object"].get("status", {})
                ready = status.get("conditions", [{}])[0].get("status")
                if ready == "True":
                    sandbox = status["sandbox"]
                    return sandbox["podIPs"][0], sandbox["name"]
        raise AssertionError("the watch ended")

    def look(self, sandbox: str) -> None:
        """Read what the claim is bound to, and what its pool says."""
        for path in (
            f"{SANDBOXES}/{sandbox}",
            f"{POOLS}/{POOL}",
            f"{TEMPLATES}/{POOL}",
        ):
            self.cluster.get(path).raise_for_status()


def pod_client(address: str) -> httpx.Client:
    url = f"http://{address}:8888"
    # Reading certificates takes longer than all that is asked.
    return httpx.Client(base_url=url, timeout=60.0, trust_env=False, verify=TRUST)


def execute(pod: httpx.Client, *words: str) -> str:
    answer = pod.post("/execute", json={"command": shlex.join(words)})
    told = answer.raise_for_status().json()
    assert told["exit_code"] == 0, told
    return str(told["stdout"])


def least(bare: Bare, label: ClaimLabel) -> None:
    """Ask what a client without any promises would ask."""
    address, _ = bare.create(label)
    with pod_client(address) as pod:
        execute(pod, "true")
        execute(pod, "true")


def same(bare: Bare, label: ClaimLabel) -> None:
    """Ask what Livery asks."""
    address, sandbox = bare.create(label)
    bare.look(sandbox)
    text, key, word = program("porter"), secrets.token_hex(6), secrets.token_hex(6)
    scripts = vars(opening)
    with pod_client(address) as pod:
        told = execute(
            pod,
            *("/bin/sh", "-c", str(scripts["_OPEN"]), "sandbox"),
            *("/workspace", key, "python3", "porter.py", "no", "/none"),
        )
        folder = told.splitlines()[2]
        name = folder.rpartition("/")[2]

        def upload(path: str, content: bytes) -> None:
            pod.post(
                "/upload", files={"file": (f"{name}/{path}", content)}
            ).raise_for_status()

        upload("porter.py", text)
        told = execute(
            pod,
            *("/bin/sh", "-c", str(scripts["_START"]), "sandbox"),
            *("python3", folder, word, "porter.py", TAKE, "15"),
        )
        taken = len(base64.b64decode(told.splitlines()[-1][1:]))
        request = {
            "argv": TRUE.argv,
            "cwd": "/workspace",
            "env": {},
            "user": None,
            "stdin_size": 0,
            "timeout_seconds": TRUE.timeout_seconds,
            "grace_seconds": TRUE.grace_seconds,
            "output_bytes_max": TRUE.output_bytes_max,
            "detaches": False,
        }
        frame = Frame(FrameKind.EXEC, 1, to_payload(request)).to_bytes()
        upload(f"{word}/in/{0:020d}-{len(frame)}", frame)
        reader, line = FrameReader(), f"{folder}/{word}"
        while True:
            told = execute(
                pod, "python3", "-I", "-S", "-c", TAKE, line, str(taken), "15"
            )
            piece = base64.b64decode(told[1:])
            taken += len(piece)
            if any(frame.kind is FrameKind.ANSWER for frame in reader.feed(piece)):
                return


async def creating(cluster: Cluster, provider: AgentSandboxProvider) -> float:
    """Compare from create to first answer; return the ratio."""
    where = cluster.where
    trust = ssl.create_default_context(cafile=where.ca)
    headers = {"Authorization": f"Bearer {where.token}"}
    seconds: dict[str, list[float]] = {"least": [], "same": [], "livery": []}
    with httpx.Client(
        base_url=where.api_url,
        verify=trust,
        headers=headers,
        timeout=60.0,
        trust_env=False,
    ) as client:
        bare = Bare(client)

        async def livery(label: ClaimLabel) -> None:
            sandbox = await provider.create(label, SPEC)
            assert (await sandbox.exec(TRUE)).succeeded

        async def by_hand(
            ask: Callable[[Bare, ClaimLabel], None], label: ClaimLabel
        ) -> None:
            await anyio.to_thread.run_sync(ask, bare, label)

        for _ in range(ROUNDS + 1):
            for name, ask in (("least", least), ("same", same), ("livery", None)):
                await anyio.to_thread.run_sync(cluster.until, lambda: _is_full(cluster))
                label = new_label()
                start = time.perf_counter()
                await (livery(label) if ask is None else by_hand(ask, label))
                seconds[name].append(time.perf_counter() - start)
                await provider.destroy(label)
    medians = {name: statistics.median(each[1:]) for name, each in seconds.items()}
    ratio = medians["livery"] / medians["same"]
    print(f"create to first exec, bare  {medians['same'] * 1e3:10.1f} ms")
    print(f"                    livery  {medians['livery'] * 1e3:10.1f} ms{ratio:8.2f}")
    plain = medians["livery"] / medians["least"]
    print(f"   claim, probe, exec bare  {medians['least'] * 1e3:10.1f} ms{plain:8.2f}")
    return ratio


def _is_full(cluster: Cluster) -> bool:
    return bool(cluster.do("ready_members", name=POOL) == MEMBERS)


async def waiting(cluster: Cluster, provider: AgentSandboxProvider) -> float:
    """Have many claims wait; return how many MiB they cost here."""
    cluster.do("behave", holds=True)
    labels = [new_label() for _ in range(WAITING)]
    spec = attrs.evolve(SPEC, create_timeout_seconds=1800.0)
    watch = provider.watch("agents")
    opened, before = watch.watches_opened, _resident_mib()
    async with anyio.create_task_group() as tasks:
        for label in labels:
            tasks.start_soon(provider.create, label, spec)
        made = 0
        while made < WAITING:
            await anyio.sleep(0.5)
            made = len([one async for one in provider.list(OWNER)])
        used = _resident_mib() - before
        begun = time.perf_counter()
        tasks.cancel_scope.cancel()
    print(
        f"{WAITING} claims wait: {used:.0f} MiB,"
        f" {watch.watches_opened - opened} watch(es) opened one after the other,"
        f" given up in {time.perf_counter() - begun:.0f} s"
    )
    cluster.do("behave")
    return used


def _resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


async def measure(cluster: Cluster) -> bool:
    """Measure everything; tell whether a bound is broken."""
    config = AgentSandboxConfig(
        cluster=ClusterAddress(kubeconfig=cluster.where.kubeconfig),
        namespace="agents",
        warmpool=POOL,
    )
    async with open_agent_sandbox(config) as provider:
        ratio = await creating(cluster, provider)
        mib = await waiting(cluster, provider)
    return ratio > RATIO_MAX or mib > WAITING_MIB_MAX


def main() -> int:
    """Print the figures; return 1 when a bound is broken."""
    for peer in ("docker", "kubernetes"):
        if reason := peers.absence(peer):
            print(f"agent_sandbox is not measured: {reason}")
            return 1 if peers.is_required(peer) else 0
    with open_cluster() as cluster:
        cluster.make_pool(POOL, image=peers.image(), replicas=MEMBERS)
        return int(anyio.run(measure, cluster))


if __name__ == "__main__":
    sys.exit(main())
