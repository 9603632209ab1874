# SPDX-License-Identifier: Apache-2.0
"""What the loop did, as the records of an observation bundle."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from ....domain.activations import Outcome
from ....domain.digests import Json
from ..readings import INVOCATION_ID, INVOCATION_STATUS
from .conversation import Answer, Item, given_items

TOOLS_MISSING: Final = "tools_missing"
MODEL_REFERENCE: Final[Mapping[str, Json]] = {
    "type": "responses_api_models",
    "name": "model",
}


@attrs.define
class CallSeen:
    """One tool call."""

    id: str
    name: str
    began: float = attrs.field(factory=time.time)
    ended: float | None = None
    failed: bool = False

    def record(self) -> Mapping[str, Json]:
        """Return its record; a call that never came back is incomplete."""
        ended, status = self.ended, "incomplete"
        if ended is not None:
            status = "failed" if self.failed else "completed"
        return {
            "kind": "tool_call",
            "invocation_id": INVOCATION_ID,
            "tool_call_id": self.id,
            "sandbox_id": None,
            "tool_name": self.name,
            "started_at": self.began,
            "completed_at": ended,
            "duration_ms": None if ended is None else (ended - self.began) * 1000,
            "timing_source": "harness",
            "status": status,
            "error_type": "refused" if self.failed else None,
        }


@attrs.define
class Seen:
    """What was seen of one activation."""

    began: float = attrs.field(factory=time.time)
    answers: list[Answer] = attrs.field(factory=list[Answer])
    calls: list[CallSeen] = attrs.field(factory=list[CallSeen])
    missing: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Tool servers that were not there, each with the reason."""

    @contextmanager
    def calling(self, id: str, name: str) -> Generator[CallSeen]:
        """Note a tool call, which is made inside the block."""
        call = CallSeen(id, name)
        self.calls.append(call)
        yield call
        call.ended = max(time.time(), call.began)

    def records(
        self, outcome: Outcome, parameters: Mapping[str, Json], said: Sequence[Item]
    ) -> tuple[Mapping[str, Json], ...]:
        """Return the invocation and its tool calls."""
        completed = outcome is Outcome.COMPLETED
        invocation: Mapping[str, Json] = {
            "kind": "agent_invocation",
            "invocation_id": INVOCATION_ID,
            "parent_invocation_id": None,
            "spawned_by_tool_call_id": None,
            "status": INVOCATION_STATUS[outcome],
            "duration_ms": max(time.time() - self.began, 0.0) * 1000,
            "error_type": None if completed else outcome.value,
            "model_calls": [
                {
                    "model_call_id": None,
                    "model_ref": dict(MODEL_REFERENCE),
                    "response_id": answer.id,
                }
                for answer in self.answers
                if answer.id
            ],
            "conversation": [dict(item) for item in (*given_items(parameters), *said)],
        }
        return (invocation, *(call.record() for call in self.calls))

    def gaps(self) -> tuple[Mapping[str, Json], ...]:
        """Return what could not be: tool servers that were not there."""
        return tuple(
            {
                "code": TOOLS_MISSING,
                "invocation_id": INVOCATION_ID,
                "detail": f"{name}: {reason}",
            }
            for name, reason in self.missing.items()
        )
