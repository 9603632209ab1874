# SPDX-License-Identifier: Apache-2.0
"""The files that a run is given: settings and tool servers, for its user alone.

Headers of tool servers are in a file of mode 0600 and nowhere else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import attrs

from ....domain.digests import Json
from ....ports.required.harness import ToolAccess, ToolTransport

HOST_FILE_BYTES_MAX: Final = 4 * 1024 * 1024

_SETTINGS: Final[Mapping[str, Json]] = {
    "attribution": {"commit": "", "pr": ""},
    "includeCoAuthoredBy": False,
    "env": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
}
"""Of ours: a user's own go over them, `env` name by name."""
_SERVERS: Final = "mcpServers"


@attrs.frozen
class HostFileRefused(Exception):
    """A file of this host that the configuration names is not what it should be."""

    option: str
    reason: str


def settings_text(path: str | None) -> bytes:
    """Return the settings, with those of the host's file `path` laid over ours.

    Raises:
        HostFileRefused: The file is no JSON object.
    """
    own = {} if path is None else _read("settings", path)
    merged = {**_SETTINGS, **own}
    ours, theirs = _SETTINGS["env"], own.get("env", {})
    if not isinstance(theirs, Mapping):
        raise HostFileRefused("settings", f"{path}: env must be an object")
    assert isinstance(ours, Mapping), "it is one"
    merged["env"] = {**ours, **theirs}
    return json.dumps(merged).encode()


def servers_text(path: str | None, granted: tuple[ToolAccess, ...]) -> bytes | None:
    """Return the tool servers, a granted one over the file's of the same name.

    None when there are none.

    Raises:
        HostFileRefused: The file is no JSON object with `mcpServers`.
    """
    servers: dict[str, Json] = {}
    if path is not None:
        configured = _read("mcp_config", path).get(_SERVERS)
        if not isinstance(configured, Mapping):
            raise HostFileRefused("mcp_config", f"{path}: {_SERVERS} must be an object")
        servers |= configured
    for access in granted:
        if access.transport is ToolTransport.MCP:
            servers[access.name] = {
                "type": "http",
                "url": access.url,
                "headers": dict(access.headers),
            }
    return json.dumps({_SERVERS: servers}).encode() if servers else None


def _read(option: str, path: str) -> dict[str, Json]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(HOST_FILE_BYTES_MAX + 1)
    except OSError as fault:
        raise HostFileRefused(option, f"{path}: {fault.strerror}") from fault
    if len(content) > HOST_FILE_BYTES_MAX:
        raise HostFileRefused(option, f"{path} is over {HOST_FILE_BYTES_MAX} bytes")
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        raise HostFileRefused(option, f"{path} is no JSON") from None
    if not isinstance(found, dict):
        raise HostFileRefused(option, f"{path} is no JSON object")
    return cast("dict[str, Json]", found)  # JSON knows text keys alone
