# SPDX-License-Identifier: Apache-2.0
"""Serving the gateway from this process, on an address of its own."""

import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework
from starlette.applications import Starlette

from ..http_connections.body_ends import read_to_the_end
from ..http_connections.connections import BACKLOG, serve_connections

GRACE_SECONDS: Final = 2.0
"""How long calls under way may go on once the gateway shuts down."""
IDLE_SECONDS: Final = 75.0
"""Longer than callers keep an idle connection, so none is closed in their hands."""

_log = logging.getLogger(__name__)


def listening(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a socket that listens, for `serving` to own.

    Raises:
        OSError: The address is taken, or is not this host's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


@asynccontextmanager
async def serving(app: Starlette, listener: socket.socket) -> AsyncGenerator[int]:
    """Serve until the block is left; yield the port."""
    found: int = listener.getsockname()[1]
    shut_down = anyio.Event()
    config = Config()
    config.keep_alive_timeout = IDLE_SECONDS
    config.include_date_header = False  # The upstream's own is passed on.
    config.include_server_header = False
    config.h11_pass_raw_headers = True
    config.accesslog = None
    config.errorlog = _log
    raised: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, app, config, listener, shut_down)
        try:
            yield found
        except Exception as fault:
            raised = fault  # Raised below: from in here it would come in a group.
        finally:
            shut_down.set()
    if raised is not None:
        raise raised


async def _serve(
    app: Starlette, config: Config, listener: socket.socket, shut_down: anyio.Event
) -> None:
    # Shielded: it ends by its own grace, and closes what it has open.
    with anyio.CancelScope(shield=True) as scope:

        async def until_shut_down() -> None:
            await shut_down.wait()
            scope.deadline = anyio.current_time() + GRACE_SECONDS

        # Both speak ASGI, and each has its own words for its types.
        framework = cast("ASGIFramework", read_to_the_end(app))
        await serve_connections(framework, config, listener, until_shut_down)
