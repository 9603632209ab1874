# SPDX-License-Identifier: Apache-2.0
"""Cases for one writer: what is appended is read, ended, forgotten, and refused.

Nothing is lost or changed on the way, whatever keys and texts are made of.
"""

import secrets
from typing import Final

from ...domain import claims
from ...domain.agent_sessions import AgentSessionId, SeedAbandoned, SetupFailed
from ...domain.deciders import Instant
from ..required.journal import (
    History,
    Stream,
    agent_session_stream,
)
from .cases import Case, check_cases
from .journal_context import (
    AGAIN,
    AT,
    JournalContext,
    events_of,
    fresh,
    refused,
)

ODD_KEYS: Final = (
    "a/b",
    "../up",
    "a%2Fb",
    " spaced ",
    "Größe 中文 \U0001f40e",
    "quote'\"`;--",
    "line\nbreak\x00nul",
    "half \ud83d pair",
    "A",
    "a",
    "",
)


async def a_fresh_stream_is_empty(context: JournalContext) -> None:
    """A stream that nobody wrote to reads as nothing, at version 0."""
    history = await context.journal.read(fresh())

    assert history == History((), 0)


async def what_was_appended_is_read(context: JournalContext) -> None:
    """Events come back equal, in order, from any version on."""
    stream, events = fresh(), events_of(6)

    first = await context.journal.append(stream, events[:2], expected_version=0)
    second = await context.journal.append(stream, events[2:], expected_version=first)

    assert (first, second) == (2, 6)
    assert await context.journal.read(stream) == History(tuple(events), 6)
    for after in range(7):
        part = await context.journal.read(stream, after=after)
        assert part == History(tuple(events[after:]), 6)
    assert await context.journal.read(stream, after=60) == History((), 6)


async def a_moved_stream_refuses(context: JournalContext) -> None:
    """An append that expects another version writes nothing and says what it found."""
    stream = fresh()
    await context.journal.append(stream, events_of(2), expected_version=0)

    for expected in (0, 1, 3, -1):
        moved = await refused(
            context.journal.append(stream, events_of(1), expected_version=expected)
        )
        assert (moved.category, moved.key) == (stream.category, stream.key)
        assert (moved.expected, moved.found) == (expected, 2)

    assert (await context.journal.read(stream)).version == 2


async def a_stream_does_not_begin_in_the_middle(context: JournalContext) -> None:
    """A stream that is not there is at version 0, and at no other."""
    stream = fresh()

    moved = await refused(
        context.journal.append(stream, events_of(1), expected_version=4)
    )

    assert (moved.expected, moved.found) == (4, 0)
    assert await context.journal.read(stream) == History((), 0)


async def an_empty_append_checks_alone(context: JournalContext) -> None:
    """Appending nothing checks the version, and makes no stream."""
    stream = fresh()

    assert await context.journal.append(stream, (), expected_version=0) == 0
    await refused(context.journal.append(stream, (), expected_version=1))

    assert stream.key not in await context.journal.open_streams(stream.category)


async def streams_are_apart(context: JournalContext) -> None:
    """Neither a category nor an odd key meets another."""
    token = secrets.token_hex(8)
    streams: list[Stream[claims.Event]] = [
        Stream(category, f"{token}{key}")
        for category in ("claims", "Claims", "claims/", "")
        for key in ODD_KEYS
    ]
    for number, stream in enumerate(streams):
        held = claims.CreationDoubted(reason=str(number), at=AT)
        await context.journal.append(stream, (held,), expected_version=0)

    for number, stream in enumerate(streams):
        (event,) = (await context.journal.read(stream)).events
        assert event == claims.CreationDoubted(reason=str(number), at=AT)
    for category in ("claims", "Claims", "claims/", ""):
        keys = await context.journal.open_streams(category)
        mine = sorted(key for key in keys if key.startswith(token))
        assert mine == sorted(f"{token}{key}" for key in ODD_KEYS)


async def any_text_is_kept(context: JournalContext) -> None:
    """What an event says comes back to the letter, whatever the letters are."""
    stream = fresh()
    texts = (
        "",
        "\x00",
        "\ud800",
        "\u2028\ufeff",
        "中文\U0001f40e",
        '"\\\n\r\t',
        "x" * 300_000,
    )
    events = [claims.CreationDoubted(reason=text, at=AT) for text in texts]

    await context.journal.append(stream, events, expected_version=0)

    assert (await context.journal.read(stream)).events == tuple(events)


