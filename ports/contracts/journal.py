# SPDX-License-Identifier: Apache-2.0
"""The contract suite of `Journal`.

Run every case of `CASES` over a `JournalContext`. Each case works on streams of its
own, so that one journal can serve all of them.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from ...domain import claims
from ...domain.agent_sessions import AgentSessionId, SeedAbandoned, SetupFailed
from ...domain.deciders import Instant
from ..required.journal import (
    History,
    Journal,
    Stream,
    StreamMoved,
    agent_session_stream,
    claim_stream,
)
from .cases import Case, check_cases

WRITERS: Final = 16
ROUNDS: Final = 12
AT_ONCE_EVENTS: Final = 5
PATIENCE_SECONDS: Final = 30.0
NOTICE_SECONDS_MAX: Final = 1.0
"""How late another process's append may be noticed."""
MARGIN_SECONDS: Final = 2.0
"""What a busy machine may add to that."""
CANCELLED_TIMES: Final = 40

AT: Final = Instant(1_700_000_000.5)
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


@attrs.frozen(kw_only=True)
class JournalContext:
    """A journal, and how to open the same place a second time."""

    journal: Journal
    open_again: Callable[[], AbstractAsyncContextManager[Journal]] | None = None
    """Open another journal object over the same place, as another process would."""


async def a_fresh_stream_is_empty(context: JournalContext) -> None:
    """A stream that nobody wrote to reads as nothing, at version 0."""
    history = await context.journal.read(_fresh())

    assert history == History((), 0)


async def what_was_appended_is_read(context: JournalContext) -> None:
    """Events come back equal, in order, from any version on."""
    stream, events = _fresh(), _events(6)

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
    stream = _fresh()
    await context.journal.append(stream, _events(2), expected_version=0)

    for expected in (0, 1, 3, -1):
        moved = await _moved(
            context.journal.append(stream, _events(1), expected_version=expected)
        )
        assert (moved.category, moved.key) == (stream.category, stream.key)
        assert (moved.expected, moved.found) == (expected, 2)

    assert (await context.journal.read(stream)).version == 2


async def a_stream_does_not_begin_in_the_middle(context: JournalContext) -> None:
    """A stream that is not there is at version 0, and at no other."""
    stream = _fresh()

    moved = await _moved(context.journal.append(stream, _events(1), expected_version=4))

    assert (moved.expected, moved.found) == (4, 0)
    assert await context.journal.read(stream) == History((), 0)


async def an_empty_append_checks_alone(context: JournalContext) -> None:
    """Appending nothing checks the version, and makes no stream."""
    stream = _fresh()

    assert await context.journal.append(stream, (), expected_version=0) == 0
    await _moved(context.journal.append(stream, (), expected_version=1))

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
    stream = _fresh()
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
    stream = _fresh()
    moments = (0.0, 0.1, 1e-300, 1_700_000_000.123456, 1.7976931348623157e308, -1.5)
    events = [claims.CreationStarted(at=Instant(moment)) for moment in moments]

    await context.journal.append(stream, events, expected_version=0)

    assert (await context.journal.read(stream)).events == tuple(events)


async def an_ended_stream_is_not_open(context: JournalContext) -> None:
    """A stream is open from its first event to one that ends it."""
    stream, journal = _fresh(), context.journal
    seen: list[bool] = []

    async def look() -> None:
        seen.append(stream.key in await journal.open_streams(stream.category))

    await look()
    await journal.append(stream, _events(2), expected_version=0)
    await look()
    ended = (claims.ReleaseStarted(reason="", at=AT), claims.ClaimReleased(at=AT))
    await journal.append(stream, ended, expected_version=2)
    await look()
    await journal.append(stream, _events(1), expected_version=4)
    await look()

    assert seen == [False, True, False, True]


async def open_streams_are_of_one_category(context: JournalContext) -> None:
    """Other categories' streams are not among them, nor is one named twice."""
    claim = _fresh()
    session = agent_session_stream(AgentSessionId(f"s-{secrets.token_hex(8)}"))
    failed = SetupFailed(reason="", at=AT)
    await context.journal.append(claim, _events(1), expected_version=0)
    await context.journal.append(session, (failed,), expected_version=0)
    await context.journal.append(
        session, (SeedAbandoned(reason="", at=AT),), expected_version=1
    )

    keys = await context.journal.open_streams(session.category)

    assert keys.count(session.key) == 1
    assert claim.key not in keys


async def a_forgotten_stream_is_gone(context: JournalContext) -> None:
    """It reads as if it had never been, and may begin again."""
    stream, other = _fresh(), _fresh()
    await context.journal.append(stream, _events(3), expected_version=0)
    await context.journal.append(other, _events(2), expected_version=0)

    await context.journal.forget(stream, expected_version=3)

    assert await context.journal.read(stream) == History((), 0)
    assert stream.key not in await context.journal.open_streams(stream.category)
    again = _events(1)
    assert await context.journal.append(stream, again, expected_version=0) == 1
    assert await context.journal.read(stream) == History(tuple(again), 1)
    assert (await context.journal.read(other)).version == 2


