# SPDX-License-Identifier: Apache-2.0
"""Sessions over HTTP: once however often asked, conflicts by code, nothing kept."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
import attrs
import httpx
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.domain.agent_sessions import AgentSessionId
from livery.domain.claims import ClaimId, Holder
from livery.domain.platforms import LibcTooOld
from livery.ports.provided.relay_connections import RelayFailed
from livery.ports.provided.sandbox_programs import RuntimeMissing
from livery.ports.provided.serve_sessions import Patience
from livery.ports.required.harness import RequestRefused
from livery.ports.required.journal import Stream
from livery.ports.required.sandbox import (
    Sandbox,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
)
from livery.ports.required.sandbox_provider import (
    Capability,
    CapacityExhausted,
    CreateFailed,
)

from ..benchmarks.nothing_provider import NothingSandbox
from ..use_cases.outside import OWNER, BreakableProvider
from .scripted import (
    HELLO,
    ScriptedHarness,
    ScriptedOutfit,
    SlowProvider,
    StuckProvider,
    cookie_of,
    lent,
    seed,
    serving,
)

pytestmark = pytest.mark.anyio

E = TypeVar("E")
WAIT_SECONDS = 10.0
SEEDS, ACTIVATIONS, CLOSES = (
    "/v1/agent_sessions",
    "/v1/responses",
    "/v1/agent_sessions/close",
)


async def together(
    *asks: Callable[[], Awaitable[httpx.Response]],
) -> list[httpx.Response]:
    replies: dict[int, httpx.Response] = {}

    async def ask(number: int, one: Callable[[], Awaitable[httpx.Response]]) -> None:
        replies[number] = await one()

    with anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as group:
            for number, one in enumerate(asks):
                group.start_soon(ask, number, one)
    return [replies[number] for number in range(len(asks))]


def told(reply: httpx.Response) -> tuple[int, object, object]:
    body = reply.json()
    return reply.status_code, body.get("kind"), body.get("state")


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await anyio.sleep(0.01)


@pytest.mark.case("FC-109")
async def test_of_twenty_equal_seeds_one_makes_a_sandbox() -> None:
    async with serving(own=True) as it:
        replies = await together(*[lambda: it.post(SEEDS, seed())] * 20)

        assert {(r.status_code, r.text) for r in replies} == {
            (200, '{"agent_session_id":"s1"}')
        }
        assert len(it.provider.made) == 1


@pytest.mark.case("FC-112", "FC-113")
async def test_of_equal_activations_one_runs_and_all_get_the_same_bytes() -> None:
    async with serving(harness=ScriptedHarness(may_end=anyio.Event())) as it:
        cookie = await it.seeded()
        may_end = it.harness.may_end
        assert may_end is not None

        async def release() -> httpx.Response:
            await it.harness.running.wait()
            may_end.set()
            return await it.post(ACTIVATIONS, HELLO, cookie)

        keyed = "/ng-rollout/r1/training-token-capture/v1/responses"
        replies = await together(
            lambda: it.post(ACTIVATIONS, HELLO, cookie),
            lambda: it.post(keyed, HELLO, cookie),
            lambda: it.post("/ng-rollout/r1/v1/responses", HELLO, cookie),
            release,
        )
        replies.append(await it.post(ACTIVATIONS, {**HELLO, "tools": []}, cookie))
        other = await it.post(ACTIVATIONS, {"input": "another"}, cookie)

    assert {r.content for r in replies} == {replies[0].content}
    assert {r.status_code for r in replies} == {200}
    assert told(other)[:2] == (409, "activation_conflict")
    assert len(it.harness.started) == 1


@pytest.mark.case("FC-123", "FC-085", "FC-110")
async def test_each_conflict_has_a_code_and_tells_the_state() -> None:
    async with serving() as it:
        unknown = await it.post(ACTIVATIONS, HELLO)
        cookie = await it.seeded()
        another = await it.post(SEEDS, seed(task_id={"taskset": "x", "task_id": "y"}))
        by_cookie = await it.post(SEEDS, seed("s2"), cookie)
        elsewhere = {"agent_session_id": "s1", "episode_id": {"rollout_id": "o"}}
        episode = await it.post(CLOSES, elsewhere)
        await it.close()
        closed = await it.post(SEEDS, seed())
        late = await it.post(ACTIVATIONS, HELLO, cookie)

    assert [told(r) for r in (unknown, another, by_cookie, episode, closed, late)] == [
        (409, "session_unknown", "absent"),
        (409, "seed_conflict", "ready"),
        (409, "cookie_mismatch", "absent"),
        (409, "episode_mismatch", "ready"),
        (409, "session_closed", "closed"),
        (409, "session_closed", "closed"),
    ]


@pytest.mark.case("FC-083", "FC-084")
async def test_who_lost_the_seed_reply_closes_by_id_and_twice() -> None:
    async with serving(own=True) as it:
        await it.seeded()

        replies = await together(it.close, it.close)
        again = await it.close()

    assert {r.content for r in (*replies, again)} == {again.content}
    assert again.json()["agent_observations"]["gaps"][0]["code"] == "no_activation"
    assert it.provider.live == {}


async def test_close_of_an_unknown_id_answers_nulls_and_keeps_the_id_from_use() -> None:
    async with serving() as it:
        closed = await it.close("never")
        late = await it.post(SEEDS, seed("never"))

    assert closed.json() == {
        "agent_session_id": "never",
        "agent_observations": None,
        "resources_cookies": None,
    }
    assert told(late) == (409, "session_closed", "closed")


@pytest.mark.case("FC-083")
async def test_a_close_that_comes_while_the_seed_runs_releases_what_it_made() -> None:
    provider = SlowProvider()
    made, may_go_on = provider.one_made, provider.may_go_on
    async with serving(own=True, provider=provider) as it:

        async def close() -> httpx.Response:
            await made.wait()
            return await it.close()

        async def go_on() -> httpx.Response:
            await made.wait()
            await anyio.sleep(0.05)
            may_go_on.set()
            return await it.client.get("/livez")

        seeded, closed, _ = await together(lambda: it.post(SEEDS, seed()), close, go_on)

    assert told(seeded)[:2] == (409, "session_closing")
    assert closed.status_code == 200
    assert provider.live == {}
    assert len(provider.made) == 1


@pytest.mark.case("FC-011")
async def test_a_seed_that_finds_no_room_says_so_at_once_and_frees_the_id() -> None:
    full = CapacityExhausted("fake", "pods: 0 of 0")
    async with serving(own=True, provider=BreakableProvider(create_fault=full)) as it:
        refused = await it.post(SEEDS, seed())
        it.provider.create_fault = None
        again = await it.post(SEEDS, seed())

    assert told(refused)[:2] == (503, "capacity_exhausted")
    assert "pods: 0 of 0" in refused.text
    assert again.status_code == 200


async def test_what_a_failed_seed_could_not_release_stays_for_close() -> None:
    broken = CreateFailed("fake", "c", "create", "scripted")
    provider = StuckProvider(create_fault=broken, late=True, stuck=True)
    async with serving(own=True, provider=provider) as it:
        refused = await it.post(SEEDS, seed())
        again = await it.post(SEEDS, seed())
        stuck = await it.close()
        provider.stuck = False
        closed = await it.close()

    assert told(refused)[:2] == (502, "create_failed")
    assert told(again) == (409, "session_closing", "setup failed")
    assert told(stuck)[:2] == (502, "destroy_failed")
    assert closed.status_code == 200
    assert provider.live == {}


@pytest.mark.case("FC-106")
async def test_a_lent_sandbox_serves_one_open_session_unless_both_share() -> None:
    async with serving() as it:
        for box in ("box-1", "box-2"):
            it.provider.live[ClaimId(box)] = OWNER
        first = await it.post(SEEDS, seed("a", sandbox_access=lent("box-1")))
        second = await it.post(SEEDS, seed("b", sandbox_access=lent("box-1")))
        one_asks = await it.post(
            SEEDS, seed("c", sandbox_access=lent("box-1", **{"livery.shared": "true"}))
        )
        await it.close("a")
        freed = await it.post(SEEDS, seed("d", sandbox_access=lent("box-1")))
        shared = {"sandbox_access": lent("box-2", **{"livery.shared": "true"})}
        both = [await it.post(SEEDS, seed(name, **shared)) for name in ("e", "f")]

    assert first.status_code == freed.status_code == 200
    assert told(second)[:2] == told(one_asks)[:2] == (409, "sandbox_in_use")
    assert [r.status_code for r in both] == [200, 200]
    assert it.provider.ended == [], "a borrower ends nothing"


async def test_a_lent_sandbox_is_the_same_one_however_it_is_spelled() -> None:
    provider = Spelling(aliases={"9f1c": "box"}, live={ClaimId("box"): OWNER})
    journal = MemoryJournal()
    async with serving(journal, provider=provider) as it:
        first = await it.post(SEEDS, seed("a", sandbox_access=lent("9f1c")))
        second = await it.post(SEEDS, seed("b", sandbox_access=lent("box")))
        reached = list(provider.reached)
        provider.fault = SandboxFailed("fake", "9f1c", "identify", "scripted")
        again = await it.post(SEEDS, seed("a", sandbox_access=lent("9f1c")))
        unseen = await it.post(SEEDS, seed("c", sandbox_access=lent("9f1c")))
        provider.fault = None
        await it.close("a")
        left = await journal.open_streams("lent_sandboxes")
        freed = await it.post(SEEDS, seed("b", sandbox_access=lent("box")))

    assert first.status_code == again.status_code == freed.status_code == 200
    assert told(second)[:2] == (409, "sandbox_in_use")
    assert told(unseen)[:2] == (502, "sandbox_failed")
    assert reached == ["a"], "who is refused has not been in the sandbox"
    assert left == ()


@attrs.define
class Spelling(BreakableProvider):
    """Tells who was in its sandboxes, and cannot tell which is which at times."""

    reached: list[str] = attrs.field(factory=list[str])
    fault: Exception | None = None

    async def identify(self, access: SandboxAccess) -> SandboxId:
        if self.fault is not None:
            raise self.fault
        return await BreakableProvider.identify(self, access)

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> NothingSandbox:
        self.reached.append(borrower)
        return await BreakableProvider.connect(self, access, borrower=borrower)


async def test_of_two_that_borrow_one_sandbox_at_once_one_gets_it() -> None:
    async with serving() as it:
        it.provider.live[ClaimId("box")] = OWNER
        access = {"sandbox_access": lent("box")}

        replies = await together(
            *[lambda n=n: it.post(SEEDS, seed(f"s{n}", **access)) for n in range(6)]
        )

    assert sorted(r.status_code for r in replies) == [200, 409, 409, 409, 409, 409]


async def test_a_provider_that_is_not_configured_is_refused_with_its_place() -> None:
    access = lent("box")
    connection = access["connection"]
    assert isinstance(connection, dict)
    connection["provider_config_ref"] = "nowhere"
    async with serving() as it:
        refused = await it.post(SEEDS, seed(sandbox_access=access))

    (mistake,) = refused.json()["detail"]
    assert refused.status_code == 422
    assert mistake["loc"] == [
        "body",
        "sandbox_access",
        "connection",
        "provider_config_ref",
    ]
    assert mistake["input"] == "nowhere" or mistake["input"] is None


async def test_what_a_harness_does_not_take_is_refused_with_the_field() -> None:
    field = "responses_create_params.input[0].content"
    harness = ScriptedHarness(refusal=RequestRefused("scripted", field, "no images"))
    async with serving(harness=harness) as it:
        cookie = await it.seeded()
        refused = await it.post(ACTIVATIONS, HELLO, cookie)
        harness.refusal = None
        taken = await it.post(ACTIVATIONS, HELLO, cookie)

    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "input", 0, "content"]
    assert refused.json()["detail"][0]["input"] == "hello"
    assert taken.status_code == 200, "nothing was begun"


@pytest.mark.case("FC-180")
async def test_every_reply_but_500_sets_the_cookie_again() -> None:
    async with serving() as it:
        cookie = await it.seeded()
        replies = [
            await it.post(ACTIVATIONS, HELLO, cookie),
            await it.post(ACTIVATIONS, b"{", cookie),
            await it.post(SEEDS, seed("other"), cookie),
            await it.close(cookie=cookie),
        ]
        it.harness.refusal = ZeroDivisionError("a mistake of ours")
        fresh = await it.seeded("s2")
        unexpected = await it.post(ACTIVATIONS, HELLO, fresh)

    payloads = [cookie_of(reply).partition(".")[0] for reply in replies]
    assert set(payloads) == {cookie.partition(".")[0]}
    assert unexpected.status_code == 500
    assert "set-cookie" not in unexpected.headers
    assert "ZeroDivision" not in unexpected.text


@pytest.mark.case("FC-166")
async def test_what_a_provider_cannot_do_is_refused_at_seed() -> None:
    needs = frozenset({Capability.ISOLATION, Capability.NETWORK_NONE})
    harness = ScriptedHarness(needs=needs)
    async with serving(own=True, harness=harness) as it:
        own = await it.post(SEEDS, seed())
        it.provider.live[ClaimId("box")] = OWNER
        borrowed = await it.post(SEEDS, seed("s2", sandbox_access=lent("box")))

    assert told(own)[:2] == told(borrowed)[:2] == (422, "unsupported")
    assert "fake cannot do isolation" in own.text
    assert it.provider.made == []


async def test_seeds_beyond_the_places_are_sent_away_and_hold_nothing() -> None:
    async with serving(own=True, places=1) as it:
        await it.seeded("a")
        repeated = await it.post(SEEDS, seed("a"))
        full = await it.post(SEEDS, seed("b"))
        await it.close("a")
        free = await it.post(SEEDS, seed("b"))

    assert repeated.status_code == free.status_code == 200
    assert told(full)[:2] == (429, "admission_full")
    assert full.headers["retry-after"]
    assert [claim[:7] for claim in it.provider.made] == ["agent-a", "agent-b"]


@attrs.define
class LateJournal:
    """A journal whose first append to a session is kept before its writer is told."""

    kept: MemoryJournal = attrs.field(factory=MemoryJournal)
    written: anyio.Event = attrs.field(factory=anyio.Event)
    may_tell: anyio.Event = attrs.field(factory=anyio.Event)

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        version = await self.kept.append(
            stream, events, expected_version=expected_version
        )
        if stream.category == "agent_sessions" and not self.written.is_set():
            self.written.set()
            await self.may_tell.wait()
        return version

    def __getattr__(self, name: str) -> object:
        return getattr(self.kept, name)


async def test_a_seed_that_conflicts_gives_no_place_of_another_s_back() -> None:
    journal = LateJournal()
    async with serving(journal, own=True, places=1) as it:

        async def conflict() -> httpx.Response:
            await journal.written.wait()
            refused = await it.post(
                SEEDS, seed(task_id={"taskset": "x", "task_id": "y"})
            )
            journal.may_tell.set()
            return refused

        first, refused = await together(lambda: it.post(SEEDS, seed()), conflict)
        beyond = await it.post(SEEDS, seed("s2"))

    assert (first.status_code, refused.status_code) == (200, 409)
    assert told(beyond)[:2] == (429, "admission_full")


async def test_places_are_counted_over_all_servers_on_a_journal() -> None:
    journal = MemoryJournal()
    names = [Holder("one"), Holder("two")]
    one, two = (MemoryHolders(own=own, others={*names}) for own in names)
    async with (
        serving(journal, holders=one, places=2) as first,
        serving(journal, holders=two, places=2, wait_seconds=WAIT_SECONDS) as second,
    ):
        await first.seeded("a")
        await second.seeded("b")
        beyond = await first.post(SEEDS, seed("c"))

        async def close() -> httpx.Response:
            await until(lambda: second.served.admit.queue._admission.holds("d"))
            return await first.close("a")

        waited, _ = await together(lambda: second.post(SEEDS, seed("d")), close)
        for session in ("b", "d"):
            await second.close(session)
        left = await journal.open_streams("places")

    assert told(beyond)[:2] == (429, "admission_full")
    assert waited.status_code == 200
    assert left == ()


async def test_a_seed_may_wait_for_its_place() -> None:
    async with serving(places=1, wait_seconds=WAIT_SECONDS) as it:
        await it.seeded("a")

        async def close() -> httpx.Response:
            await until(lambda: it.served.admit.queue._waits("b"))
            return await it.close("a")

        waited, _ = await together(lambda: it.post(SEEDS, seed("b")), close)

    assert waited.status_code == 200


@pytest.mark.case("FC-086")
async def test_close_cancels_what_runs_and_returns_its_observations() -> None:
    async with serving(harness=ScriptedHarness(hangs=True)) as it:
        cookie = await it.seeded()

        async def close() -> httpx.Response:
            await it.harness.running.wait()
            return await it.close()

        ended, closed = await together(
            lambda: it.post(ACTIVATIONS, HELLO, cookie), close
        )

    assert ended.json()["status"] == "cancelled"
    assert closed.json()["agent_observations"]["records"]


@pytest.mark.case("FC-086")
async def test_close_returns_what_was_observed_also_when_it_is_just_being_read() -> (
    None
):
    async with serving(harness=ScriptedHarness(first_read_hangs=True)) as it:
        cookie = await it.seeded()

        async def close() -> httpx.Response:
            await it.harness.reading.wait()
            return await it.close()

        ended, closed = await together(
            lambda: it.post(ACTIVATIONS, HELLO, cookie), close
        )

    assert ended.json()["output"][0]["content"][0]["text"] == "done"
    (record,) = closed.json()["agent_observations"]["records"]
    assert record["kind"] == "agent_invocation"
    assert closed.json()["agent_observations"]["gaps"] == []


async def test_a_sandbox_in_which_nothing_can_be_supervised_is_refused_at_seed() -> (
    None
):
    async def inspect(sandbox: Sandbox) -> None:
        raise RuntimeMissing("python3", "no such file")

    async with serving(own=True, inspect=inspect) as it:
        it.provider.live[ClaimId("box")] = OWNER
        own = await it.post(SEEDS, seed())
        borrowed = await it.post(SEEDS, seed("s2", sandbox_access=lent("box")))
        free = await it.post(SEEDS, seed(task_id={"taskset": "x", "task_id": "y"}))

    assert {told(r)[:2] for r in (own, borrowed, free)} == {(422, "runtime_missing")}
    assert it.provider.live == {"box": OWNER}, "a borrower ends nothing"


async def test_closed_sessions_are_forgotten_without_a_trace() -> None:
    patience = Patience(close_retry_window_seconds=0.2)
    async with serving(patience=patience) as it:
        cookie = await it.seeded()
        await it.post(ACTIVATIONS, HELLO, cookie)
        await it.close()
        kept = await it.post(SEEDS, seed())
        await until(lambda: it.served.remembered == 0)
        by_cookie = await it.post(SEEDS, seed(), cookie)
        again = await it.post(SEEDS, seed())

    assert told(kept)[:2] == (409, "session_closed")
    assert told(by_cookie) == (409, "session_unknown", "absent")
    assert again.status_code == 200


async def test_no_more_closed_sessions_are_kept_than_may_be() -> None:
    async with serving(patience=Patience(closed_max=2)) as it:
        for number in range(5):
            await it.close(f"s{number}")

        assert it.served.remembered == 2
        assert (await it.post(SEEDS, seed("s0"))).status_code == 200
        assert (await it.post(SEEDS, seed("s4"))).status_code == 409


@pytest.mark.case("FC-103")
async def test_a_session_that_nobody_uses_is_closed_and_says_why() -> None:
    async with serving(own=True, patience=Patience(idle_timeout_seconds=0.2)) as it:
        cookie = await it.seeded()
        await until(lambda: not it.provider.live)
        gone = await it.post(ACTIVATIONS, HELLO, cookie)

    assert told(gone) == (409, "session_closed", "closed")
    assert gone.json()["reason"] == "nobody used it for 0.2 seconds"


@pytest.mark.case("FC-107")
async def test_a_session_that_is_idle_for_its_caller_alone_is_not_closed() -> None:
    patience = Patience(idle_timeout_seconds=2.0)
    may_end = anyio.Event()
    harness = ScriptedHarness(may_end=may_end)
    replies: list[httpx.Response] = []
    async with serving(own=True, patience=patience, harness=harness) as it:
        cookie = await it.seeded("long")
        async with anyio.create_task_group() as group:

            async def activate() -> None:
                replies.append(await it.post(ACTIVATIONS, HELLO, cookie))

            group.start_soon(activate)
            await until(lambda: it.served.sessions.runs(AgentSessionId("long")))
            await it.seeded("idle")  # Used later than the other, and closed before it.
            await until(lambda: len(it.provider.live) == 1)
            may_end.set()

    assert [reply.status_code for reply in replies] == [200]


@pytest.mark.case("FC-122")
async def test_one_session_that_fails_inside_harms_no_other() -> None:
    async with serving(places=100) as it:
        cookies = [await it.seeded(f"s{n}") for n in range(20)]
        it.harness.refusal = ZeroDivisionError()
        failed = await it.post(ACTIVATIONS, HELLO, cookies[0])
        it.harness.refusal = None
        others = await together(
            *[lambda c=c: it.post(ACTIVATIONS, HELLO, c) for c in cookies[1:]]
        )

    assert failed.json() == {"detail": "Internal server error", "kind": "unexpected"}
    assert {r.status_code for r in others} == {200}


async def two_servers(journal: MemoryJournal) -> tuple[MemoryHolders, MemoryHolders]:
    first, second = Holder("first"), Holder("second")
    return MemoryHolders(first, {second}), MemoryHolders(second, {first})


@pytest.mark.case("FC-112", "FC-113")
async def test_what_one_server_runs_another_waits_for_and_may_close() -> None:
    journal = MemoryJournal()
    holders = await two_servers(journal)
    harness = ScriptedHarness(hangs=True)
    async with (
        serving(journal, holders=holders[0], harness=harness) as first,
        serving(journal, holders=holders[1]) as second,
    ):
        cookie = await first.seeded()

        async def repeat() -> httpx.Response:
            await harness.running.wait()
            return await second.post(ACTIVATIONS, HELLO, cookie)

        async def close() -> httpx.Response:
            await harness.running.wait()
            conflict = await second.post(ACTIVATIONS, {"input": "other"}, cookie)
            assert told(conflict)[:2] == (409, "activation_conflict")
            return await second.close()

        mine, theirs, closed = await together(
            lambda: first.post(ACTIVATIONS, HELLO, cookie),
            repeat,
            close,
        )
        again = await first.close()
        await until(lambda: first.served.sessions.open_here == ())

    assert mine.json()["status"] == "cancelled"
    # Whoever asks just after the close is told that it is closed.
    assert theirs.content == mine.content or theirs.status_code == 409
    assert again.content == closed.content
    assert second.harness.started == []


async def test_a_dead_server_s_run_is_taken_over_and_never_begun_again() -> None:
    journal, box = MemoryJournal(), ClaimId("box")
    dead, alive = Holder("dead"), Holder("alive")
    harness = ScriptedHarness(hangs=True)
    provider = BreakableProvider()
    provider.live[box] = OWNER
    async with (
        serving(
            journal, holders=MemoryHolders(alive, set()), provider=provider
        ) as second,
        serving(
            journal, holders=MemoryHolders(dead), harness=harness, provider=provider
        ) as first,
    ):
        cookie = await first.seeded(sandbox_access=lent("box"))
        first.served.group.start_soon(first.post, ACTIVATIONS, HELLO, cookie)
        await harness.running.wait()

        taken = await second.post(ACTIVATIONS, HELLO, cookie)
        closed = await second.close()

    # The harness of the scripts runs nothing in a sandbox, so nothing was to be found.
    assert taken.status_code == 200
    assert len(second.harness.started) <= 1
    assert closed.json()["agent_observations"]["records"]


async def test_tokens_of_tools_are_in_no_journal_and_missed_where_they_are_needed() -> (
    None
):
    journal = MemoryJournal()
    holders = await two_servers(journal)
    tools = [
        {
            "kind": "mcp",
            "name": "tools",
            "required": True,
            "connection": {"url": "http://tools/mcp", "headers": {"X-T": "token-1"}},
        }
    ]
    async with (
        serving(journal, holders=holders[0]) as first,
        serving(journal, holders=holders[1]) as second,
    ):
        cookie = await first.seeded(tool_accesses=tools)
        refused = await second.post(ACTIVATIONS, HELLO, cookie)
        await second.seeded(tool_accesses=tools)
        taken = await second.post(ACTIVATIONS, HELLO, cookie)

    assert told(refused)[:2] == (409, "grant_lost")
    assert taken.status_code == 200
    (request,) = second.harness.started
    assert request.tool_accesses[0].headers == {"X-T": "token-1"}
    assert "token-1" not in repr(journal)


async def test_shutting_down_ends_runs_and_takes_nothing_new() -> None:
    async with serving(harness=ScriptedHarness(hangs=True)) as it:
        cookie = await it.seeded()

        async def drain() -> httpx.Response:
            await it.harness.running.wait()
            await it.served.drain()
            return await it.post(SEEDS, seed("late"))

        ended, late = await together(lambda: it.post(ACTIVATIONS, HELLO, cookie), drain)
        ready = await it.client.get("/readyz")
        closed = await it.close()

    assert ended.json()["status"] == "cancelled"
    assert told(late)[:2] == (503, "admission_shut")
    assert ready.status_code == 503
    assert closed.json()["agent_observations"]["records"]


async def test_what_a_harness_needs_is_brought_at_seed_and_taken_back_at_close() -> (
    None
):
    outfit = ScriptedOutfit()
    provider = BreakableProvider(capabilities=frozenset({Capability.ISOLATION}))
    provider.live[ClaimId("box")] = OWNER
    async with serving(outfit=outfit, provider=provider) as it:
        cookie = await it.seeded(sandbox_access=lent("box"))
        prefix = "/ng-rollout/a%20b/training-token-capture"
        await it.post(f"{prefix}{ACTIVATIONS}", HELLO, cookie)
        await it.close()
        outfit.fault = RequestRefused("scripted", "metadata", "no such program")
        refused = await it.post(SEEDS, seed("s2", sandbox_access=lent("box")))

    (place,) = it.harness.places
    assert (place.runtime_path, place.is_boundary) == ("/opt/reached", True)
    assert outfit.reached == [("s1", "/ng-rollout/a%20b/training-token-capture")]
    assert outfit.brought == ["s1"]
    assert outfit.taken_back == ["s1", "s2"]
    assert refused.status_code == 422


async def test_a_seed_whose_program_cannot_be_brought_gives_back_what_was_made() -> (
    None
):
    fault = LibcTooOld("claude_code", "2.26", "2.17")
    async with serving(own=True, outfit=ScriptedOutfit(fault=fault)) as it:
        refused = await it.post(SEEDS, seed("s1"))

    assert told(refused)[:2] == (422, "libc_too_old")
    assert len(it.provider.made) == 1
    assert it.provider.live == {}


async def test_a_run_that_reaches_nothing_is_not_launched_and_says_so() -> None:
    outfit = ScriptedOutfit(unreached=RelayFailed("the port is taken"))
    async with serving(outfit=outfit) as it:
        cookie = await it.seeded()
        ended = await it.post(ACTIVATIONS, HELLO, cookie)
        again = await it.post(ACTIVATIONS, HELLO, cookie)

    assert ended.status_code == again.status_code == 200
    assert "the port is taken" in ended.text
    assert again.content == ended.content
    assert it.harness.started == []


@pytest.mark.case("FC-147", "FC-099")
async def test_shutting_down_gives_sandboxes_back_and_keeps_sessions() -> None:
    async with serving(own=True, provider=SlowProvider()) as it:
        assert isinstance(it.provider, SlowProvider)
        it.provider.may_go_on.set()
        await it.seeded()
        it.provider.may_go_on = anyio.Event()

        async def drain() -> httpx.Response:
            await until(lambda: len(it.provider.made) == 2)
            await it.served.drain()
            return await it.close()

        cut, closed = await together(lambda: it.post(SEEDS, seed("s2")), drain)

    assert told(cut)[:2] == (503, "admission_shut")
    assert closed.status_code == 200
    assert it.provider.live == {}


@pytest.mark.case("FC-134")
async def test_health_answers_while_a_seed_takes_its_time() -> None:
    slow = BreakableProvider(hangs=True)
    # The seed is given up first, and then what serves it.
    async with serving(own=True, provider=slow) as it:  # noqa: SIM117
        async with anyio.create_task_group() as group:
            group.start_soon(it.post, SEEDS, seed())
            await until(lambda: bool(it.provider.made))
            with anyio.fail_after(WAIT_SECONDS):
                replies = [
                    await it.client.get(path)
                    for path in ("/", "/health", "/healthz", "/livez", "/readyz")
                ]
            group.cancel_scope.cancel()

    assert {(r.status_code, r.text) for r in replies} == {(200, '{"status":"ok"}')}
    assert it.provider.live == {}, "what was being made was undone"
