# SPDX-License-Identifier: Apache-2.0
"""What Livery adds to the Docker Engine: ratios to the bare Engine API.

The floor is written by hand over http.client on the engine's socket and asks for
the least that does the same. Floor and Livery take turns, so that a slow moment of
the machine hits both; medians are compared. No ratio may be above `RATIO_MAX`.
"""

import json
import secrets
import statistics
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.to_thread
import attrs

from livery.adapters.docker_engine import (
    DockerSandboxProvider,
    open_docker_engine,
)
from livery.adapters.docker_engine.sandbox import DockerSandbox
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.required.sandbox import Command
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from .. import peers
from ..docker_engine import raw_engine

RATIO_MAX = 1.25
AT_ONCE = 32
BULK_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
OWNER = OwnerId(f"bench-{secrets.token_hex(4)}")


@attrs.frozen(kw_only=True)
class Compared:
    """One operation, measured both ways."""

    name: str
    floor_seconds: float
    livery_seconds: float

    @property
    def ratio(self) -> float:
        """How much longer Livery takes."""
        return self.livery_seconds / self.floor_seconds

    def told(self) -> str:
        """Return a line for a person."""
        mark = "" if self.ratio <= RATIO_MAX else f"  above {RATIO_MAX}"
        return (
            f"{self.name:<28}{self.floor_seconds * 1e3:10.1f} ms"
            f"{self.livery_seconds * 1e3:10.1f} ms{self.ratio:8.2f}{mark}"
        )


# The floor


def bare_exec(container: str) -> None:
    """Run `true` and learn how it ended."""
    body = {"AttachStdout": True, "AttachStderr": True, "Cmd": ["true"]}
    _, raw = raw_engine.request("POST", f"/containers/{container}/exec", body)
    exec_id = json.loads(raw)["Id"]
    raw_engine.request("POST", f"/exec/{exec_id}/start", {"Detach": False})
    while True:
        _, raw = raw_engine.request("GET", f"/exec/{exec_id}/json")
        if (code := json.loads(raw)["ExitCode"]) is not None:
            assert code == 0
            return


def bare_create() -> str:
    """Make a container and run a first command in it."""
    name = f"{OWNER}-{secrets.token_hex(4)}"
    labels = {"livery.owner": OWNER}
    container = raw_engine.run_container(
        peers.image(), ["sleep", "600"], name=name, labels=labels
    )
    bare_exec(container)
    return container


def bare_put(container: str, content: bytes) -> None:
    """Unpack a tar of one file, given in pieces."""
    member = tarfile.TarInfo("bulk")
    member.size = len(content)
    padding = -len(content) % 512
    length = 512 + len(content) + padding + 1024

    def pieces() -> Iterator[bytes]:
        yield member.tobuf()
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]
        yield bytes(padding + 1024)

    connection = raw_engine.SocketConnection(str(peers.docker_socket()))
    connection.request(
        "PUT",
        f"/{raw_engine.VERSION}/containers/{container}/archive?path=/tmp",
        body=pieces(),
        headers={"Content-Length": str(length)},
    )
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def bare_get(container: str) -> None:
    """Read a tar of one file to its end."""
    connection = raw_engine.SocketConnection(str(peers.docker_socket()))
    connection.request(
        "GET", f"/{raw_engine.VERSION}/containers/{container}/archive?path=/tmp/bulk"
    )
    answer = connection.getresponse()
    size = 0
    while piece := answer.read(PIECE_BYTES):
        size += len(piece)
    assert size >= BULK_BYTES
    connection.close()


# Livery


def new_label() -> ClaimLabel:
    """Return the label of a fresh claim."""
    return ClaimLabel(claim=ClaimId(f"{OWNER}-{secrets.token_hex(4)}"), owner=OWNER)


async def run_true(sandbox: DockerSandbox) -> None:
    """Run `true` and learn how it ended."""
    ended = await sandbox.exec(Command(argv=("true",), timeout_seconds=60.0))
    assert ended.succeeded, ended