async def forgetting_checks_the_version(context: JournalContext) -> None:
    """A stream that another wrote to meanwhile stays."""
    stream = _fresh()
    await context.journal.append(stream, _events(2), expected_version=0)

    await _moved(context.journal.forget(stream, expected_version=1))
    await _moved(context.journal.forget(_fresh(), expected_version=1))
    await context.journal.forget(_fresh(), expected_version=0)

    assert (await context.journal.read(stream)).version == 2


async def one_writer_wins_each_version(context: JournalContext) -> None:
    """Of many that race for a version exactly one is first."""
    await _race([context.journal] * WRITERS)


async def one_writer_of_two_processes_wins(context: JournalContext) -> None:
    """The same, where half of them write by another journal object."""
    assert context.open_again is not None, "asked for in hooks"
    async with context.open_again() as other:
        await _race([context.journal, other] * (WRITERS // 2))


async def appends_are_read_whole(context: JournalContext) -> None:
    """No reader sees a part of an append."""
    stream, journal = _fresh(), context.journal
    partly: list[int] = []

    async def write() -> None:
        for number in range(ROUNDS):
            await journal.append(
                stream,
                _events(AT_ONCE_EVENTS),
                expected_version=number * AT_ONCE_EVENTS,
            )

    async def watch() -> None:
        while (version := (await _whole(journal, stream)).version) < whole:
            if version % AT_ONCE_EVENTS:
                partly.append(version)

    whole = ROUNDS * AT_ONCE_EVENTS
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(watch)
            tasks.start_soon(write)

    assert partly == []


async def appends_to_many_streams_do_not_mix(context: JournalContext) -> None:
    """Each stream gets its own events, however many are written at once."""
    streams = [_fresh() for _ in range(WRITERS * 4)]

    async def write(number: int) -> None:
        for version in range(ROUNDS):
            event = claims.CreationDoubted(reason=f"{number}/{version}", at=AT)
            await context.journal.append(
                streams[number], (event,), expected_version=version
            )

    async with anyio.create_task_group() as tasks:
        for number in range(len(streams)):
            tasks.start_soon(write, number)

    for number, stream in enumerate(streams):
        history = await context.journal.read(stream)
        wanted = [f"{number}/{version}" for version in range(ROUNDS)]
        assert [_reason(event) for event in history.events] == wanted


async def a_cancelled_append_is_settled(context: JournalContext) -> None:
    """It happened whole or not at all, and whoever reads next sees which."""
    for number in range(CANCELLED_TIMES):
        stream, seen = _fresh(), -1
        async with anyio.create_task_group() as others:
            for _ in range(4):
                others.start_soon(_append_two, context.journal, _fresh())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_append_two, context.journal, stream)
                for _ in range(number % 8):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            seen = (await context.journal.read(stream)).version

        assert seen in (0, 2)
        # Whichever it was, it stays so.
        await context.journal.append(stream, _events(1), expected_version=seen)
        assert (await context.journal.read(stream)).version == seen + 1


async def a_waiter_is_told_at_once(context: JournalContext) -> None:
    """Who waits wakes with the version, and who comes too late need not wait."""
    stream = _fresh()
    await context.journal.append(stream, _events(1), expected_version=0)

    await _noticed(context.journal, context.journal, stream, within=MARGIN_SECONDS)

    with anyio.fail_after(MARGIN_SECONDS):
        assert await context.journal.moved(stream, after=0) == 2
        assert await context.journal.moved(stream, after=1) == 2


async def a_waiter_is_told_of_others(context: JournalContext) -> None:
    """An append by another process is noticed within a second."""
    assert context.open_again is not None, "asked for in hooks"
    within = NOTICE_SECONDS_MAX + MARGIN_SECONDS
    async with context.open_again() as other:
        for waits, writes in ((context.journal, other), (other, context.journal)):
            stream = _fresh()
            await context.journal.append(stream, _events(1), expected_version=0)

            await _noticed(waits, writes, stream, within=within)


async def other_streams_wake_nobody(context: JournalContext) -> None:
    """Who waits is not woken by another stream, nor too early by its own."""
    stream, woken = _fresh(), anyio.Event()

    async def wait() -> None:
        assert await context.journal.moved(stream, after=2) == 3
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await _append_two(context.journal, _fresh())
        await context.journal.append(stream, _events(1), expected_version=0)
        await context.journal.append(stream, _events(1), expected_version=1)
        assert not woken.is_set()
        with anyio.fail_after(PATIENCE_SECONDS):
            await context.journal.append(stream, _events(1), expected_version=2)
            await woken.wait()


async def a_waiter_can_give_up(context: JournalContext) -> None:
    """A wait that is cancelled ends, and holds nobody else up."""
    stream = _fresh()

    for _ in range(ROUNDS):
        with anyio.move_on_after(0.01) as scope:
            await context.journal.moved(stream, after=0)
        assert scope.cancelled_caught

    await _append_two(context.journal, stream)
    assert await context.journal.moved(stream, after=0) == 2


async def what_was_written_stays(context: JournalContext) -> None:
    """Another journal object over the same place reads the same."""
    assert context.open_again is not None, "asked for in hooks"
    stream, events = _fresh(), _events(4)
    await context.journal.append(stream, events, expected_version=0)

    async with context.open_again() as other:
        assert await other.read(stream) == History(tuple(events), 4)
        assert stream.key in await other.open_streams(stream.category)
        await other.forget(stream, expected_version=4)

    assert (await context.journal.read(stream)).version == 0
    assert await context.journal.append(stream, events, expected_version=0) == 4


_AGAIN: Final = frozenset({"open_again"})

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
        Case(name="one writer wins each version", run=one_writer_wins_each_version),
        Case(
            name="one writer of two processes wins",
            run=one_writer_of_two_processes_wins,
            hooks=_AGAIN,
        ),
        Case(name="appends are read whole", run=appends_are_read_whole),
        Case(
            name="appends to many streams do not mix",
            run=appends_to_many_streams_do_not_mix,
        ),
        Case(name="a cancelled append is settled", run=a_cancelled_append_is_settled),
        Case(name="a waiter is told at once", run=a_waiter_is_told_at_once),
        Case(
            name="a waiter is told of others",
            run=a_waiter_is_told_of_others,
            hooks=_AGAIN,
        ),
        Case(name="other streams wake nobody", run=other_streams_wake_nobody),
        Case(name="a waiter can give up", run=a_waiter_can_give_up),
        Case(name="what was written stays", run=what_was_written_stays, hooks=_AGAIN),
    )
)


