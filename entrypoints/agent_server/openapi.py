# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document: the bodies that are checked, and every status that is answered."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any, Final

from ..http_statuses import STATUSES
from .bodies import ACTIVATE, CLOSE, SEED, Schema

Document = dict[str, Any]
"""JSON of a shape that OpenAPI defines."""

_ERROR: Final[Schema] = {
    "type": "object",
    "properties": {
        "detail": {"type": "string"},
        "kind": {"type": "string", "description": "A stable code."},
        "state": {"type": "string", "description": "Where the session stands."},
        "reason": {"type": "string"},
    },
    "required": ["detail"],
}
_MISTAKES: Final[Schema] = {
    "type": "object",
    "properties": {
        "detail": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "type": {"type": "string"},
                            "loc": {"type": "array"},
                            "msg": {"type": "string"},
                            "input": {},
                        },
                        "required": ["type", "loc", "msg", "input"],
                    },
                },
            ]
        },
        "kind": {"type": "string"},
    },
    "required": ["detail"],
}
_SEEDED: Final[Schema] = {
    "type": "object",
    "properties": {"agent_session_id": {"type": "string"}},
    "required": ["agent_session_id"],
    "additionalProperties": False,
}
_CLOSED: Final[Schema] = {
    "type": "object",
    "properties": {
        "agent_session_id": {"type": "string"},
        "agent_observations": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "resources_cookies": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    },
    "required": ["agent_session_id", "agent_observations", "resources_cookies"],
    "additionalProperties": False,
}
_RESPONSE: Final[Schema] = {
    "type": "object",
    "description": "A Responses object; the same bytes each time.",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "output": {"type": "array"},
    },
    "required": ["id", "object", "output"],
}
_STATUS: Final[Schema] = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
}
_TRANSPORT: Final = (408, 413)
"""What a body comes to that is too slow or too long."""
_KEY: Final[Schema] = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The rollout's name, which this server does not need.",
    "schema": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9._-]+$"},
}


def document() -> Document:
    """Return the document."""
    activate = _posted("Run the harness once for this request.", ACTIVATE, _RESPONSE)
    keyed = {**activate, "parameters": [_KEY]}
    alive = {"get": _got("Tell that the server is there.", {200: _STATUS})}
    ready = _got("Tell whether sessions are taken.", {200: _STATUS, 503: _STATUS})
    anything = {200: {"type": "object"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Livery agent server",
            "version": importlib.metadata.version("livery"),
        },
        "paths": {
            "/v1/agent_sessions": {"post": _posted("Seed a session.", SEED, _SEEDED)},
            "/v1/agent_sessions/close": {
                "post": _posted("Close a session.", CLOSE, _CLOSED)
            },
            "/v1/responses": {"post": activate},
            "/ng-rollout/{key}/v1/responses": {"post": keyed},
            "/ng-rollout/{key}/training-token-capture/v1/responses": {"post": keyed},
            **dict.fromkeys(("/", "/health", "/healthz", "/livez"), alive),
            "/readyz": {"get": ready},
            "/openapi.json": {"get": _got("Return this document.", anything)},
        },
    }


def _posted(summary: str, body: Schema, told: Schema) -> Document:
    failures = {
        status: _MISTAKES if status == 422 else _ERROR
        for status in sorted({*STATUSES.values(), *_TRANSPORT})
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": _responses({200: told, **failures}),
    }


def _got(summary: str, told: Mapping[int, Schema]) -> Document:
    return {"summary": summary, "responses": _responses(told)}


def _responses(told: Mapping[int, Schema]) -> Document:
    return {
        str(status): {"description": str(status), "content": _json(schema)}
        for status, schema in told.items()
    }


def _json(schema: Schema) -> Document:
    return {"application/json": {"schema": schema}}
