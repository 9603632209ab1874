# SPDX-License-Identifier: Apache-2.0
"""What the official client sees of a cluster, as JSON on standard output.

A process of its own: the client registers exits and keeps sessions as it likes.
Arguments: mode (in_cluster, gateway or direct), pool, namespace, and the mode's own:
the gateway's name or the router's URL.
"""

import asyncio
import io
import json
import sys
from typing import Any

from k8s_agent_sandbox.async_sandbox_client import AsyncSandboxClient
from k8s_agent_sandbox.exceptions import SandboxRequestError
from k8s_agent_sandbox.models import (
    SandboxDirectConnectionConfig,
    SandboxGatewayConnectionConfig,
    SandboxInClusterConnectionConfig,
)

BINARY = bytes(range(256)) * 400 + b"\r\n--x--\r\n"


def connection(mode: str, namespace: str, more: str) -> Any:
    """Return the client's way to reach sandboxes."""
    if mode == "in_cluster":
        return SandboxInClusterConnectionConfig()
    if mode == "gateway":
        return SandboxGatewayConnectionConfig(
            gateway_name=more, gateway_namespace=namespace, gateway_ready_timeout=30
        )
    return SandboxDirectConnectionConfig(api_url=more)


async def status_of(call: Any) -> int | None:
    """Return the status with which a call was refused."""
    try:
        await call
    except SandboxRequestError as error:
        return error.status_code
    return None


async def look(mode: str, pool: str, namespace: str, more: str) -> dict[str, Any]:
    """Create a sandbox, use it in every way, delete it."""
    seen: dict[str, Any] = {}
    client = AsyncSandboxClient(connection(mode, namespace, more), cleanup=False)
    async with client:
        sandbox = await client.create_sandbox(
            pool, namespace, 60, {"suite": "official"}, shutdown_after_seconds=600
        )
        commands, files = sandbox.commands, sandbox.files
        seen["claim"], seen["sandbox"] = sandbox.claim_name, sandbox.sandbox_id
        seen["status"] = (await sandbox.status())[0]
        ran = await commands.run("sh -c 'echo out; echo err >&2; exit 3'")
        seen["ran"] = [ran.stdout, ran.stderr, ran.exit_code]
        words = await commands.run("echo one '$HOME' && echo two")
        seen["without a shell"] = words.stdout
        missing = await commands.run("no-such-program")
        seen["missing"] = [missing.exit_code, bool(missing.stderr)]
        slow = await commands.run("sleep 60", command_timeout=0.2)
        seen["slow"] = [slow.exit_code, slow.timed_out]
        seen["undecodable"] = await status_of(commands.run(r"printf '\377'"))
        await files.write("deep/er/file.bin", BINARY)
        await files.write("streamed", io.BytesIO(BINARY))
        seen["binary"] = [
            await files.read(path) == BINARY
            for path in ("deep/er/file.bin", "streamed")
        ]
        seen["exists"] = [await files.exists("streamed"), await files.exists("none")]
        seen["list"] = [
            [one.name, one.size, one.type] for one in await files.list("deep")
        ]
        seen["none"] = await status_of(files.read("none"))
        outside = files.read("../etc/passwd", allow_unsafe_paths=True)
        seen["outside"] = await status_of(outside)
        seen["claims"] = await client.k8s_helper.list_sandbox_claims(
            namespace, "suite=official"
        )
        await sandbox.terminate()
        seen["left"] = await client.k8s_helper.list_sandbox_claims(namespace)
    return seen


async def refusals(namespace: str) -> dict[str, str]:
    """Return the exceptions that the client makes of what the controller says."""
    client = AsyncSandboxClient(SandboxInClusterConnectionConfig(), cleanup=False)
    found: dict[str, str] = {}
    async with client:
        for pool, more in (
            ("no-such-pool", {}),
            ("python-pool", {"env": {"A": "b"}}),
            ("python-pool", {"pod_labels": {"x.kubernetes.io/y": "z"}}),
        ):
            try:
                await client.create_sandbox(pool, namespace, 30, **more)
            except Exception as error:
                found[str(sorted(more))] = f"{type(error).__name__}: {error}"
        found["left"] = str(await client.k8s_helper.list_sandbox_claims(namespace))
    return found


if __name__ == "__main__":
    mode, *words = sys.argv[1:]
    told = refusals(words[0]) if mode == "refusals" else look(mode, *words)
    print(json.dumps(asyncio.run(told)))