def _fresh() -> Stream[claims.Event]:
    return claim_stream(claims.ClaimId(f"claim-{secrets.token_hex(8)}"))


def _events(count: int) -> list[claims.Event]:
    """Return events that tell each other apart."""
    return [
        claims.CreationDoubted(reason=secrets.token_hex(4), at=AT) for _ in range(count)
    ]


def _reason(event: claims.Event) -> str:
    assert isinstance(event, claims.CreationDoubted)
    return event.reason


async def _append_two(journal: Journal, stream: Stream[claims.Event]) -> None:
    await journal.append(stream, _events(2), expected_version=0)


async def _whole(
    journal: Journal, stream: Stream[claims.Event]
) -> History[claims.Event]:
    history = await journal.read(stream)
    assert len(history.events) == history.version
    return history


async def _moved(act: Awaitable[object]) -> StreamMoved:
    try:
        await act
    except StreamMoved as moved:
        return moved
    raise AssertionError("the stream was taken to be elsewhere, and nobody said so")


async def _race(journals: list[Journal]) -> None:
    """Have each journal win `ROUNDS` versions of one stream, against all others."""
    stream = _fresh()
    won: dict[int, str] = {}

    async def write(number: int, journal: Journal) -> None:
        for round_ in range(ROUNDS):
            name = f"{number}/{round_}"
            event = claims.CreationDoubted(reason=name, at=AT)
            while not (version := await _won(journal, stream, event)):
                pass
            assert version not in won, f"{won[version]} and {name} won {version}"
            won[version] = name

    with anyio.fail_after(PATIENCE_SECONDS * 2):
        async with anyio.create_task_group() as tasks:
            for number, journal in enumerate(journals):
                tasks.start_soon(write, number, journal)

    history = await journals[0].read(stream)
    assert [_reason(event) for event in history.events] == [
        won[version] for version in range(1, len(journals) * ROUNDS + 1)
    ]


async def _won(
    journal: Journal, stream: Stream[claims.Event], event: claims.Event
) -> int | None:
    """Try for the next version; return it, or None where another was first."""
    version = (await journal.read(stream)).version
    try:
        return await journal.append(stream, (event,), expected_version=version)
    except StreamMoved:
        return None


async def _noticed(
    waits: Journal, writes: Journal, stream: Stream[claims.Event], *, within: float
) -> None:
    """See who waits notice that the stream, at version 1, moves to 2."""
    woken = anyio.Event()

    async def wait() -> None:
        assert await waits.moved(stream, after=1) == 2
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(0.05)  # It waits by now; if not, it sees the version.
        await writes.append(stream, _events(1), expected_version=1)
        with anyio.fail_after(within):
            await woken.wait()
