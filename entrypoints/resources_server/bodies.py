# SPDX-License-Identifier: Apache-2.0
"""The bodies of the resources server's routes."""

from typing import Final

from ..http_serving.bodies import EPISODE, ID, TASK, Schema, object_of

SEED: Final[Schema] = object_of(
    {
        "resources_session_id": ID,
        "episode_id": EPISODE,
        "task_id": TASK,
        "task_data": {"type": "object"},
    }
)
CLOSE: Final[Schema] = object_of({"resources_session_id": ID, "episode_id": EPISODE})
VERIFY: Final[Schema] = {
    "type": "object",
    "description": "The fields of the task's data lie beside these two.",
    "properties": {
        "responses_create_params": {"type": "object"},
        "response": {"type": "object"},
    },
    "required": ["responses_create_params", "response"],
}
AGGREGATE: Final[Schema] = {
    "type": "object",
    "properties": {"verify_responses": {"type": "array", "items": {"type": "object"}}},
    "required": ["verify_responses"],
}
CALL: Final[Schema] = {
    "type": "object",
    "description": "The tool's arguments; what it takes stands at /api.",
}
