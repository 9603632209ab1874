# SPDX-License-Identifier: Apache-2.0
"""How a harness in a sandbox reaches its model without a real credential.

What was seen of each call is evidence for how a run came out: a model that could
not be had is the infrastructure's, a prompt that is too long for it is not.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import attrs

from ...domain.agent_sessions import AgentSessionId
from ...domain.deciders import Instant
from .artifact_store import Shelf


class CallEnd(StrEnum):
    """How a call to the model came out."""

    ANSWERED = "answered"
    CONTEXT_LENGTH = "context length"
    """The model's window is too small for the prompt."""
    REQUEST_REFUSED = "request refused"
    """The upstream does not take the request as it is."""
    NOT_FORWARDED = "not forwarded"
    """We did not pass it on: malformed, no model path, or beyond a bound."""
    CALLER_GONE = "caller gone"
    CREDENTIAL_REFUSED = "credential refused"
    THROTTLED = "throttled"
    UPSTREAM_FAILED = "upstream failed"
    UNREACHABLE = "unreachable"
    CUT = "cut"
    """The answer ended before its end."""
    SILENT = "silent"
    """Nothing came for as long as is waited."""

    @property
    def is_infrastructure(self) -> bool:
        """Whether neither the harness nor its model can help it."""
        return self in _INFRASTRUCTURE


_INFRASTRUCTURE = frozenset(
    {
        CallEnd.CREDENTIAL_REFUSED,
        CallEnd.THROTTLED,
        CallEnd.UPSTREAM_FAILED,
        CallEnd.UNREACHABLE,
        CallEnd.CUT,
        CallEnd.SILENT,
    }
)


@attrs.frozen(kw_only=True)
class ModelGrant:
    """What a sandbox is given: an address and a placeholder."""

    base_url: str
    placeholder: str = attrs.field(repr=False)
    """A credential that is good for this session alone."""


@attrs.frozen(kw_only=True)
class ModelCall:
    """One call to the model, as the gateway saw it."""

    number: int
    """Counted from 1 within the session."""
    at: Instant
    method: str
    path: str
    """Without its query."""
    model: str = ""
    is_streamed: bool = False
    status: int = 0
    """What the caller was answered; 0 when it was answered nothing."""
    end: CallEnd
    reason: str = ""
    usage: Mapping[str, int] = attrs.field(factory=dict[str, int])
    first_token_seconds: float | None = None
    seconds: float = 0.0
    request_bytes: int = 0
    response_bytes: int = 0
    body_dropped: int = 0
    """How many bytes of the answer are not in its artifact, where one is kept."""
    thread: str = ""
    """The same for the calls of one conversation, as far as it can be known."""
    is_side: bool = False
    """Whether it is seen not to belong to the main conversation."""


@attrs.frozen(kw_only=True)
class ModelRecord:
    """What the gateway saw of a session's calls to its model."""

    calls: int
    failures: int
    """Those that are the infrastructure's."""
    last_failure: str = ""
    usage: Mapping[str, int] = attrs.field(factory=dict[str, int])
    context_refusals: int = 0
    """Prompts that were too long for the model: not the infrastructure's."""
    entries: tuple[ModelCall, ...] = ()
    """The calls that are over, in the order of their ends."""
    entries_dropped: int = 0
    """How many of the first are not in `entries`; they are counted above."""


class ModelAccess(Protocol):
    """Grants and revokes access to the model, one session at a time."""

    async def grant(
        self,
        session: AgentSessionId,
        *,
        prefix: str = "",
        shelf: Shelf | None = None,
    ) -> ModelGrant:
        """Return the session's address and placeholder, the same when asked again.

        Also after a restart. `prefix` goes before the model's paths, as a model
        server of NeMo Gym wants it; the last one asked for counts. Where bodies are
        kept, they are put on `shelf`.
        """
        ...

    def seen(self, session: AgentSessionId) -> ModelRecord:
        """Return what was seen until now."""
        ...

    async def revoke(self, session: AgentSessionId) -> ModelRecord:
        """End the access and what runs of it, and return what was seen of it."""
        ...
