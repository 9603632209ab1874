# SPDX-License-Identifier: Apache-2.0
"""The bodies of the agent server's routes."""

from typing import Final

from ..http_serving.bodies import (
    ACCESS,
    EPISODE,
    ID,
    NAME,
    TASK,
    TEXTS,
    Schema,
    object_of,
)

_URL: Final[Schema] = {"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#]"}
"""Tools are called over HTTP; whoever looks at them opens nothing else."""
_DIRECT_HTTP: Final = object_of(
    {
        "kind": {"const": "direct_http"},
        "name": NAME,
        "required": {"type": "boolean"},
        "base_url": _URL,
    },
    cookies=TEXTS,
    headers=TEXTS,
)
_MCP: Final = object_of(
    {
        "kind": {"const": "mcp"},
        "name": NAME,
        "required": {"type": "boolean"},
        "connection": object_of(
            {"url": _URL},
            transport={"const": "streamable_http", "default": "streamable_http"},
            headers=TEXTS,
        ),
    }
)
SEED: Final[Schema] = object_of(
    {
        "agent_session_id": ID,
        "episode_id": EPISODE,
        "task_id": TASK,
    },
    tool_accesses={
        "type": "array",
        "items": {
            "oneOf": [_DIRECT_HTTP, _MCP],
            "discriminator": {"propertyName": "kind"},
        },
    },
    sandbox_access={"anyOf": [ACCESS, {"type": "null"}], "default": None},
)
CLOSE: Final[Schema] = object_of({"agent_session_id": ID, "episode_id": EPISODE})
ACTIVATE: Final[Schema] = {
    "type": "object",
    "description": "A request in the form of OpenAI's Responses API. What else of it"
    " is honoured, the harness says; the rest is refused, never dropped.",
    "properties": {"input": {"anyOf": [{"type": "string"}, {"type": "array"}]}},
    "required": ["input"],
}
