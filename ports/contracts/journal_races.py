# SPDX-License-Identifier: Apache-2.0
"""Cases for many writers at once: one is first, and every append is whole."""

from typing import Final

import anyio
import anyio.lowlevel

from ...domain import claims
from ..required.journal import (
    Journal,
    Stream,
    StreamMoved,
)
from .cases import Case, check_cases
from .journal_context import (
    AGAIN,
    AT,
    PATIENCE_SECONDS,
    JournalContext,
    append_two,
    events_of,
    fresh,
    reason_of,
)

WRITERS: Final = 16
ROUNDS: Final = 12
AT_ONCE_EVENTS: Final = 5
CANCELLED_TIMES: Final = 40


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
    stream, journal = fresh(), context.journal
    partly: list[int] = []

    async def write() -> None:
        for number in range(ROUNDS):
            await journal.append(
                stream,
                events_of(AT_ONCE_EVENTS),
                expected_version=number * AT_ONCE_EVENTS,
            )

    async def watch() -> None:
        history = await journal.read(stream)
        while history.version < whole:
            if history.version % AT_ONCE_EVENTS or len(history.events) % AT_ONCE_EVENTS:
                partly.append(history.version)
            history = await journal.read(stream)

    whole = ROUNDS * AT_ONCE_EVENTS
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(watch)
            tasks.start_soon(write)

    assert partly == []


async def appends_to_many_streams_do_not_mix(context: JournalContext) -> None:
    """Each stream gets its own events, however many are written at once."""
    streams = [fresh() for _ in range(WRITERS * 4)]

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
        assert [reason_of(event) for event in history.events] == wanted


async def a_cancelled_append_is_settled(context: JournalContext) -> None:
    """It happened whole or not at all, and whoever reads next sees which."""
    for number in range(CANCELLED_TIMES):
        stream, seen = fresh(), -1
        async with anyio.create_task_group() as others:
            for _ in range(4):
                others.start_soon(append_two, context.journal, fresh())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append_two, context.journal, stream)
                for _ in range(number % 8):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            seen = (await context.journal.read(stream)).version

        assert seen in (0, 2)
        # Whichever it was, it stays so.
        await context.journal.append(stream, events_of(1), expected_version=seen)
        assert (await context.journal.read(stream)).version == seen + 1


CASES: Final[tuple[Case[JournalContext], ...]] = check_cases(
    (
        Case(name="one writer wins each version", run=one_writer_wins_each_version),
        Case(
            name="one writer of two processes wins",
            run=one_writer_of_two_processes_wins,
            hooks=AGAIN,
        ),
        Case(name="appends are read whole", run=appends_are_read_whole),
        Case(
            name="appends to many streams do not mix",
            run=appends_to_many_streams_do_not_mix,
        ),
        Case(name="a cancelled append is settled", run=a_cancelled_append_is_settled),
    )
)


async def _race(journals: list[Journal]) -> None:
    """Have each journal win `ROUNDS` versions of one stream, against all others."""
    stream = fresh()
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
    assert [reason_of(event) for event in history.events] == [
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
