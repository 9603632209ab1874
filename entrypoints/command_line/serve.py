# SPDX-License-Identifier: Apache-2.0
"""`livery serve`: the servers of NeMo Gym's session protocol."""

import os
import threading
from pathlib import Path
from typing import Final

import anyio
import click

from ..plug_ins import ExtraMissing, Surroundings
from ..settings_reading import SettingsFile
from ..state_folder import open_state_folder
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

OVERTIME_SECONDS: Final = 0.7
"""What ending may take beyond its grace before the process is ended as it stands."""


@click.group()
def serve() -> None:
    """Serve over HTTP."""


@serve.command("agent")
@config_option
@state_option
@click.pass_obj
def serve_agent(shared: Shared, config: Path | None, state: Path | None) -> int:
    """Serve agent sessions, as [agent_server] of the settings says.

    A signal ends it in order: what runs is ended, every sandbox is given back.
    """
    file = settings_of(config)
    with logging_as(file, shared):
        return anyio.run(_serve, shared, file, state_of(state, file.settings))


async def _serve(shared: Shared, file: SettingsFile, state: Path) -> int:
    try:
        # The libraries of the server come with an extra of the distribution.
        from ..agent_server.composition import open_agent_routes
        from ..http_serving.answering import to_application
        from ..http_serving.serving import address_of, listen, serve_until
    except ModuleNotFoundError as missing:
        raise ExtraMissing("server", "agent", str(missing.name), "server") from missing
    settings = file.settings.agent_server
    surroundings = Surroundings(name="agent", state=state, secrets=shared.secrets)
    stop = anyio.Event()
    grace = settings.shutdown_grace_seconds
    last = threading.Timer(grace + OVERTIME_SECONDS, _end_as_it_stands, (shared,))
    last.daemon = True

    def end() -> None:
        last.start()
        stop.set()

    async with anyio.create_task_group() as group:
        await group.start(Interruptions(say=shared.say, stop=end).watch)
        try:
            async with open_agent_routes(
                file, open_state_folder(state), surroundings
            ) as routes:
                listening = listen(settings.host, settings.port)
                shared.say(f"Serving agent sessions at {address_of(listening)}")
                await serve_until(
                    to_application(routes.routes()),
                    listening,
                    stop,
                    routes.served.drain,
                    grace_seconds=grace,
                )
        finally:
            last.cancel()
        group.cancel_scope.cancel()
    return Status.GRADED


def _end_as_it_stands(shared: Shared) -> None:
    shared.say(
        "The grace is over and something is left. `livery claims list` names it,"
        " `livery claims reap` gives it back."
    )
    os._exit(Status.LEFT)
