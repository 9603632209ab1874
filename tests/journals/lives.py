# SPDX-License-Identifier: Apache-2.0
"""Streams and events for tests that care for neither."""

from livery.domain import claims
from livery.domain.deciders import Instant
from livery.ports.required.journal import Journal, Stream, claim_stream

AT = Instant(1_700_000_000.5)


def stream(name: str = "claim-1") -> Stream[claims.Event]:
    return claim_stream(claims.ClaimId(name))


def marked(*marks: str) -> tuple[claims.CreationDoubted, ...]:
    """Return events that carry a mark each."""
    return tuple(claims.CreationDoubted(reason=mark, at=AT) for mark in marks)


def marks_of(events: tuple[claims.Event, ...]) -> list[str]:
    found = [event for event in events if isinstance(event, claims.CreationDoubted)]
    assert len(found) == len(events)
    return [event.reason for event in found]


async def append(journal: Journal, *marks: str, name: str = "claim-1") -> int:
    """Append marked events wherever the stream stands."""
    version = (await journal.read(stream(name))).version
    return await journal.append(stream(name), marked(*marks), expected_version=version)
