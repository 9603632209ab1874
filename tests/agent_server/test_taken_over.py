# SPDX-License-Identifier: Apache-2.0
"""Sessions whose process died, or is another: waited for, taken over, given back."""

import json

import anyio
import httpx
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.domain.activations import Activate, Outcome
from livery.domain.admissions import Ticket
from livery.domain.agent_sessions import (
    DECIDER,
    AgentSessionId,
    Command,
    MarkReady,
    Seed,
    SeedStarted,
)
from livery.domain.claims import DECIDER as DECIDER_OF_CLAIMS
from livery.domain.claims import ClaimId, Holder
from livery.domain.deciders import Instant
from livery.domain.requests import request_digest
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.carry_out import carry_out
from livery.ports.provided.serve_sessions import Patience
from livery.ports.provided.session_grants import (
    SHARED_WORD,
    SessionGrant,
    grant_digest,
    to_text,
)
from livery.ports.provided.session_replies import to_run_id
from livery.ports.provided.session_sandboxes import claim_of
from livery.ports.provided.shared_places import SharedPlaces
from livery.ports.required.journal import (
    History,
    agent_session_stream,
    claim_stream,
)
from livery.ports.required.sandbox import SandboxAccess, SandboxFailed
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from ..use_cases.outside import OWNER, BreakableProvider, Outside
from .scripted import (
    HELLO,
    ScriptedHarness,
    Server,
    SlowProvider,
    StuckProvider,
    seed,
    serving,
)

pytestmark = pytest.mark.anyio

DEAD, FIRST, SECOND = Holder("dead"), Holder("first"), Holder("second")
SESSION = AgentSessionId("s1")
EPISODE = EpisodeId("r1", 0)
TASK = TaskId("set", "1")
NOW = Instant(1000.0)
LENT = SessionGrant(
    task=TASK,
    access=SandboxAccess(provider="fake", descriptor={"id": "box"}, workdir="/"),
)
OWN = SessionGrant(task=TASK)
WAIT_SECONDS = 10.0


async def left_behind(
    journal: MemoryJournal, grant: SessionGrant, *commands: Command
) -> None:
    """Write what a process had written when it died."""
    begun = Seed(
        session=SESSION,
        episode=EPISODE,
        request=grant_digest(EPISODE, grant),
        grant=to_text(grant),
        holder=DEAD,
        at=NOW,
    )
    stream = agent_session_stream(SESSION)
    await carry_out(journal, stream, DECIDER, begun, *commands)


def activation() -> Activate:
    digest = request_digest(HELLO)
    return Activate(
        request=digest,
        run=to_run_id(SESSION, digest),
        parameters=json.dumps(HELLO),
        holder=DEAD,
        at=NOW,
    )


READY = MarkReady(claim=None, at=NOW)


