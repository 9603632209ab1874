# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the resources server."""

from typing import Final

from ...ports.required.tool_servers import ABOUT, SANDBOX_URL
from ..http_serving.bodies import Schema
from ..http_serving.openapi import Document, document_of, got, posted
from .bodies import AGGREGATE, CLOSE, SEED, VERIFY

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
_KEY: Final[Schema] = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The rollout's name, which this server does not need.",
    "schema": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9._-]+$"},
}


def document(sandbox_url: str) -> Document:
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
            method: {**operation, "parameters": [_KEY]}
            for method, operation in operations.items()
        }
        for path, operations in paths.items()
    }
    made = document_of("Livery resources server", {**paths, **keyed})
    return {**made, "info": {**made["info"], ABOUT: {SANDBOX_URL: sandbox_url}}}
