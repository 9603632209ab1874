# SPDX-License-Identifier: Apache-2.0
"""A lent sandbox serves one session, however many are open, and whoever dies."""

import json

import anyio
import attrs
import pytest

from livery.adapters.journals import MemoryJournal
from livery.domain.agent_sessions import (
    DECIDER,
    AbandonSeed,
    AgentSession,
    AgentSessionId,
    Close,
    Command,
    SandboxInUse,
    Seed,
    StartClose,
)
from livery.domain.claims import Holder
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.carry_out import Standing, carry_out, read_state
from livery.ports.provided.lent_uses import LentUses
from livery.ports.provided.session_grants import (
    SHARED_WORD,
    SessionGrant,
    from_text,
    to_text,
)
from livery.ports.required.journal import (
    History,
    Journal,
    StreamMoved,
    agent_session_stream,
)
from livery.ports.required.sandbox import SandboxAccess, SandboxId

from .outside import HandClock

pytestmark = pytest.mark.anyio

AT = Instant(1.0)
EPISODE = EpisodeId("r", 0)
A, B, C = AgentSessionId("a"), AgentSessionId("b"), AgentSessionId("c")


def grant(sandbox: str = "box", **words: str) -> SessionGrant:
    access = SandboxAccess(
        provider="fake", descriptor={"sandbox_id": sandbox, **words}, workdir="/w"
    )
    return SessionGrant(task=TaskId("set", "1"), access=access)


SHARED = grant(**{SHARED_WORD: "true"})


@attrs.define
class CountingJournal(MemoryJournal):
    """Counts what is asked of it."""

    asked: int = 0

    async def append(self, *words: object, **more: object) -> int:
        self.asked += 1
        return await MemoryJournal.append(self, *words, **more)  # type: ignore[arg-type]

    async def read(self, *words: object, **more: object) -> History[object]:
        self.asked += 1
        return await MemoryJournal.read(self, *words, **more)  # type: ignore[arg-type]

    async def open_streams(self, category: str) -> tuple[str, ...]:
        raise AssertionError("what is open is not looked through")

    async def forget(self, *words: object, **more: object) -> None:
        self.asked += 1
        await MemoryJournal.forget(self, *words, **more)  # type: ignore[arg-type]


def uses(journal: Journal) -> LentUses:
    async def session(name: AgentSessionId) -> Standing[AgentSession]:
        return await read_state(journal, agent_session_stream(name), DECIDER)

    return LentUses(journal=journal, clock=HandClock(), session=session)


async def write(journal: Journal, name: AgentSessionId, *commands: Command) -> None:
    await carry_out(journal, agent_session_stream(name), DECIDER, *commands)


async def seeded(journal: Journal, name: AgentSessionId, granted: SessionGrant) -> None:
    seed = Seed(
        session=name,
        episode=EPISODE,
        request=RequestDigest("5e" * 32),
        stepwise=False,
        grant=to_text(granted),
        holder=Holder("one"),
        at=AT,
    )
    await write(journal, name, seed)


async def streams(journal: Journal) -> tuple[str, ...]:
    return await journal.open_streams("lent_sandboxes")


async def test_a_use_costs_the_same_however_many_there_are() -> None:
    journal = CountingJournal()
    it = uses(journal)
    for number in range(300):
        await it.begin(AgentSessionId(f"s{number}"), grant(f"box-{number}"))
    journal.asked = 0

    use = await it.begin(A, grant())
    assert journal.asked == 1
    await it.end(A, grant(), use)
    assert journal.asked == 2


async def test_what_is_over_leaves_nothing_behind() -> None:
    journal = MemoryJournal()
    it = uses(journal)

    assert await it.begin(A, SessionGrant(task=TaskId("set", "1"))) is None
    await it.end(A, SessionGrant(task=TaskId("set", "1")))
    for name in (A, B):
        await it.begin(name, SHARED)
        await it.begin(name, SHARED)
    assert len(await streams(journal)) == 1
    for name in (A, A, B, B):
        await it.end(name, SHARED)

    assert await streams(journal) == ()


async def test_a_session_that_is_open_keeps_what_it_was_lent() -> None:
    journal = MemoryJournal()
    it = uses(journal)
    await seeded(journal, A, grant())
    await it.begin(A, grant())

    with pytest.raises(SandboxInUse) as refused:
        await it.begin(B, grant())
    assert refused.value.session == A
    with pytest.raises(SandboxInUse):
        await it.begin(B, SHARED)


async def test_a_sandbox_is_what_its_provider_says_it_is() -> None:
    journal = MemoryJournal()
    it = uses(journal)
    by_id = attrs.evolve(grant("9f1c"), lent_id=SandboxId("box"))
    await seeded(journal, A, by_id)
    await it.begin(A, by_id)

    with pytest.raises(SandboxInUse):
        await it.begin(B, attrs.evolve(grant(), lent_id=SandboxId("box")))


async def test_a_use_from_before_providers_told_which_sandbox_it_is_counts() -> None:
    journal = MemoryJournal()
    it = uses(journal)
    await seeded(journal, A, grant())
    await it.begin(A, grant())

    with pytest.raises(SandboxInUse):
        await it.begin(B, attrs.evolve(grant(), lent_id=SandboxId("box")))

    old = json.loads(to_text(grant()))
    del old["lent_id"]
    assert from_text(json.dumps(old)) == grant()


async def test_what_a_session_left_that_is_over_is_in_nobody_s_way() -> None:
    journal = MemoryJournal()
    it = uses(journal)
    for name in (A, B, C):
        await seeded(journal, name, grant())
    close = Close(session=A, episode=EPISODE, reply="{}", at=AT)
    await it.begin(A, grant())
    await write(journal, A, StartClose(episode=EPISODE, at=AT), close)
    await it.begin(B, grant())
    await write(journal, B, AbandonSeed(reason="it broke", at=AT))
    await seeded(journal, B, grant("another"))

    await it.begin(C, grant())

    with pytest.raises(SandboxInUse) as refused:
        await it.begin(A, grant())
    assert refused.value.session == C


@attrs.define
class OvertakenJournal(MemoryJournal):
    """Another writer is first each time that something is to be forgotten."""

    times: int = 0

    async def forget(self, *words: object, **more: object) -> None:
        if self.times:
            self.times -= 1
            raise StreamMoved(category="lent_sandboxes", key="k", expected=1, found=2)
        await MemoryJournal.forget(self, *words, **more)  # type: ignore[arg-type]


async def test_an_end_that_is_overtaken_looks_again_and_not_for_ever() -> None:
    journal = OvertakenJournal()
    it = uses(journal)
    use = await it.begin(A, grant())

    journal.times = 3
    await it.end(A, grant(), use)
    assert await streams(journal) == ()

    await it.begin(A, grant())
    journal.times = 1000
    with pytest.raises(StreamMoved):
        await it.end(A, grant())


async def test_of_many_at_once_one_has_it() -> None:
    journal = MemoryJournal()
    it = uses(journal)
    had: list[AgentSessionId] = []

    async def ask(name: AgentSessionId) -> None:
        await seeded(journal, name, grant())
        try:
            await it.begin(name, grant())
        except SandboxInUse:
            return
        had.append(name)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(ask, AgentSessionId(f"s{number}"))

    assert len(had) == 1