async def test_a_seed_that_another_server_works_on_is_waited_for() -> None:
    journal, provider = MemoryJournal(), SlowProvider()
    async with (
        serving(
            journal, own=True, provider=provider, holders=MemoryHolders(FIRST, {SECOND})
        ) as first,
        serving(
            journal, own=True, provider=provider, holders=MemoryHolders(SECOND, {FIRST})
        ) as second,
    ):
        replies: list[httpx.Response] = []

        async def ask(server: Server) -> None:
            replies.append(await server.post("/v1/agent_sessions", seed()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask, first)
            await provider.one_made.wait()
            group.start_soon(ask, second)
            await anyio.wait_all_tasks_blocked()
            provider.may_go_on.set()
        closed = await second.close()

    assert [reply.status_code for reply in replies] == [200, 200]
    assert len(provider.made) == 1
    assert closed.status_code == 200
    assert provider.live == {}


async def test_a_seed_that_a_dead_process_began_is_taken_over() -> None:
    journal = MemoryJournal()
    await left_behind(journal, OWN)
    async with serving(journal, own=True) as it:
        cookie = await it.seeded()
        reply = await it.post("/v1/responses", HELLO, cookie)
        closed = await it.close()

    # The sandbox of the scripts has no Python: nothing was run, and that is told.
    assert reply.status_code in (200, 422)
    assert closed.status_code == 200
    assert len(it.provider.made) == 1
    assert it.provider.live == {}


async def test_a_seed_that_a_dead_process_began_is_given_up_by_close() -> None:
    journal = MemoryJournal()
    await left_behind(journal, OWN)
    async with serving(journal, own=True) as it:
        closed = await it.close()

    assert closed.status_code == 200
    assert it.provider.made == []


async def test_a_dead_process_s_run_in_a_sandbox_that_is_gone_is_no_agent_s_fault() -> (
    None
):
    journal = MemoryJournal()
    await left_behind(journal, LENT, READY, activation())
    async with serving(journal) as it:
        ending = await it.served.activate(SESSION, HELLO)
        closed = await it.close()

    assert ending.outcome is Outcome.SANDBOX_ERROR
    assert json.loads(ending.reply)["status"] == "failed"
    assert closed.json()["agent_observations"]["records"]
    assert it.harness.started == []


async def test_close_ends_a_dead_process_s_run_in_a_lent_sandbox_that_is_gone() -> None:
    journal = MemoryJournal()
    await left_behind(journal, LENT, READY, activation())
    async with serving(journal) as it:
        closed = await it.close()

    assert closed.status_code == 200


async def test_a_lent_sandbox_that_cannot_be_looked_at_keeps_its_close_waiting() -> (
    None
):
    journal = MemoryJournal()
    await left_behind(journal, LENT, READY, activation())
    provider = Unreachable()
    async with serving(journal, provider=provider) as it:
        unreached = await it.close()
        provider.reachable = True
        closed = await it.close()

    assert unreached.status_code == 502
    assert closed.status_code == 200


class Unreachable(BreakableProvider):
    """Cannot be reached, until a test lets it."""

    reachable = False

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId):  # type: ignore[no-untyped-def]
        if not self.reachable:
            raise SandboxFailed(self.name, "box", "connect", "scripted")
        self.live[ClaimId("box")] = OWNER
        return await BreakableProvider.connect(self, access, borrower=borrower)


async def test_a_session_without_a_grant_in_the_journal_is_not_gone_on_with() -> None:
    journal = MemoryJournal()
    begun = Seed(
        session=SESSION, episode=EPISODE, request=grant_digest(EPISODE, OWN), at=NOW
    )
    await carry_out(journal, agent_session_stream(SESSION), DECIDER, begun, READY)
    async with serving(journal) as it:
        reply = await it.post("/v1/agent_sessions", seed())
        late = await it.post(
            "/v1/responses",
            HELLO,
            str(reply.headers["set-cookie"]).partition("=")[2].partition(";")[0],
        )

    assert (reply.status_code, late.status_code) == (200, 409)


async def test_a_close_that_takes_too_long_says_so_and_can_be_asked_again() -> None:
    journal = MemoryJournal()
    await left_behind(journal, OWN)
    slow = MemoryHolders(FIRST, {DEAD})
    patience = Patience(close_timeout_seconds=0.2)
    async with serving(journal, own=True, holders=slow, patience=patience) as it:
        late = await it.close()
        slow.others.clear()
        closed = await it.close()

    assert (late.status_code, late.json()["kind"]) == (504, "close_late")
    assert closed.status_code == 200


async def test_what_could_not_be_given_back_at_the_end_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = StuckProvider()
    async with serving(own=True, provider=provider) as it:
        await it.seeded()
        provider.stuck = True

    assert "Session s1 was not given back" in caplog.text


async def test_tokens_come_with_a_repeated_seed_and_sharing_is_in_the_descriptor() -> (
    None
):
    shared = SandboxAccess(
        provider="fake", descriptor={"id": "b", SHARED_WORD: "true"}, workdir="/"
    )
    grant = SessionGrant(task=TASK, access=shared)

    assert grant.shares
    assert grant.lent is not None
    assert SHARED_WORD not in grant.lent.descriptor
    assert not LENT.shares
    assert OWN.lent is None
    assert OWN.sandbox_digest is None


async def test_a_run_that_cannot_be_stopped_in_a_lent_sandbox_fails_the_close() -> None:
    journal = MemoryJournal()
    provider = BreakableProvider()
    provider.live[ClaimId("box")] = OWNER
    await left_behind(journal, LENT, READY, activation())
    harness = ScriptedHarness()
    async with serving(journal, provider=provider, harness=harness) as it:
        closed = await it.close()

    # No Python there: nothing of it can be stopped, nor is there anything to stop.
    assert closed.status_code == 200
    assert provider.live, "a lent sandbox is not ended"


