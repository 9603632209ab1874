# SPDX-License-Identifier: Apache-2.0
"""The cluster as a process of its own: `python -m tests.cluster FOLDER`.

A line of JSON on standard input is a command, a line on standard output its answer.
All that was made ends with standard input.
"""

import json
import shutil
import sys
import traceback
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from .api_server import start_api_server
from .stage import Stage, open_stage


async def main(folder: Path) -> None:
    """Set everything up, answer commands, and take everything down."""
    async with AsyncExitStack() as stack:
        server = await to_thread.run_sync(start_api_server, folder)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(server.stop)
        stage = await stack.enter_async_context(open_stage(server))
        _say({"ok": stage.facts()})
        async for line in anyio.wrap_file(sys.stdin):
            _say(await _answer(stage, json.loads(line)))


async def _answer(stage: Stage, asked: dict[str, Any]) -> dict[str, Any]:
    do = getattr(stage, f"do_{asked.pop('do')}")
    try:
        return {"ok": await do(**asked)}
    except Exception:
        return {"failed": traceback.format_exc()}


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
