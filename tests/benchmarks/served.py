# SPDX-License-Identifier: Apache-2.0
"""One server of the benchmark `servers`, as a process of its own.

    python -m tests.benchmarks.served NAME SETTINGS STATE

It says its addresses on standard output, one a line, and ends when its input does.
"""

import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from livery.domain.tasks import Task
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.serving import (
    Served,
    address_of,
    listen,
    serve_until,
)
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.settings_reading import SettingsFile, read_settings
from livery.entrypoints.state_folder import StateFolder, open_state_folder
from livery.ports.required.sandbox_provider import SandboxSpec

from .nothing_provider import NothingWorld


@attrs.frozen
class EmptyWorld(NothingWorld):
    """Not even a sandbox."""

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        return None


async def _serve(served: Served, listening: socket.socket, stop: anyio.Event) -> None:
    await serve_until(
        to_application(served.routes),
        listening,
        stop,
        served.drain,
        grace_seconds=served.grace_seconds,
    )


async def main(name: str, settings: str, state: str) -> None:
    file = read_settings(Path(settings))
    folder = open_state_folder(Path(state))
    surroundings = Surroundings(name=name, state=Path(state))
    stop = anyio.Event()
    async with anyio.create_task_group() as group:

        async def until_input_ends() -> None:
            await anyio.to_thread.run_sync(sys.stdin.read)
            stop.set()

        group.start_soon(until_input_ends)
        if name == "all":
            from livery.entrypoints.all_servers import open_all_servers

            async with open_all_servers(
                file, folder, surroundings, world=EmptyWorld()
            ) as servers:
                for each in servers:
                    print(address_of(each.socket), flush=True)
                async with anyio.create_task_group() as serving:
                    for each in servers:
                        serving.start_soon(_serve, each.served, each.socket, stop)
        else:
            async with _opened(name, file, folder, surroundings) as served:
                listening = listen(served.host, served.port)
                print(address_of(listening), flush=True)
                await _serve(served, listening, stop)


def _opened(
    name: str, file: SettingsFile, folder: StateFolder, surroundings: Surroundings
) -> AbstractAsyncContextManager[Served]:
    match name:
        case "agent":
            from livery.entrypoints.agent_server.composition import open_agent_server

            return open_agent_server(file, folder, surroundings)
        case "environment":
            from livery.entrypoints.environment_server.composition import (
                open_environment_server,
            )

            return open_environment_server(file, folder, surroundings)
        case _:
            return _open_resources(file, folder, surroundings)


@asynccontextmanager
async def _open_resources(
    file: SettingsFile, folder: StateFolder, surroundings: Surroundings
) -> AsyncGenerator[Served]:
    from livery.entrypoints.resources_server.composition import open_resources

    settings = file.settings.resources_server
    async with open_resources(file, folder, surroundings, EmptyWorld()) as application:
        yield Served(
            what="resources sessions",
            host=settings.host,
            port=settings.port,
            routes=application.routes,
            drain=application.served.drain,
            grace_seconds=settings.shutdown_seconds,
        )


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