async def holder_of(claim: ClaimId, journal: MemoryJournal) -> Holder | None:
    history = await journal.read(claim_stream(claim))
    return DECIDER_OF_CLAIMS.replay(history.events).holder


async def left_with_a_sandbox(
    journal: MemoryJournal, provider: BreakableProvider
) -> ClaimId:
    """Leave a session that is ready, with a sandbox of its own."""
    await left_behind(journal, OWN)
    seeded = (await journal.read(agent_session_stream(SESSION))).events[0]
    assert isinstance(seeded, SeedStarted)
    claim = claim_of(seeded)
    outside = Outside(journal=journal, provider=provider, holders=MemoryHolders(DEAD))
    await outside.claim(claim, SandboxSpec(), used_by="a test")
    ready = MarkReady(claim=claim, at=NOW)
    await carry_out(journal, agent_session_stream(SESSION), DECIDER, ready)
    return claim


async def until_held(claim: ClaimId, journal: MemoryJournal) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while await holder_of(claim, journal) == DEAD:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_dead_server_s_session_has_its_place_until_it_is_over() -> None:
    journal, provider = MemoryJournal(), BreakableProvider()
    await left_with_a_sandbox(journal, provider)
    patience = Patience(close_retry_window_seconds=0.4)
    first = MemoryHolders(FIRST, {SECOND})
    second = MemoryHolders(SECOND, {FIRST})
    async with serving(
        journal,
        own=True,
        provider=provider,
        holders=first,
        patience=patience,
        places=1,
    ) as it:
        with anyio.fail_after(WAIT_SECONDS):
            while not it.served.remembered:  # noqa: ASYNC110 - it has no event
                await anyio.sleep(0.01)
        full = await it.post("/v1/agent_sessions", seed("s2"))
        async with serving(
            journal, own=True, provider=provider, holders=second
        ) as other:
            await other.close()
        with anyio.fail_after(WAIT_SECONDS):
            while (await it.post("/v1/agent_sessions", seed("s2"))).is_error:  # noqa: ASYNC110
                await anyio.sleep(0.05)

    assert (full.status_code, full.json()["kind"]) == (429, "admission_full")


async def admitted(server: Server) -> None:
    """Return once another session has a place."""
    with anyio.fail_after(WAIT_SECONDS):
        while (await server.post("/v1/agent_sessions", seed("s2"))).is_error:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_dead_server_s_session_in_a_lent_sandbox_has_its_place_at_all() -> None:
    journal, provider = MemoryJournal(), BreakableProvider()
    await left_behind(journal, LENT, READY)
    dead = SharedPlaces(
        journal=journal,
        clock=SystemClock(),
        holders=MemoryHolders(DEAD),
        name="agent_sessions",
        places=1,
    )
    assert await dead.take(Ticket(SESSION)) == 0
    first = MemoryHolders(FIRST, {SECOND})
    second = MemoryHolders(SECOND, {FIRST})
    async with serving(journal, provider=provider, holders=first, places=1) as it:
        with anyio.fail_after(WAIT_SECONDS):
            while not it.served.remembered:  # noqa: ASYNC110 - it has no event
                await anyio.sleep(0.01)
        full = await it.post("/v1/agent_sessions", seed("s2"))
        async with serving(
            journal, provider=provider, holders=second, places=1
        ) as other:
            elsewhere = await other.post("/v1/agent_sessions", seed("s3"))
        closed = await it.close()
        await admitted(it)

    told = [(one.status_code, one.json()["kind"]) for one in (full, elsewhere)]
    assert told == [(429, "admission_full")] * 2, "its place is one of all servers"
    assert closed.status_code == 200


async def test_a_dead_server_s_run_has_its_place_while_another_goes_on_with_it() -> (
    None
):
    journal, provider = MemoryJournal(), WaitingProvider()
    await left_behind(journal, LENT, READY, activation())
    replies: list[httpx.Response] = []
    async with serving(journal, provider=provider, places=1) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(it.served.activate, SESSION, HELLO)
            await provider.asked.wait()
            replies.append(await it.post("/v1/agent_sessions", seed("s2")))
            provider.may_answer.set()
        # The sandbox was gone, and so is the session's place.
        await admitted(it)

    (full,) = replies
    assert (full.status_code, full.json()["kind"]) == (429, "admission_full")


