# SPDX-License-Identifier: Apache-2.0
"""What the journal cases are given, and the few steps that they share."""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import attrs

from ...domain import claims
from ...domain.deciders import Instant
from ..required.journal import Journal, Stream, StreamMoved, claim_stream

AT: Final = Instant(1_700_000_000.5)
PATIENCE_SECONDS: Final = 30.0
AGAIN: Final = frozenset({"open_again"})


@attrs.frozen(kw_only=True)
class JournalContext:
    """A journal, and how to open the same place a second time."""

    journal: Journal
    open_again: Callable[[], AbstractAsyncContextManager[Journal]] | None = None
    """Open another journal object over the same place, as another process would."""


def fresh() -> Stream[claims.Event]:
    """Return a stream that nobody has written to."""
    return claim_stream(claims.ClaimId(f"claim-{secrets.token_hex(8)}"))


def events_of(count: int) -> list[claims.Event]:
    """Return events that tell each other apart."""
    return [
        claims.CreationDoubted(reason=secrets.token_hex(4), at=AT) for _ in range(count)
    ]


def reason_of(event: claims.Event) -> str:
    """Return what tells the event from others."""
    assert isinstance(event, claims.CreationDoubted)
    return event.reason


async def append_two(journal: Journal, stream: Stream[claims.Event]) -> None:
    """Append two events to a stream that is empty."""
    await journal.append(stream, events_of(2), expected_version=0)


async def refused(act: Awaitable[object]) -> StreamMoved:
    """Return the refusal of an append whose stream had moved."""
    try:
        await act
    except StreamMoved as moved:
        return moved
    raise AssertionError("the stream was taken to be elsewhere, and nobody said so")
