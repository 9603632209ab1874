# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the resources server."""

from collections.abc import Mapping
from typing import Final

from ...ports.required.tool_servers import ABOUT, SANDBOX_URL
from ..http_serving.bodies import Schema
from ..http_serving.openapi import (
    BYTES,
    ERROR,
    KEY,
    Document,
    document_of,
    got,
    in_path,
    named,
    posted,
)
from .bodies import AGGREGATE, CALL, CLOSE, SEED, VERIFY
from .documentation import API, FILES, MCP

_ANY: Final[Schema] = {"anyOf": [{"type": "object"}, {"type": "null"}]}
_SEEDED: Final[Schema] = {
    "type": "object",
    "properties": {
        "resources_session_id": {"type": "string"},
        "resources_tools": _ANY,
        "sandbox_access": _ANY,
    },
    "required": ["resources_session_id", "resources_tools", "sandbox_access"],
    "additionalProperties": False,
}
_CLOSED: Final[Schema] = {
    "type": "object",
    "properties": {"resources_session_id": {"type": "string"}},
    "required": ["resources_session_id"],
    "additionalProperties": False,
}
_VERDICT: Final[Schema] = {
    "type": "object",
    "properties": {
        "responses_create_params": {"type": "object"},
        "response": {"type": "object"},
        "reward": {"type": "number"},
        "mask_sample": {"type": "boolean"},
        "failure_kind": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "failure_reason": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["responses_create_params", "response", "reward", "mask_sample"],
}
_METRICS: Final[Schema] = {
    "type": "object",
    "properties": {
        "group_level_metrics": {"type": "array"},
        "agent_metrics": {"type": "object"},
        "key_metrics": {"type": "object"},
        "repeat_level_metrics": {"type": "array"},
    },
    "required": ["group_level_metrics", "agent_metrics", "key_metrics"],
}
_STATE: Final[Schema] = {
    "type": "object",
    "properties": {"complete": {"type": "boolean"}, "revision": {"type": "integer"}},
    "required": ["complete", "revision"],
}
_SAVED: Final[Schema] = {
    "type": "object",
    "properties": {"saved": {"type": "array", "items": {"type": "string"}}},
    "required": ["saved"],
}
_TOLD: Final[Schema] = {"description": "What the app tells."}
_NO_TOKEN: Final[Mapping[int, Schema]] = {401: ERROR}
_ENDED: Final[Mapping[int, Schema]] = {**_NO_TOKEN, 409: ERROR}
_PATH: Final = in_path("path", "Where the file is in the workspace.")


def document(sandbox_url: str, *, measured: bool, over_mcp: bool) -> Document:
    """Return the document; `sandbox_url` is for agents whose relays lead there."""
    conflict: Schema = {"type": "object"}
    paths: Document = {
        "/seed_session": {"post": posted("Build a session's world.", SEED, _SEEDED)},
        "/verify": {"post": posted("Grade the session, once.", VERIFY, _VERDICT)},
        "/close_session": {"post": posted("End the session.", CLOSE, _CLOSED)},
        "/aggregate_metrics": {
            "post": posted("Sum results up.", AGGREGATE, _METRICS),
        },
        "/task_state": {
            "get": got(
                "Tell what the last finished tool call left.",
                {200: _STATE, 403: conflict, 409: conflict},
            )
        },
        "/reverify_mode": {
            "get": got(
                "Tell whether an answer can be graded without its session.",
                {200: {"type": "string"}, 403: conflict},
            )
        },
    }
    keyed = {
        f"/ng-rollout/{{key}}{path}": {
            method: named(operation, KEY) for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }
    made = document_of(
        "Livery resources server",
        {**paths, **keyed, **_for_agents(), **(_over_mcp() if over_mcp else {})},
        measured=measured,
    )
    return {**made, "info": {**made["info"], ABOUT: {SANDBOX_URL: sandbox_url}}}


def _for_agents() -> Document:
    """Return what is for who shows a session's token."""
    documented = got("Tell which endpoints there are.", {200: _ANY, **_ENDED})
    called = posted("Call an app.", CALL, _TOLD, _NO_TOKEN)
    read = got(
        "Read a file.", {200: {}, **_ENDED, 422: ERROR, 502: ERROR}, told_as=BYTES
    )
    saved = posted("Save a file.", {}, _SAVED, _NO_TOKEN, body_as=BYTES)
    direct = posted("Call a tool, by token or cookie.", CALL, _TOLD, _NO_TOKEN)
    app = in_path("app", "The app.")
    action = in_path("action", "What it is to do.")
    return {
        API: {"get": documented},
        f"{API}/{{app}}/{{action}}": {"post": named(called, app, action)},
        f"{FILES}/{{path}}": {"get": named(read, _PATH), "put": named(saved, _PATH)},
        "/{tool}": {"post": named(direct, in_path("tool", "The tool's name."))},
    }


def _over_mcp() -> Document:
    """Return what is there where a world has apps."""
    asked: Schema = {"type": "object", "description": "A message of JSON-RPC."}
    more: Mapping[int, Schema] = {202: {}, 406: asked, **_NO_TOKEN}
    return {MCP: {"post": posted("Speak MCP, without a session.", asked, asked, more)}}
