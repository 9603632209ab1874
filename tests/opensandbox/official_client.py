# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's own Python client, 1.1.1, run in its own environment.

Called with the server's address, its key and an image; prints what it saw as JSON.
It keeps our execd honest: whatever this client takes for granted has to be so.
"""

import asyncio
import json
import sys
from datetime import timedelta


async def main(domain: str, key: str, image: str) -> dict:
    from opensandbox import Sandbox
    from opensandbox.config import ConnectionConfig
    from opensandbox.models.execd import RunCommandOpts
    from opensandbox.models.filesystem import WriteEntry

    config = ConnectionConfig(
        domain=domain, api_key=key, request_timeout=timedelta(minutes=2)
    )
    sandbox = await Sandbox.create(
        image,
        timeout=timedelta(minutes=5),
        env={"EXECD_API_GRACE_SHUTDOWN": "10ms"},
        metadata={"made-by": "official-client"},
        connection_config=config,
    )
    seen: dict = {"id": sandbox.id}
    try:
        seen["healthy"] = await sandbox.is_healthy()
        said = await sandbox.commands.run("echo out; echo err >&2")
        seen["stdout"] = [one.text for one in said.logs.stdout]
        seen["stderr"] = [one.text for one in said.logs.stderr]
        seen["exit"] = said.exit_code
        failed = await sandbox.commands.run("exit 3")
        seen["failed"] = failed.exit_code
        timed = await sandbox.commands.run(
            "sleep 60", opts=RunCommandOpts(timeout=timedelta(milliseconds=300))
        )
        seen["timed"] = timed.exit_code
        seen["timed_error"] = timed.error.traceback if timed.error else None
        behind = await sandbox.commands.run(
            "echo one; sleep 0.2; echo two", opts=RunCommandOpts(background=True)
        )
        for _ in range(100):
            status = await sandbox.commands.get_command_status(behind.id)
            if not status.running:
                break
            await asyncio.sleep(0.05)
        logs = await sandbox.commands.get_background_command_logs(behind.id)
        seen["logs"] = logs.content
        await sandbox.files.write_files(
            [
                WriteEntry(path="/tmp/deep/a.txt", data="text", mode=640),
                WriteEntry(path="/tmp/b.bin", data=bytes(range(256))),
            ]
        )
        seen["text"] = await sandbox.files.read_file("/tmp/deep/a.txt")
        content = await sandbox.files.read_bytes("/tmp/b.bin")
        seen["bytes"] = content == bytes(range(256))
        found = await sandbox.files.get_file_info(["/tmp/deep/a.txt"])
        seen["mode"] = found["/tmp/deep/a.txt"].mode
        await sandbox.files.delete_files(["/tmp/b.bin"])
        gone = await sandbox.commands.run("test -e /tmp/b.bin")
        seen["deleted"] = gone.exit_code
    finally:
        await sandbox.kill()
        await sandbox.close()
    return seen


if __name__ == "__main__":
    print("SEEN " + json.dumps(asyncio.run(main(*sys.argv[1:]))))
