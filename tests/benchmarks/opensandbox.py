# SPDX-License-Identifier: Apache-2.0
"""What Livery adds to an OpenSandbox server: ratios to its APIs, called bare.

The floor is written by hand over http.client, on the real server and with the same
execd in the sandbox. Floor and Livery take turns; medians are compared. No ratio may
be above `RATIO_MAX`.
"""

import http.client
import json
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator

import anyio
import attrs

from livery.adapters.opensandbox import (
    OpenSandbox,
    OpenSandboxConfig,
    OpenSandboxProvider,
    open_opensandbox,
)
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.required.sandbox import Command
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from .. import peers
from ..opensandbox import real_server
from ..opensandbox.real_server import API_KEY, RealServer
from .docker import PIECE_BYTES, RATIO_MAX, Compared, compare

BULK_BYTES = 100 * 1024 * 1024
CREATES = 8
EXECS = 60
OWNER = OwnerId(f"bench-{secrets.token_hex(4)}")
KEY = {"OPEN-SANDBOX-API-KEY": API_KEY, "Content-Type": "application/json"}
GRACE = {"EXECD_API_GRACE_SHUTDOWN": "10ms"}
BOUNDARY = "livery-bench"


@attrs.frozen
class Bare:
    """A sandbox, made and used by hand."""

    sandbox_id: str
    host: str


def ask(server: RealServer, method: str, path: str, body: object = None) -> bytes:
    """Ask the server one thing on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    content = None if body is None else json.dumps(body).encode()
    connection.request(method, f"/v1/sandboxes{path}", body=content, headers=KEY)
    answer = connection.getresponse()
    raw = answer.read()
    assert answer.status < 300, raw
    connection.close()
    return raw


def bare_create(server: RealServer) -> Bare:
    """Make a sandbox, wait for its execd, and run a first command in it."""
    body = {
        "image": {"uri": peers.image()},
        "timeout": 600,
        "resourceLimits": {},
        "entrypoint": ["sleep", "600"],
        "env": GRACE,
    }
    sandbox_id = json.loads(ask(server, "POST", "", body))["id"]
    found = json.loads(ask(server, "GET", f"/{sandbox_id}/endpoints/44772"))
    bare = Bare(sandbox_id, found["endpoint"].partition("/")[0])
    while True:
        try:
            connection = http.client.HTTPConnection(bare.host, timeout=10)
            connection.request("GET", "/ping")
            connection.getresponse().read()
            break
        except OSError:
            time.sleep(0.05)
    bare_exec(bare)
    return bare


def bare_exec(bare: Bare) -> None:
    """Run `true` and hear its last event, not the end of the stream."""
    fresh = http.client.HTTPConnection(bare.host, timeout=60)
    body = json.dumps({"command": "true"}).encode()
    fresh.request("POST", "/command", body=body)
    answer = fresh.getresponse()
    while b"execution_complete" not in answer.readline():
        pass
    fresh.close()


def bare_put(bare: Bare, content: bytes) -> None:
    """Upload a file, given in pieces."""
    words = json.dumps({"path": "/tmp/bulk", "mode": 644}).encode()
    head = b"".join(
        (
            b'--%b\r\nContent-Disposition: form-data; name="metadata"; filename="m"\r\n'
            b"Content-Type: application/json\r\n\r\n%b\r\n"
            b'--%b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n'
            b"Content-Type: application/octet-stream\r\n\r\n"
            % (BOUNDARY.encode(), words, BOUNDARY.encode()),
        )
    )
    tail = f"\r\n--{BOUNDARY}--\r\n".encode()

    def pieces() -> Iterator[bytes]:
        yield head
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]
        yield tail

    connection = http.client.HTTPConnection(bare.host, timeout=120)
    connection.request(
        "POST",
        "/files/upload",
        body=pieces(),
        headers={
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
            "Content-Length": str(len(head) + len(content) + len(tail)),
        },
    )
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def bare_get(bare: Bare) -> None:
    """Download a file to its end."""
    connection = http.client.HTTPConnection(bare.host, timeout=120)
    connection.request("GET", "/files/download?path=/tmp/bulk")
    answer = connection.getresponse()
    size = 0
    while piece := answer.read(PIECE_BYTES):
        size += len(piece)
    assert size == BULK_BYTES
    connection.close()


def new_label() -> ClaimLabel:
    """Return the label of a fresh claim."""
    return ClaimLabel(claim=ClaimId(f"{OWNER}-{secrets.token_hex(4)}"), owner=OWNER)


async def run_true(sandbox: OpenSandbox) -> None:
    """Run `true` and learn how it ended."""
    ended = await sandbox.exec(Command(argv=("true",), timeout_seconds=60.0))
    assert ended.succeeded, ended


async def creating(
    server: RealServer, provider: OpenSandboxProvider, spec: SandboxSpec
) -> Compared:
    """Compare create to the first exec done; what is made is ended in between."""
    floors, liverys = list[float](), list[float]()
    for _ in range(CREATES):
        start = time.perf_counter()
        bare = bare_create(server)
        floors.append(time.perf_counter() - start)
        ask(server, "DELETE", f"/{bare.sandbox_id}")
        label = new_label()
        start = time.perf_counter()
        await run_true(await provider.create(label, spec))
        liverys.append(time.perf_counter() - start)
        await provider.destroy(label)
    compared = Compared(
        name="create to first exec",
        floor_seconds=statistics.median(floors[1:]),
        livery_seconds=statistics.median(liverys[1:]),
    )
    print(compared.told(), flush=True)
    return compared


async def measure(server: RealServer) -> list[Compared]:
    """Measure everything over one provider."""
    spec = SandboxSpec(image=peers.image())
    content = secrets.token_bytes(BULK_BYTES)
    config = OpenSandboxConfig(address=server.address, api_key=API_KEY)
    print(f"{'':<28}{'bare APIs':>13}{'livery':>13}{'ratio':>8}")
    async with open_opensandbox(config) as provider:
        found = [await creating(server, provider, spec)]
        label, bare = new_label(), bare_create(server)
        sandbox = await provider.create(label, spec)
        try:

            async def floor_exec() -> None:
                bare_exec(bare)

            async def floor_put() -> None:
                bare_put(bare, content)

            async def floor_get() -> None:
                bare_get(bare)

            async def put() -> None:
                async def pieces() -> AsyncIterator[bytes]:
                    for start in range(0, len(content), PIECE_BYTES):
                        yield content[start : start + PIECE_BYTES]

                await sandbox.put("/tmp/bulk", pieces(), size=len(content))

            async def get() -> None:
                async with sandbox.get("/tmp/bulk") as chunks:
                    assert sum([len(chunk) async for chunk in chunks]) == BULK_BYTES

            found += [
                await compare(
                    "exec round trip", EXECS, floor_exec, lambda: run_true(sandbox)
                ),
                await compare("100 MiB in", 7, floor_put, put),
                await compare("100 MiB out", 7, floor_get, get),
            ]
        finally:
            await provider.destroy(label)
            ask(server, "DELETE", f"/{bare.sandbox_id}")
    return found


def main() -> int:
    """Print the table; return 1 when a ratio is above the bound."""
    if reason := peers.absence("opensandbox"):
        print(f"opensandbox is not measured: {reason}")
        return 1 if peers.is_required("opensandbox") else 0
    server = real_server.set_up(peers.image())
    try:
        server.start()
        try:
            found = anyio.run(measure, server)
        finally:
            server.stop()
    finally:
        real_server.take_down(server)
    return 1 if any(compared.ratio > RATIO_MAX for compared in found) else 0


if __name__ == "__main__":
    sys.exit(main())