class WaitingProvider(BreakableProvider):
    """Tells that a sandbox is gone when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = anyio.Event(), anyio.Event()

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId):  # type: ignore[no-untyped-def]
        self.asked.set()
        await self.may_answer.wait()
        return await BreakableProvider.connect(self, access, borrower=borrower)


@pytest.mark.case("FC-142")
async def test_a_dead_server_s_sandbox_is_held_until_its_session_is_closed() -> None:
    journal, provider = MemoryJournal(), BreakableProvider()
    patience = Patience(idle_timeout_seconds=0.4)
    claim = await left_with_a_sandbox(journal, provider)
    async with serving(
        journal,
        own=True,
        provider=provider,
        holders=MemoryHolders(FIRST),
        patience=patience,
    ) as it:
        await until_held(claim, journal)
        with anyio.fail_after(WAIT_SECONDS):
            while provider.live:  # noqa: ASYNC110 - it has no event
                await anyio.sleep(0.01)
        closed = await it.close()

    assert closed.status_code == 200
    assert provider.made == [claim]


async def under_way(journal: MemoryJournal) -> bool:
    history = await journal.read(agent_session_stream(SESSION))
    return DECIDER.replay(history.events).activations.under_way is not None


async def test_a_dead_server_s_run_is_seen_to_its_end_though_nobody_asks() -> None:
    journal, provider = MemoryJournal(), BreakableProvider()
    harness = ScriptedHarness()
    await left_with_a_sandbox(journal, provider)
    await carry_out(journal, agent_session_stream(SESSION), DECIDER, activation())
    async with serving(journal, own=True, provider=provider, harness=harness) as it:
        with anyio.fail_after(WAIT_SECONDS):
            while await under_way(journal):  # noqa: ASYNC110 - it has no event
                await anyio.sleep(0.01)
        ending = await it.served.activate(SESSION, HELLO)
        closed = await it.close()

    assert ending.outcome is Outcome.COMPLETED
    assert closed.json()["agent_observations"]["records"]
    assert len(harness.started) == 1
    assert provider.live == {}


async def test_a_dead_server_s_run_that_nobody_can_look_at_waits_for_who_asks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal, provider = MemoryJournal(), BreakableProvider()
    harness = ScriptedHarness(
        fault=SandboxFailed(
            provider="fake", sandbox="box", operation="look", reason="it is away"
        )
    )
    await left_with_a_sandbox(journal, provider)
    await carry_out(journal, agent_session_stream(SESSION), DECIDER, activation())
    async with serving(journal, own=True, provider=provider, harness=harness) as it:
        with anyio.fail_after(WAIT_SECONDS):
            while "is not finished" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        harness.fault = None
        ending = await it.served.activate(SESSION, HELLO)
        await it.close()

    assert ending.outcome is Outcome.COMPLETED
    assert provider.live == {}


@pytest.mark.parametrize("asked_again", [True, False])
async def test_a_dead_server_s_run_whose_sandbox_was_given_back_ends_and_closes(
    asked_again: bool,
) -> None:
    journal, provider = MemoryJournal(), BreakableProvider()
    claim = await left_with_a_sandbox(journal, provider)
    await carry_out(journal, agent_session_stream(SESSION), DECIDER, activation())
    label = ClaimLabel(claim=claim, owner=OWNER)
    await Outside(journal=journal, provider=provider).release(label, reason="reaped")
    async with serving(journal, own=True, provider=provider) as it:
        if asked_again:
            ending = await it.served.activate(SESSION, HELLO)
            assert ending.outcome is Outcome.SANDBOX_ERROR
        closed = await it.close()

    assert closed.status_code == 200
    assert closed.json()["agent_observations"]["records"]
    assert provider.live == {}


class ReadJournal(MemoryJournal):
    """Counts what is read."""

    reads = 0

    async def read(self, *words: object, **more: object) -> History[object]:
        self.reads += 1
        return await MemoryJournal.read(self, *words, **more)  # type: ignore[arg-type]


async def test_looking_for_dead_processes_sessions_reads_none_that_are_served_here() -> (
    None
):
    journal = ReadJournal()
    async with serving(journal, own=True) as it:
        for name in ("a", "b", "c"):
            reply = await it.post("/v1/agent_sessions", seed(name))
            assert reply.status_code == 200
        await anyio.wait_all_tasks_blocked()
        journal.reads = 0

        assert await it.served.sessions.adopt() == ()
        assert journal.reads == 0
