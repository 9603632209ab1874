# SPDX-License-Identifier: Apache-2.0
"""What a process remembers of a stream is tried, and never believed over the journal."""

import attrs
import pytest

from livery.adapters.journals import MemoryJournal
from livery.domain.agent_sessions import (
    DECIDER,
    AgentSession,
    AgentSessionId,
    Close,
    Command,
    Event,
    MarkReady,
    Seed,
    SessionIsClosed,
    SessionPhase,
    StartClose,
)
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.tasks import EpisodeId
from livery.ports.provided.carry_out import (
    Standing,
    carry_out,
    carry_out_at_once,
    read_state,
)
from livery.ports.required.journal import History, Stream, agent_session_stream

pytestmark = pytest.mark.anyio

SESSION = AgentSessionId("s1")
STREAM = agent_session_stream(SESSION)
EPISODE = EpisodeId("r1")
NOW = Instant(1.0)
FRESH = Standing(AgentSession(), 0)
SEED = Seed(session=SESSION, episode=EPISODE, request=RequestDigest("d"), at=NOW)
READY = MarkReady(claim=None, at=NOW)
START = StartClose(episode=EPISODE, at=NOW)
CLOSE = Close(session=SESSION, episode=EPISODE, reply="{}", at=NOW)


@attrs.define
class Counted(MemoryJournal):
    """Counts how often it is read."""

    reads: int = 0

    async def read(self, stream: Stream[Event], *, after: int = 0) -> History[Event]:  # type: ignore[override]
        self.reads += 1
        return await MemoryJournal.read(self, stream, after=after)


async def done(
    journal: MemoryJournal, *commands: Command, known: Standing[AgentSession] | None
) -> Standing[AgentSession]:
    return await carry_out(journal, STREAM, DECIDER, *commands, known=known)


async def test_what_is_known_and_true_is_not_read() -> None:
    journal = Counted()

    seeded = await done(journal, SEED, known=FRESH)
    await done(journal, READY, known=seeded)

    assert journal.reads == 0


async def test_what_was_known_would_refuse_and_is_read_before_it_does() -> None:
    journal = MemoryJournal()
    closed = await done(journal, SEED, READY, START, CLOSE, known=FRESH)
    await journal.forget(STREAM, expected_version=closed.version)

    seeded = await done(journal, SEED, known=closed)

    assert seeded.state.phase is SessionPhase.SEEDING
    assert seeded.version == 1


async def test_a_refusal_that_stands_is_read_for_once() -> None:
    journal = Counted()
    closed = await done(journal, SEED, READY, START, CLOSE, known=FRESH)

    with pytest.raises(SessionIsClosed):
        await done(journal, SEED, known=closed)

    assert journal.reads == 1


async def test_nothing_is_left_of_what_was_forgotten() -> None:
    journal = MemoryJournal()
    closed = await done(journal, SEED, READY, START, CLOSE, known=FRESH)
    await journal.forget(STREAM, expected_version=closed.version)
    await done(journal, SEED, known=FRESH)

    standing = await read_state(journal, STREAM, DECIDER, closed)

    assert standing.state.closed is None
    assert standing.version == 1


async def test_the_short_way_is_taken_or_nothing_is_written() -> None:
    journal = MemoryJournal()
    seeded = await done(journal, SEED, known=FRESH)
    ready = await done(journal, READY, known=seeded)

    refused = await carry_out_at_once(journal, STREAM, DECIDER, CLOSE, known=seeded)
    moved = await carry_out_at_once(
        journal, STREAM, DECIDER, START, CLOSE, known=seeded
    )
    version = (await journal.read(STREAM)).version
    closed = await carry_out_at_once(
        journal, STREAM, DECIDER, START, CLOSE, known=ready
    )

    assert (refused, moved, version) == (None, None, 2)
    assert closed is not None
    assert closed.state.phase is SessionPhase.CLOSED