async def moments_keep_every_digit(context: JournalContext) -> None:
    """A moment comes back as the same number."""
    stream = fresh()
    moments = (0.0, 0.1, 1e-300, 1_700_000_000.123456, 1.7976931348623157e308, -1.5)
    events = [claims.CreationStarted(at=Instant(moment)) for moment in moments]

    await context.journal.append(stream, events, expected_version=0)

    assert (await context.journal.read(stream)).events == tuple(events)


async def an_ended_stream_is_not_open(context: JournalContext) -> None:
    """A stream is open from its first event to one that ends it."""
    stream, journal = fresh(), context.journal
    seen: list[bool] = []

    async def look() -> None:
        seen.append(stream.key in await journal.open_streams(stream.category))

    await look()
    await journal.append(stream, events_of(2), expected_version=0)
    await look()
    ended = (claims.ReleaseStarted(reason="", at=AT), claims.ClaimReleased(at=AT))
    await journal.append(stream, ended, expected_version=2)
    await look()
    await journal.append(stream, events_of(1), expected_version=4)
    await look()

    assert seen == [False, True, False, True]


async def open_streams_are_of_one_category(context: JournalContext) -> None:
    """Other categories' streams are not among them, nor is one named twice."""
    claim = fresh()
    session = agent_session_stream(AgentSessionId(f"s-{secrets.token_hex(8)}"))
    failed = SetupFailed(reason="", at=AT)
    await context.journal.append(claim, events_of(1), expected_version=0)
    await context.journal.append(session, (failed,), expected_version=0)
    await context.journal.append(
        session, (SeedAbandoned(reason="", at=AT),), expected_version=1
    )

    keys = await context.journal.open_streams(session.category)

    assert keys.count(session.key) == 1
    assert claim.key not in keys


async def a_forgotten_stream_is_gone(context: JournalContext) -> None:
    """It reads as if it had never been, and may begin again."""
    stream, other = fresh(), fresh()
    await context.journal.append(stream, events_of(3), expected_version=0)
    await context.journal.append(other, events_of(2), expected_version=0)

    await context.journal.forget(stream, expected_version=3)

    assert await context.journal.read(stream) == History((), 0)
    assert stream.key not in await context.journal.open_streams(stream.category)
    again = events_of(1)
    assert await context.journal.append(stream, again, expected_version=0) == 1
    assert await context.journal.read(stream) == History(tuple(again), 1)
    assert (await context.journal.read(other)).version == 2


async def forgetting_checks_the_version(context: JournalContext) -> None:
    """A stream that another wrote to meanwhile stays."""
    stream = fresh()
    await context.journal.append(stream, events_of(2), expected_version=0)

    await refused(context.journal.forget(stream, expected_version=1))
    await refused(context.journal.forget(fresh(), expected_version=1))
    await context.journal.forget(fresh(), expected_version=0)

    assert (await context.journal.read(stream)).version == 2


async def what_was_written_stays(context: JournalContext) -> None:
    """Another journal object over the same place reads the same."""
    assert context.open_again is not None, "asked for in hooks"
    stream, events = fresh(), events_of(4)
    await context.journal.append(stream, events, expected_version=0)

    async with context.open_again() as other:
        assert await other.read(stream) == History(tuple(events), 4)
        assert stream.key in await other.open_streams(stream.category)
        await other.forget(stream, expected_version=4)

    assert (await context.journal.read(stream)).version == 0
    assert await context.journal.append(stream, events, expected_version=0) == 4


CASES: Final[tuple[Case[JournalContext], ...]] = check_cases(
    (
        Case(name="a fresh stream is empty", run=a_fresh_stream_is_empty),
        Case(name="what was appended is read", run=what_was_appended_is_read),
        Case(name="a moved stream refuses", run=a_moved_stream_refuses),
        Case(
            name="a stream does not begin in the middle",
            run=a_stream_does_not_begin_in_the_middle,
        ),
        Case(name="an empty append checks alone", run=an_empty_append_checks_alone),
        Case(name="streams are apart", run=streams_are_apart),
        Case(name="any text is kept", run=any_text_is_kept),
        Case(name="moments keep every digit", run=moments_keep_every_digit),
        Case(name="an ended stream is not open", run=an_ended_stream_is_not_open),
        Case(
            name="open streams are of one category",
            run=open_streams_are_of_one_category,
        ),
        Case(name="a forgotten stream is gone", run=a_forgotten_stream_is_gone),
        Case(name="forgetting checks the version", run=forgetting_checks_the_version),
        Case(name="what was written stays", run=what_was_written_stays, hooks=AGAIN),
    )
)
