# SPDX-License-Identifier: Apache-2.0
"""What the lifecycle API answers, as values of ours.

Only what is used is read, and what is missing reads as empty: servers differ in
what they leave out. A no comes in four shapes, and all of them are read.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import cast

import attrs

TOLD_CHARACTERS_MAX = 500


class State(StrEnum):
    """The server's words for a sandbox; any other is taken for not known."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    TERMINATED = "terminated"
    FAILED = "failed"
    STOPPING = "stopping"
    OTHER = "other"


@attrs.frozen(kw_only=True)
class SandboxFacts:
    """A sandbox as the server tells it; `Running` speaks of the container alone."""

    sandbox_id: str
    state: State
    word: str
    """The state as it was said."""
    reason: str
    metadata: Mapping[str, str] = attrs.field(repr=False)
    """With the token of its execd among it."""
    created_at: float
    """Unix seconds."""
    expires_at: float | None
    """Unix seconds; None when it never ends itself."""

    @property
    def is_live(self) -> bool:
        """Whether its processes are there, frozen or not."""
        return self.state in {State.RUNNING, State.PAUSED, State.PENDING, State.OTHER}

    @property
    def end_reason(self) -> str:
        """Say how it ended, for one that has."""
        told = f"its sandbox is {self.word}"
        return f"{told}: {self.reason}" if self.reason else told


@attrs.frozen(kw_only=True)
class Page:
    """One page of a list."""

    sandboxes: tuple[SandboxFacts, ...]
    has_next: bool


@attrs.frozen(kw_only=True)
class EndpointFacts:
    """Where a port of a sandbox is reached."""

    address: str
    """Host, port and perhaps a path; with a scheme or without."""
    headers: Mapping[str, str]


@attrs.frozen
class ApiRefused(Exception):
    """The server, or execd, says no; `code` is its own word, empty without one."""

    status: int
    code: str
    text: str

    @property
    def tells_absence(self) -> bool:
        """Whether the server itself says that there is no such sandbox.

        It says so with a code; a 404 of what stands before it has none.
        """
        return self.status == 404 and bool(self.code)

    def __str__(self) -> str:
        told = f"{self.code}: {self.text}" if self.code else self.text
        return told or f"status {self.status} without a word"


def to_sandbox(raw: object) -> SandboxFacts:
    """Read a sandbox."""
    word = _text(raw, "status", "state")
    try:
        state = State(word.lower())
    except ValueError:
        state = State.OTHER
    parts = (_text(raw, "status", "reason"), _text(raw, "status", "message"))
    return SandboxFacts(
        sandbox_id=_text(raw, "id"),
        state=state,
        word=word or "in no state",
        reason=", ".join(part for part in parts if part),
        metadata=_texts(_at(raw, "metadata")),
        created_at=to_seconds(_at(raw, "createdAt")) or 0.0,
        expires_at=to_seconds(_at(raw, "expiresAt")),
    )


def to_page(raw: object) -> Page:
    """Read one page of a list."""
    return Page(
        sandboxes=tuple(to_sandbox(item) for item in _items(_at(raw, "items"))),
        has_next=_at(raw, "pagination", "hasNextPage") is True,
    )


def to_endpoint(raw: object) -> EndpointFacts:
    """Read an endpoint."""
    return EndpointFacts(
        address=_text(raw, "endpoint"), headers=_texts(_at(raw, "headers"))
    )


def to_seconds(raw: object) -> float | None:
    """Read a time; one without a zone is UTC's."""
    if not isinstance(raw, str):
        return None
    try:
        at = datetime.fromisoformat(raw)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = datetime.fromisoformat(f"{raw}+00:00")
    return at.timestamp()


def to_refused(status: int, body: bytes) -> ApiRefused:
    """Read a no: `{code, message}`, `{detail: …}`, `{error}`, or plain text."""
    try:
        raw: object = json.loads(body)
    except ValueError:
        text = body.decode(errors="replace").strip()
        return ApiRefused(status, "", text[:TOLD_CHARACTERS_MAX])
    detail = _at(raw, "detail")
    if isinstance(detail, Mapping):
        raw = cast("object", detail)
    elif isinstance(detail, list):
        found = _validation(cast("object", detail))
        return ApiRefused(status, "", found[:TOLD_CHARACTERS_MAX])
    elif isinstance(detail, str):
        return ApiRefused(status, "", detail[:TOLD_CHARACTERS_MAX])
    text = _text(raw, "message") or _text(raw, "error")
    return ApiRefused(status, _text(raw, "code"), text[:TOLD_CHARACTERS_MAX])


def words_of(raw: object) -> Mapping[str, object]:
    """Return a JSON object's members; of anything else none."""
    return cast("Mapping[str, object]", raw) if isinstance(raw, Mapping) else {}


def _validation(found: object) -> str:
    told: list[str] = []
    for one in _items(found):
        place = ".".join(str(step) for step in _items(_at(one, "loc")))
        told.append(f"{place}: {_text(one, 'msg')}")
    return "; ".join(told)


def _at(raw: object, *keys: str) -> object:
    for key in keys:
        raw = words_of(raw).get(key)
    return raw


def _text(raw: object, *keys: str) -> str:
    found = _at(raw, *keys)
    return found if isinstance(found, str) else ""


def _items(raw: object) -> list[object]:
    return cast("list[object]", raw) if isinstance(raw, list) else []


def _texts(raw: object) -> dict[str, str]:
    return {
        name: value for name, value in words_of(raw).items() if isinstance(value, str)
    }
