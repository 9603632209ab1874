# SPDX-License-Identifier: Apache-2.0
"""What the OpenAPI documents of the servers share: every status that is answered."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any, Final

from ..http_statuses import STATUSES
from .answering import HEALTH_PATHS, READY_PATH
from .bodies import Schema
from .browsers import FORBIDDEN

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
STATUS: Final[Schema] = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
}
_TRANSPORT: Final = (408, 413)
"""What a body comes to that is too slow or too long."""


def document_of(title: str, paths: Document) -> Document:
    """Return the document of a server: its own paths and those that all have."""
    alive = {"get": got("Tell that the server is there.", {200: STATUS})}
    ready = got("Tell whether new work is taken.", {200: STATUS, 503: STATUS})
    anything: Mapping[int, Schema] = {200: {"type": "object"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": importlib.metadata.version("livery")},
        "paths": {
            **paths,
            **dict.fromkeys(HEALTH_PATHS, alive),
            READY_PATH: {"get": ready},
            "/openapi.json": {"get": got("Return this document.", anything)},
        },
    }


def posted(summary: str, body: Schema, told: Schema) -> Document:
    """Return the operation of a POST with a body."""
    failures = {
        status: _MISTAKES if status == 422 else _ERROR
        for status in sorted({*STATUSES.values(), *_TRANSPORT, FORBIDDEN})
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": _responses({200: told, **failures}),
    }


def got(summary: str, told: Mapping[int, Schema]) -> Document:
    """Return the operation of a GET, with all that it answers."""
    return {"summary": summary, "responses": _responses({FORBIDDEN: _ERROR, **told})}


def _responses(told: Mapping[int, Schema]) -> Document:
    return {
        str(status): {"description": str(status), "content": _json(schema)}
        for status, schema in told.items()
    }


def _json(schema: Schema) -> Document:
    return {"application/json": {"schema": schema}}
