# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the environment server."""

from typing import Final

from ..http_serving.bodies import Schema
from ..http_serving.openapi import Document, document_of, posted
from .messages import AGGREGATE, RUN

_FAILURE: Final[Schema] = {
    "type": "object",
    "properties": {
        "failure_reason": {"type": "string", "maxLength": 2000},
        "terminal": {"type": "boolean"},
        "failure_kind": {"type": "string"},
        "stage": {"type": "string"},
        "partial_response": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    },
    "required": ["failure_reason", "terminal", "partial_response"],
}
_NAMED: Final[Schema] = {"type": "object"}
_ROW: Final[Schema] = {
    "type": "object",
    "description": "Exactly one of result and failure is set.",
    "properties": {
        "episode_id": _NAMED,
        "task_id": _NAMED,
        "result": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "failure": {"anyOf": [_FAILURE, {"type": "null"}]},
    },
    "required": ["episode_id", "task_id", "result", "failure"],
    "additionalProperties": False,
}
_METRICS: Final[Schema] = {
    "type": "object",
    "description": "What the resources server answers.",
}


def document(*, measured: bool) -> Document:
    """Return the document."""
    return document_of(
        "Livery environment server",
        {
            "/run": {"post": posted("Run an episode to its end.", RUN, _ROW)},
            "/aggregate_metrics": {
                "post": posted("Aggregate graded rows.", AGGREGATE, _METRICS)
            },
        },
        measured=measured,
    )
