# SPDX-License-Identifier: Apache-2.0
"""The agent server as an ASGI application, for whatever server runs it.

`livery.entrypoints.agent_server.asgi:application` reads `livery.toml` of the working
folder, or the file that `LIVERY_CONFIG` names; `LIVERY_STATE` names the state folder.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette

from ...ports.provided.secret_values import SecretValues
from ..http_serving.answering import to_application
from ..plug_ins import Surroundings
from ..settings_reading import FILE_NAME, SettingsFile, read_settings
from ..state_folder import open_state_folder, state_path
from .composition import open_agent_routes

CONFIG_VARIABLE: Final = "LIVERY_CONFIG"
STATE_VARIABLE: Final = "LIVERY_STATE"


def agent_application(file: SettingsFile, state: Path) -> Starlette:
    """Return the application; what it stands on is opened by its lifespan."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        secrets = SecretValues()
        surroundings = Surroundings(name="agent", state=state, secrets=secrets)
        folder = open_state_folder(state)
        async with open_agent_routes(file, folder, surroundings) as routes:
            app.router.routes.extend(routes.routes())
            yield

    return to_application((), lifespan=lifespan)


def application() -> Starlette:
    """Return the application that the environment describes: a factory for servers.

    Raises:
        SettingsRefused: With every mistake.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or FILE_NAME)
    file = read_settings(path) if named or path.exists() else SettingsFile()
    chosen = os.environ.get(STATE_VARIABLE) or file.settings.state.folder
    return agent_application(file, state_path(chosen))
