# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document: the bodies that are checked, and every status that is answered."""

from typing import Final

from ...adapters.gym_servers.wire_names import AboutAgent
from ...ports.required.tool_servers import ABOUT
from ..http_serving.bodies import Schema
from ..http_serving.openapi import KEY, Document, document_of, named, posted
from .bodies import ACTIVATE, CLOSE, SEED

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


def document(about: AboutAgent, *, measured: bool) -> Document:
    """Return the document; `about` is for environments, which need not be told then."""
    activate = posted("Run the harness once for this request.", ACTIVATE, _RESPONSE)
    keyed = named(activate, KEY)
    made = document_of(
        "Livery agent server",
        {
            "/v1/agent_sessions": {"post": posted("Seed a session.", SEED, _SEEDED)},
            "/v1/agent_sessions/close": {
                "post": posted("Close a session.", CLOSE, _CLOSED)
            },
            "/v1/responses": {"post": activate},
            "/ng-rollout/{key}/v1/responses": {"post": keyed},
            "/ng-rollout/{key}/training-token-capture/v1/responses": {"post": keyed},
        },
        measured=measured,
    )
    told = {"concurrency": about.concurrency, "stepwise": about.stepwise}
    return {**made, "info": {**made["info"], ABOUT: told}}