async def put(sandbox: DockerSandbox, content: bytes) -> None:
    """Put the bulk file."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]

    await sandbox.put("/tmp/bulk", pieces(), size=len(content))


async def get(sandbox: DockerSandbox) -> None:
    """Get the bulk file."""
    async with sandbox.get("/tmp/bulk") as chunks:
        assert sum([len(chunk) async for chunk in chunks]) == BULK_BYTES


# Measuring


async def timed(act: Callable[[], Awaitable[object]]) -> float:
    """Return how long `act` takes."""
    start = time.perf_counter()
    await act()
    return time.perf_counter() - start


async def compare(
    name: str,
    rounds: int,
    floor: Callable[[], Awaitable[object]],
    livery: Callable[[], Awaitable[object]],
) -> Compared:
    """Measure both in turn; the first round warms up and does not count."""
    floors, liverys = list[float](), list[float]()
    for _ in range(rounds + 1):
        floors.append(await timed(floor))
        liverys.append(await timed(livery))
    compared = Compared(
        name=name,
        floor_seconds=statistics.median(floors[1:]),
        livery_seconds=statistics.median(liverys[1:]),
    )
    print(compared.told(), flush=True)
    return compared


async def creating(provider: DockerSandboxProvider, spec: SandboxSpec) -> Compared:
    """Compare create to the first exec done; what is made is ended in between."""
    made: list[str] = []
    labels: list[ClaimLabel] = []

    async def end() -> None:
        while made:
            raw_engine.remove(made.pop())
        while labels:
            await provider.destroy(labels.pop())

    floors, liverys = list[float](), list[float]()
    for _ in range(10):
        start = time.perf_counter()
        made.append(bare_create())
        floors.append(time.perf_counter() - start)
        await end()
        start = time.perf_counter()
        labels.append(new_label())
        await run_true(await provider.create(labels[-1], spec))
        liverys.append(time.perf_counter() - start)
        await end()
    compared = Compared(
        name="create to first exec",
        floor_seconds=statistics.median(floors[1:]),
        livery_seconds=statistics.median(liverys[1:]),
    )
    print(compared.told(), flush=True)
    return compared


async def measure() -> list[Compared]:
    """Measure everything over one provider."""
    spec = SandboxSpec(image=peers.image())
    content = secrets.token_bytes(BULK_BYTES)
    print(f"{'':<28}{'bare engine':>13}{'livery':>13}{'ratio':>8}")
    async with open_docker_engine() as provider:
        found = [await creating(provider, spec)]
        label = new_label()
        sandbox = await provider.create(label, spec)
        name = sandbox.sandbox_id
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:

                async def floor_exec() -> None:
                    bare_exec(name)

                async def floor_many() -> None:
                    list(pool.map(bare_exec, [name] * AT_ONCE))

                async def livery_many() -> None:
                    async with anyio.create_task_group() as tasks:
                        for _ in range(AT_ONCE):
                            tasks.start_soon(run_true, sandbox)

                async def floor_put() -> None:
                    bare_put(name, content)

                async def floor_get() -> None:
                    bare_get(name)

                found += [
                    await compare(
                        "exec round trip", 15, floor_exec, lambda: run_true(sandbox)
                    ),
                    await compare(
                        f"{AT_ONCE} execs at once", 3, floor_many, livery_many
                    ),
                    await compare(
                        "64 MiB in", 15, floor_put, lambda: put(sandbox, content)
                    ),
                    await compare("64 MiB out", 15, floor_get, lambda: get(sandbox)),
                ]
        finally:
            await provider.destroy(label)
    return found


def main() -> int:
    """Print the table; return 1 when a ratio is above the bound."""
    if reason := peers.absence("docker"):
        print(f"docker is not measured: {reason}")
        return 1 if peers.is_required("docker") else 0
    found = anyio.run(measure)
    return 1 if any(compared.ratio > RATIO_MAX for compared in found) else 0


if __name__ == "__main__":
    sys.exit(main())
