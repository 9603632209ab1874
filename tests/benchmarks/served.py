# SPDX-License-Identifier: Apache-2.0
"""One server of the benchmark `servers`, as a process of its own.

    python -m tests.benchmarks.served NAME SETTINGS STATE WORLD

It says its addresses on standard output, one a line, and ends when its input does. For
each line of its input it says how long, in milliseconds, somebody waited for its event
loop at the longest since the line before.
"""

import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from livery.adapters.worlds.desk import DeskWorld
from livery.domain.claims import ClaimId
from livery.domain.tasks import Task
from livery.entrypoints.collector import collected_rarely
from livery.entrypoints.event_loop import loop_options
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
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    Output,
    SandboxAccess,
)
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    SandboxProvider,
    SandboxSpec,
)
from livery.ports.required.world import World

from .nothing_provider import NothingProvider, NothingSandbox, NothingWorld

LOOK_SECONDS = 0.01
ANSWER_SECONDS = 0.1
BUILD_CPU_SECONDS = 0.05
PYTHON = b"3 11\n/usr/bin/python3\n"


@attrs.frozen
class EmptyWorld(NothingWorld):
    """Not even a sandbox."""

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        return None


@attrs.frozen
class HeavyWorld(DeskWorld):
    """An office whose build keeps the processor busy."""

    def build(self, task: Task, folder: str) -> None:
        until = time.thread_time() + BUILD_CPU_SECONDS
        super().build(task, folder)
        while time.thread_time() < until:
            pass


@attrs.frozen
class SlowSandbox(NothingSandbox):
    """Has the Python that whoever borrows it looks for."""

    async def exec(self, command: Command) -> Ended:
        return Ended(how=Exited(0), stdout=Output(head=PYTHON, size=len(PYTHON)))


@attrs.define
class SlowProvider(NothingProvider):
    """Answers after a while."""

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> NothingSandbox:
        await anyio.sleep(ANSWER_SECONDS)
        made = await NothingProvider.create(self, label, spec)
        return SlowSandbox(made.sandbox_id)

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> NothingSandbox:
        await anyio.sleep(ANSWER_SECONDS)
        found = await NothingProvider.connect(self, access, borrower=borrower)
        return SlowSandbox(found.sandbox_id)

    async def destroy(self, label: ClaimLabel) -> None:
        await anyio.sleep(ANSWER_SECONDS)
        await NothingProvider.destroy(self, label)


WORLDS: dict[str, Callable[[], tuple[World, SandboxProvider | None]]] = {
    "empty": lambda: (EmptyWorld(), None),
    "desk": lambda: (DeskWorld(), SlowProvider()),
    "heavy": lambda: (HeavyWorld(), SlowProvider()),
}


@attrs.define
class Lag:
    """How long the event loop keeps somebody waiting who has nothing to wait for."""

    longest: float = 0.0

    async def watch(self, stop: anyio.Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            await anyio.sleep(LOOK_SECONDS)
            self.longest = max(self.longest, time.monotonic() - began - LOOK_SECONDS)

    def told(self) -> float:
        longest, self.longest = self.longest, 0.0
        return longest


async def _serve(served: Served, listening: socket.socket, stop: anyio.Event) -> None:
    await serve_until(
        to_application(served.routes),
        listening,
        stop,
        served.drain,
        grace_seconds=served.grace_seconds,
    )


async def main(name: str, settings: str, state: str, world: str) -> None:
    file = read_settings(Path(settings))
    folder = open_state_folder(Path(state))
    surroundings = Surroundings(name=name, state=Path(state))
    stop, lag = anyio.Event(), Lag()
    made, provider = WORLDS[world]()
    async with anyio.create_task_group() as group:

        async def until_input_ends() -> None:
            while await anyio.to_thread.run_sync(sys.stdin.readline):
                print(f"{lag.told() * 1000:.1f}", flush=True)
            stop.set()

        group.start_soon(lag.watch, stop)
        group.start_soon(until_input_ends)
        if name == "all":
            from livery.entrypoints.all_servers import open_all_servers

            async with open_all_servers(
                file, folder, surroundings, world=made, provider=provider
            ) as servers:
                for each in servers:
                    print(address_of(each.socket), flush=True)
                async with anyio.create_task_group() as serving:
                    for each in servers:
                        serving.start_soon(_serve, each.served, each.socket, stop)
        else:
            opened = _opened(name, file, folder, surroundings, made, provider)
            async with opened as served:
                listening = listen(served.host, served.port)
                print(address_of(listening), flush=True)
                await _serve(served, listening, stop)


def _opened(
    name: str,
    file: SettingsFile,
    folder: StateFolder,
    surroundings: Surroundings,
    world: World,
    provider: SandboxProvider | None,
) -> AbstractAsyncContextManager[Served]:
    match name:
        case "agent":
            return _open_agent(file, folder, surroundings, provider)
        case "environment":
            from livery.entrypoints.environment_server.composition import (
                open_environment_server,
            )

            return open_environment_server(file, folder, surroundings)
        case _:
            return _open_resources(file, folder, surroundings, world, provider)


@asynccontextmanager
async def _open_agent(
    file: SettingsFile,
    folder: StateFolder,
    surroundings: Surroundings,
    lender: SandboxProvider | None,
) -> AsyncGenerator[Served]:
    from livery.entrypoints.agent_server.composition import open_agent_routes

    settings = file.settings.agent_server
    async with open_agent_routes(file, folder, surroundings, lender=lender) as routes:
        yield Served(
            what="agent sessions",
            host=settings.host,
            port=settings.port,
            routes=routes.routes(),
            drain=routes.served.drain,
            grace_seconds=settings.shutdown_grace_seconds,
        )


@asynccontextmanager
async def _open_resources(
    file: SettingsFile,
    folder: StateFolder,
    surroundings: Surroundings,
    world: World,
    provider: SandboxProvider | None,
) -> AsyncGenerator[Served]:
    from livery.entrypoints.resources_server.composition import open_resources

    settings = file.settings.resources_server
    async with open_resources(
        file, folder, surroundings, world, provider
    ) as application:
        yield Served(
            what="resources sessions",
            host=settings.host,
            port=settings.port,
            routes=application.routes,
            drain=application.served.drain,
            grace_seconds=settings.shutdown_seconds,
        )


if __name__ == "__main__":
    with collected_rarely():
        anyio.run(main, *sys.argv[1:], backend_options=dict(loop_options()))
