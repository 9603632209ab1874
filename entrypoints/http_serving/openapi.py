# SPDX-License-Identifier: Apache-2.0
"""What the OpenAPI documents of the servers share: every status that is answered."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any, Final

from ..http_statuses import STATUSES
from ..metrics_page import PATH as METRICS_PATH
from .answering import HEALTH_PATHS, READY_PATH
from .bodies import Schema
from .browsers import FORBIDDEN

Document = dict[str, Any]
"""JSON of a shape that OpenAPI defines."""

ERROR: Final[Schema] = {
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
JSON: Final = "application/json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"

_REFUSED: Final = 400
"""What has this status or more is told as JSON, whatever was asked for."""
_TRANSPORT: Final = (408, 413)
"""What a body comes to that is too slow or too long."""


_NOTHING: Final[Mapping[int, Schema]] = {}


def document_of(title: str, paths: Document, *, measured: bool) -> Document:
    """Return the document of a server: its own paths and those that all have.

    One that is `measured` tells what it has done at `/metrics`.
    """
    alive = {"get": got("Tell that the server is there.", {200: STATUS})}
    ready = got("Tell whether new work is taken.", {200: STATUS, 503: STATUS})
    anything: Mapping[int, Schema] = {200: {"type": "object"}}
    page = got(
        "Tell what was done and what stands open, as Prometheus reads it.",
        {200: {"type": "string"}},
        told_as=TEXT,
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": importlib.metadata.version("livery")},
        "paths": {
            **paths,
            **dict.fromkeys(HEALTH_PATHS, alive),
            READY_PATH: {"get": ready},
            **({METRICS_PATH: {"get": page}} if measured else {}),
            "/openapi.json": {"get": got("Return this document.", anything)},
        },
    }


def posted(
    summary: str,
    body: Schema,
    told: Schema,
    more: Mapping[int, Schema] = _NOTHING,
    *,
    body_as: str = JSON,
) -> Document:
    """Return the operation of a request with a body; `more` is answered besides."""
    failures = {
        status: _MISTAKES if status == 422 else ERROR
        for status in sorted({*STATUSES.values(), *_TRANSPORT, FORBIDDEN})
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _content(body, body_as)},
        "responses": _responses({200: told, **failures, **more}),
    }


def got(summary: str, told: Mapping[int, Schema], *, told_as: str = JSON) -> Document:
    """Return the operation of a GET, with all that it answers."""
    responses = _responses({FORBIDDEN: ERROR, **told}, told_as)
    return {"summary": summary, "responses": responses}


def named(operation: Document, *names: Document) -> Document:
    """Return an operation on a path that has names in it."""
    return {**operation, "parameters": list(names)}


def in_path(name: str, description: str, **schema: Any) -> Document:
    """Return a name that stands in a path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1, **schema},
    }


KEY: Final = in_path(
    "key",
    "The rollout's name, which this server does not need.",
    pattern="^[A-Za-z0-9._-]+$",
)


def _responses(told: Mapping[int, Schema], told_as: str = JSON) -> Document:
    return {
        str(status): {
            "description": str(status),
            "content": _content(schema, told_as if status < _REFUSED else JSON),
        }
        for status, schema in told.items()
    }


def _content(schema: Schema, media_type: str) -> Document:
    return {media_type: {"schema": schema}}
