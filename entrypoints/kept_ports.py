# SPDX-License-Identifier: Apache-2.0
"""Free ports that a state folder keeps: one is chosen once, and taken again.

The address of a session's tools is part of what it was seeded with, so a server that
came back on another port could not go on with the sessions of the one before it. Which
of several servers has a port is for the kernel to say; each keeps its own.
"""

import logging
import os
import socket
from pathlib import Path
from typing import Final

from .http_serving.serving import AddressTaken, listen
from .state_folder import FILE_MODE, StateFolder, StateFolderUnusable

KEPT_MAX: Final = 16
"""How many ports are kept for one name: of servers at once, and of times one was taken."""
FILE_BYTES_MAX: Final = 4096
PORT_MAX: Final = 65535

log = logging.getLogger(__name__)


def listen_as_before(
    state: StateFolder, name: str, host: str, port: int
) -> socket.socket:
    """Return a socket that listens; port 0 takes the free one that `name` had before.

    Where others have all those by now, another one is taken, and kept as well.

    Raises:
        AddressTaken: It cannot be had.
        StateFolderUnusable: What the folder keeps cannot be read or written.
    """
    if port:
        return listen(host, port)
    path = state.path / f"{name}-ports"
    try:
        kept = _kept(path)
        listening = _first_free(host, kept)
        if listening is None:
            listening = listen(host, 0)
            if len(kept) < KEPT_MAX:
                _keep(path, listening)
    except OSError as error:
        reason = f"its file {path.name}: {error.strerror or error}"
        raise StateFolderUnusable(str(state.path), reason) from error
    taken = int(listening.getsockname()[1])
    if kept and taken != kept[0]:
        log.warning(
            "Port %d, which %s had before, is taken: port %d is used. Episodes that a"
            " killed server left there are refused when they are asked for again, as"
            " their tools have another address. Several servers on one state folder"
            " have one port each; a port in the settings is always the same.",
            *(kept[0], name, taken),
        )
    return listening


def _first_free(host: str, ports: tuple[int, ...]) -> socket.socket | None:
    for port in ports:
        try:
            return listen(host, port)
        except AddressTaken:
            continue
    return None


def _kept(path: Path) -> tuple[int, ...]:
    """Return the ports of the file; a line that is none was cut off, and holds nothing."""
    try:
        with path.open(errors="replace") as file:
            lines = file.read(FILE_BYTES_MAX).splitlines()
    except FileNotFoundError:
        return ()
    ports = (int(line) for line in lines if line.isascii() and line.isdigit())
    return tuple(port for port in ports if 0 < port <= PORT_MAX)[:KEPT_MAX]


def _keep(path: Path, listening: socket.socket) -> None:
    """Add the port in one write, which does not mix with that of another server."""
    port = listening.getsockname()[1]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            os.write(descriptor, f"{port}\n".encode())
        finally:
            os.close(descriptor)
    except OSError:
        listening.close()
        raise
