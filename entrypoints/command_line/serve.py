# SPDX-License-Identifier: Apache-2.0
"""`livery serve`: the servers of NeMo Gym's session protocol."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click

from ..collector import collected_rarely
from ..event_loop import loop_options
from ..plug_ins import ExtraMissing, Surroundings
from ..settings_reading import SettingsFile
from ..state_folder import StateFolder, open_state_folder
from .interruptions import Interruptions
from .shared import (
    Shared,
    Status,
    config_option,
    logging_as,
    settings_of,
    state_of,
    state_option,
)
from .workers import WORKERS_MAX, Workers, inherited, say_ready, until_left

if TYPE_CHECKING:
    from ..all_servers import Listening
    from ..http_serving.serving import Served

Opener = Callable[
    [SettingsFile, StateFolder, Surroundings], AbstractAsyncContextManager["Served"]
]

OVERTIME_SECONDS: Final = 0.7
"""What ending may take beyond its grace before the process is ended as it stands."""


workers_option = click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    metavar="N",
    help="So many processes serve the address; one that dies is followed by another.",
)
worker_option = click.option("--worker", type=int, hidden=True)
"""For a worker: the descriptor of the socket to serve."""
part_option = click.option("--part", type=click.Path(path_type=Path), hidden=True)
"""For a worker: the socket at which it tells the others what it has done."""


@click.group()
def serve() -> None:
    """Serve over HTTP."""


@serve.command("agent")
@config_option
@state_option
@workers_option
@worker_option
@part_option
@click.pass_obj
def serve_agent(
    shared: Shared,
    config: Path | None,
    state: Path | None,
    workers: int | None,
    worker: int | None,
    part: Path | None,
) -> int:
    """Serve agent sessions, as [agent_server] of the settings says.

    A signal ends it in order: what runs is ended, every sandbox is given back.
    """
    return _serve("agent", shared, config, state, workers, worker, part)


@serve.command("environment")
@config_option
@state_option
@workers_option
@worker_option
@part_option
@click.pass_obj
def serve_environment(
    shared: Shared,
    config: Path | None,
    state: Path | None,
    workers: int | None,
    worker: int | None,
    part: Path | None,
) -> int:
    """Serve whole episodes, as [environment_server] of the settings says.

    It drives a resources and an agent server, of Livery or of NeMo Gym. A signal ends
    it in order: episodes may finish for a while, the others are ended and cleaned up.
    """
    return _serve("environment", shared, config, state, workers, worker, part)


@serve.command("resources")
@config_option
@state_option
@click.pass_obj
def serve_resources(shared: Shared, config: Path | None, state: Path | None) -> int:
    """Serve task worlds, as [resources_server] of the settings says.

    A signal ends it in order: nothing is made any more, every sandbox is stopped.
    """
    return _serve("resources", shared, config, state)


@serve.command("all")
@config_option
@state_option
@click.pass_obj
def serve_all(shared: Shared, config: Path | None, state: Path | None) -> int:
    """Serve environment, resources and agent in one process.

    Each is served at its own address; behind /run they call each other in the process.
    A signal ends them in order: the episodes first, then sessions and sandboxes.
    """
    file = settings_of(config)
    with logging_as(file, shared):
        folder = state_of(state, file.settings)
        return anyio.run(
            _serving_all, shared, file, folder, backend_options=dict(loop_options())
        )


def _opener(name: str) -> Opener:
    try:
        # The libraries of the servers come with an extra of the distribution.
        match name:
            case "agent":
                from ..agent_server.composition import open_agent_server

                return open_agent_server
            case "resources":
                from ..resources_server.composition import open_resources_server

                return open_resources_server
            case _:
                from ..environment_server.composition import open_environment_server

                return open_environment_server
    except ModuleNotFoundError as missing:
        raise ExtraMissing("server", name, str(missing.name), "server") from missing


def _serve(
    name: str,
    shared: Shared,
    config: Path | None,
    state: Path | None,
    workers: int | None = None,
    worker: int | None = None,
    part: Path | None = None,
) -> int:
    """Serve one server until a signal; the exit status is for the shell."""
    file = settings_of(config)
    with logging_as(file, shared):
        folder = state_of(state, file.settings)
        if workers is None:
            return anyio.run(
                _serving,
                name,
                shared,
                file,
                folder,
                worker,
                part,
                backend_options=dict(loop_options()),
            )
        debug = ["--debug"] if shared.debug else []
        chosen = [] if config is None else ["--config", str(config)]
        words = [*debug, "serve", name, *chosen, "--state", str(folder)]
        return anyio.run(_serving_by, workers, name, shared, file, words)


async def _serving_by(
    count: int, name: str, shared: Shared, file: SettingsFile, words: list[str]
) -> int:
    """Serve one address by several workers."""
    _opener(name)  # What is not installed is told once, and not by each worker.
    from ..http_serving.serving import address_of, listen

    with listen(*_address(name, file)) as listening:
        listening.set_inheritable(True)
        workers = Workers(
            listening=listening,
            words=words,
            count=count,
            grace_seconds=_grace(name, file) + OVERTIME_SECONDS,
            say=shared.say,
        )
        what = "agent sessions" if name == "agent" else "episodes"
        told = f"Serving {what} at {address_of(listening)} by {count} workers"
        status: int = Status.GRADED
        async with anyio.create_task_group() as group:
            signals = Interruptions(say=shared.say, stop=workers.stop)
            await group.start(signals.watch)
            status = await workers.serve(told)
            group.cancel_scope.cancel()
    return status


async def _serving(
    name: str,
    shared: Shared,
    file: SettingsFile,
    state: Path,
    worker: int | None = None,
    part: Path | None = None,
) -> int:
    opener = _opener(name)
    surroundings = Surroundings(name=name, state=state, secrets=shared.secrets)
    stop = anyio.Event()
    last = _last_timer(shared, _grace(name, file))

    def end() -> None:
        if not stop.is_set():
            last.start()
            stop.set()

    async with anyio.create_task_group() as group:
        await group.start(Interruptions(say=shared.say, stop=end).watch)
        try:
            async with opener(file, open_state_folder(state), surroundings) as served:
                if worker is None:
                    listening = _told(shared, served)
                else:
                    listening = inherited(worker)
                    group.start_soon(until_left, end)
                    if part is not None and served.parts is not None:
                        await group.start(served.parts.tell_at, part)
                    say_ready()
                with collected_rarely():
                    await _until(stop, listening, served)
        finally:
            last.cancel()
        group.cancel_scope.cancel()
    return Status.GRADED


async def _serving_all(shared: Shared, file: SettingsFile, state: Path) -> int:
    try:
        from ..all_servers import open_all_servers
        from ..http_serving.serving import address_of
    except ModuleNotFoundError as missing:
        raise ExtraMissing("server", "all", str(missing.name), "server") from missing
    names = ("environment", "agent", "resources")
    surroundings = Surroundings(name="all", state=state, secrets=shared.secrets)
    stop = anyio.Event()
    last = _last_timer(shared, sum(_grace(name, file) for name in names))

    def end() -> None:
        last.start()
        stop.set()

    async with anyio.create_task_group() as group:
        await group.start(Interruptions(say=shared.say, stop=end).watch)
        try:
            async with open_all_servers(
                file, open_state_folder(state), surroundings
            ) as servers:
                for each in servers:
                    address = address_of(each.socket)
                    shared.say(f"Serving {each.served.what} at {address}")
                with collected_rarely():
                    await _one_after_the_other(stop, servers)
        finally:
            last.cancel()
        group.cancel_scope.cancel()
    return Status.GRADED


async def _one_after_the_other(
    stop: anyio.Event, servers: "tuple[Listening, ...]"
) -> None:
    """Serve them all until `stop` is set, then end each when the one before has ended."""
    async with anyio.create_task_group() as group:
        for each in servers:
            over = anyio.Event()
            group.start_soon(_one, each, stop, over)
            stop = over


async def _one(each: "Listening", stop: anyio.Event, over: anyio.Event) -> None:
    from ..http_serving.answering import to_application
    from ..http_serving.serving import serve_until

    served = each.served
    await serve_until(
        to_application(served.routes, without_kind=served.without_kind),
        each.socket,
        stop,
        served.drain,
        grace_seconds=served.grace_seconds,
    )
    over.set()


def _last_timer(shared: Shared, grace_seconds: float) -> threading.Timer:
    last = threading.Timer(
        grace_seconds + OVERTIME_SECONDS, _end_as_it_stands, (shared,)
    )
    last.daemon = True
    return last


def _told(shared: Shared, served: "Served") -> socket.socket:
    """Listen, and say where."""
    from ..http_serving.serving import address_of, listen

    listening = listen(served.host, served.port)
    shared.say(f"Serving {served.what} at {address_of(listening)}")
    return listening


async def _until(stop: anyio.Event, listening: socket.socket, served: "Served") -> None:
    from ..http_serving.answering import to_application
    from ..http_serving.serving import serve_until

    await serve_until(
        to_application(served.routes, without_kind=served.without_kind),
        listening,
        stop,
        served.drain,
        grace_seconds=served.grace_seconds,
    )


def _address(name: str, file: SettingsFile) -> tuple[str, int]:
    settings = file.settings
    if name == "agent":
        return settings.agent_server.host, settings.agent_server.port
    return settings.environment_server.host, settings.environment_server.port


def _grace(name: str, file: SettingsFile) -> float:
    settings = file.settings
    match name:
        case "agent":
            return settings.agent_server.shutdown_grace_seconds
        case "resources":
            return settings.resources_server.shutdown_seconds
        case _:
            return settings.environment_server.shutdown_grace_seconds


def _end_as_it_stands(shared: Shared) -> None:
    shared.say(
        "The grace is over and something is left. `livery claims list` names it,"
        " `livery claims reap` gives it back."
    )
    os._exit(Status.LEFT)
