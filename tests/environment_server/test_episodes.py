# SPDX-License-Identifier: Apache-2.0
"""Episodes over HTTP: run once, admitted in order, cleaned up whatever happens."""

import anyio
import httpx
import pytest
from starlette.responses import JSONResponse, Response

from livery.adapters.journals import MemoryJournal
from livery.domain.claims import Holder
from livery.domain.deciders import Instant
from livery.domain.episodes import DECIDER as EPISODES
from livery.domain.episodes import QueueEpisode, decide
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.ports.required.journal import episode_stream

from .good_partners import Fleet, World, eventually, fleet, run_body

pytestmark = pytest.mark.anyio


def failure(reply: httpx.Response) -> dict[str, object]:
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["result"] is None, body
    found: dict[str, object] = body["failure"]
    return found


def result(reply: httpx.Response) -> dict[str, object]:
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["failure"] is None, body
    found: dict[str, object] = body["result"]
    return found


def same(one: httpx.Response, other: httpx.Response) -> bool:
    """Whether two results are the same, the times of serving them apart."""
    left, right = result(one), result(other)
    return {**left, "livery": None} == {**right, "livery": None}


@pytest.mark.case("FC-112", "FC-113")
async def test_the_same_run_again_gets_the_result_again() -> None:
    async with fleet() as it:
        first = await it.run()
        again = await it.run()

        assert result(first)["reward"] == 1.0
        assert same(first, again)
        assert it.world.activations == 1
        assert it.one.kept_nothing


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.case("FC-112")
async def test_who_asks_meanwhile_joins_whichever_server_is_asked(servers: int) -> None:
    replies: list[httpx.Response] = []
    async with fleet(World(may_act=anyio.Event()), servers=servers) as it:

        async def ask(server: int) -> None:
            replies.append(await it.run(server=server))

        async with anyio.create_task_group() as group:
            group.start_soon(ask, 0)
            await eventually(lambda: it.world.acting == 1)
            for number in range(6):
                group.start_soon(ask, number % servers)
            await anyio.wait_all_tasks_blocked()
            assert it.world.may_act is not None
            it.world.may_act.set()

        assert it.world.activations == 1
        assert len(it.world.seeded) == len(it.world.closed) == 2
    assert all(same(replies[0], other) for other in replies)


@pytest.mark.parametrize("under_way", [True, False])
@pytest.mark.case("FC-110", "FC-123")
async def test_another_task_under_the_name_is_a_conflict(under_way: bool) -> None:
    world = World(may_act=anyio.Event() if under_way else None)
    async with fleet(world) as it, anyio.create_task_group() as group:
        if under_way:
            group.start_soon(it.run)
            await eventually(lambda: world.acting == 1)
        else:
            await it.run()

        other = await it.run(data="other")

        assert other.status_code == 409
        assert other.json()["kind"] == "episode_conflict"
        if world.may_act is not None:
            world.may_act.set()


@pytest.mark.case("FC-122")
async def test_a_failure_is_not_kept_and_runs_anew_under_new_sessions() -> None:
    world = World()
    world.answers["/verify"] = lambda: JSONResponse({"detail": "the judge is out"}, 500)
    async with fleet(world) as it:
        failed = failure(await it.run())
        del world.answers["/verify"]
        good = await it.run()

        assert failed["stage"] == "verification"
        assert failed["failure_kind"] == "verifier_error"
        assert "the judge is out" in str(failed["failure_reason"])
        assert failed["partial_response"] is not None
        assert result(good)["reward"] == 1.0
        assert len({*world.seeded}) == 4
        assert sorted(world.seeded) == sorted(world.closed)


async def test_run_once_can_be_switched_off_and_leaves_nothing() -> None:
    journal = MemoryJournal()
    async with fleet(journal=journal, run_once=False) as it:
        await it.run()
        await it.run()

        assert it.world.activations == 2
        assert it.one.served.remembered == 0
        assert await journal.open_streams("episodes") == ()


@pytest.mark.case("FC-085")
async def test_a_result_is_kept_for_its_time_and_then_forgotten() -> None:
    async with fleet(result_keep_seconds=0.2) as it:
        await it.run()
        await eventually(lambda: it.one.served.remembered == 0)
        await it.run()

        assert it.world.activations == 2


async def test_only_so_many_results_are_kept() -> None:
    async with fleet(results_kept_max=3, result_keep_seconds=2.0) as it:
        for number in range(8):
            await it.run(f"r{number}")
        await eventually(lambda: it.one.served.remembered <= 3)


@pytest.mark.case("FC-219", "FC-083")
async def test_a_client_that_leaves_is_waited_for_and_then_its_episode_ends() -> None:
    world = World(may_act=anyio.Event())
    async with fleet(world, disconnect_grace_seconds=0.1) as it:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def ask() -> None:
                    await it.run()

                group.start_soon(ask)
                await eventually(lambda: world.acting == 1)
                scope.cancel()
        await eventually(lambda: len(world.closed) == 2)

        assert sorted(world.closed) == sorted(world.seeded)
        assert "/verify" not in world.resources.paths
        assert world.resources.paths[-1] == "/close_session"


@pytest.mark.case("FC-219")
async def test_a_client_that_comes_back_finds_its_episode() -> None:
    world = World(may_act=anyio.Event())
    async with fleet(world, disconnect_grace_seconds=60.0) as it:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(it.run)
                await eventually(lambda: world.acting == 1)
                scope.cancel()
        assert world.may_act is not None
        world.may_act.set()
        reply = await it.run()

        assert result(reply)["reward"] == 1.0
        assert world.activations == 1


@pytest.mark.parametrize(
    ("path", "status", "stage", "terminal"),
    [
        ("/seed_session", 503, "seed", False),
        ("/seed_session", 409, "seed", True),
        ("/agent_sessions", 500, "agent", False),
        ("/agent_sessions", 422, "agent", True),
        ("/responses", 429, "agent", False),
        ("/responses", 400, "agent", True),
        ("/verify", 503, "verification", False),
        ("/verify", 404, "verification", True),
    ],
)
@pytest.mark.case("FC-247")
async def test_a_failed_step_names_its_stage_and_everybody_is_closed(
    path: str, status: int, stage: str, terminal: bool
) -> None:
    world = World()
    world.answers[path] = lambda: JSONResponse({"detail": "no", "kind": "x"}, status)
    async with fleet(world) as it:
        failed = failure(await it.run())

        assert (failed["stage"], failed["terminal"]) == (stage, terminal)
        assert f"{status}" in str(failed["failure_reason"])
        assert {*world.seeded} == {*world.closed}
        assert it.one.kept_nothing


@pytest.mark.parametrize(
    ("path", "reply", "stage"),
    [
        ("/seed_session", JSONResponse({"resources_session_id": "x"}), "seed"),
        ("/seed_session", Response("[]"), "seed"),
        ("/seed_session", Response("no json"), "seed"),
        ("/agent_sessions", JSONResponse({"agent_session_id": "x"}), "agent"),
        ("/responses", JSONResponse({"hello": "world"}), "agent"),
        ("/verify", JSONResponse({"reward": None}), "verification"),
        ("/verify", JSONResponse({"reward": True}), "verification"),
        ("/verify", Response(f'{{"reward": 1{"0" * 400}}}'), "verification"),
        ("/verify", Response('{"reward": 1, "loss": NaN}'), "verification"),
        ("/verify", Response('{"reward": 1, "loss": [1e999]}'), "verification"),
        (
            "/verify",
            Response(f'{{"reward": 1, "x": {"[" * 100_000}{"]" * 100_000}}}'),
            "verification",
        ),
    ],
)
async def test_a_reply_that_cannot_be_used_is_a_terminal_failure(
    path: str, reply: Response, stage: str
) -> None:
    world = World()
    world.answers[path] = lambda: reply
    async with fleet(world) as it:
        failed = failure(await it.run())

        assert (failed["stage"], failed["terminal"]) == (stage, True)


async def test_words_that_were_cut_in_a_character_are_none_the_worse() -> None:
    """Neither a result of them, nor an aggregate: half of it is replaced."""
    half = '{"reward": 1, "x": "\\ud83d"}'
    world = World(
        answers=dict.fromkeys(("/verify", "/aggregate_metrics"), lambda: Response(half))
    )
    async with fleet(world) as it:
        found = result(await it.run())
        rows = await it.one.post("/aggregate_metrics", {"verify_responses": []})

    assert (found["reward"], found["x"]) == (1, "\ufffd")
    assert (rows.status_code, rows.json()["x"]) == (200, "\ufffd")


@pytest.mark.case("FC-086")
async def test_an_agent_that_hangs_does_not_cost_the_resources_its_close() -> None:
    world = World(may_act=anyio.Event())
    async with fleet(
        world, episode_timeout_seconds=0.3, cleanup_timeout_seconds=0.3
    ) as it:
        world.answers["/agent_sessions/close"] = lambda: JSONResponse({}, 500)
        failed = failure(await it.run())

        assert failed["failure_kind"] == "transport_timeout"
        assert failed["terminal"] is False
        assert world.resources.paths[-1] == "/close_session"


@pytest.mark.case("FC-248")
async def test_a_lost_sandbox_is_a_failure_and_no_score() -> None:
    world = World()

    def lost() -> Response:
        from .good_partners import response

        return JSONResponse(
            response(
                status="failed", error={"code": "server_error", "message": "gone"}
            ),
            headers={"x-livery-outcome": "sandbox_error"},
        )

    world.answers["/responses"] = lost
    async with fleet(world) as it:
        failed = failure(await it.run())

        assert failed["failure_kind"] == "session_lost"
        assert failed["failure_reason"] == "gone"
        assert "/verify" not in world.resources.paths


@pytest.mark.case("FC-130")
async def test_the_cap_counts_over_all_servers() -> None:
    world = World(may_act=anyio.Event())
    async with (
        fleet(world, servers=3, max_concurrent_episodes=2) as it,
        anyio.create_task_group() as group,
    ):
        for number in range(9):

            async def ask(number: int = number) -> None:
                assert result(await it.run(f"r{number}", server=number % 3))

            group.start_soon(ask)
        await eventually(lambda: world.acting == 2)
        assert world.may_act is not None
        world.may_act.set()
    assert world.activations == 9
    assert world.acting_most == 2


@pytest.mark.case("FC-130")
async def test_the_cap_is_the_agents_own_when_nobody_set_one() -> None:
    world = World(may_act=anyio.Event(), about={"concurrency": 3})
    async with (
        fleet(world, max_concurrent_episodes=None) as it,
        anyio.create_task_group() as group,
    ):
        for number in range(7):
            group.start_soon(it.run, f"r{number}")
        await eventually(lambda: world.acting == 3)
        assert world.may_act is not None
        world.may_act.set()
    assert world.acting_most == 3


@pytest.mark.case("FC-138", "FC-127")
async def test_who_waits_holds_nothing_and_not_for_ever() -> None:
    world = World(may_act=anyio.Event())
    async with (
        fleet(world, max_concurrent_episodes=1, queue_timeout_seconds=0.2) as it,
        anyio.create_task_group() as group,
    ):
        group.start_soon(it.run, "first")
        await eventually(lambda: world.acting == 1)
        seeded = len(world.seeded)
        waited = failure(await it.run("second"))

        assert waited["failure_kind"] == "livery:queue_timeout"
        assert (waited["stage"], waited["terminal"]) == ("admission", False)
        assert len(world.seeded) == seeded
        assert world.may_act is not None
        world.may_act.set()


@pytest.mark.case("FC-127", "FC-246")
async def test_hung_episodes_end_and_the_queue_moves_and_the_wait_is_told() -> None:
    world = World(may_act=anyio.Event())
    async with fleet(
        world, max_concurrent_episodes=2, episode_timeout_seconds=0.5
    ) as it:
        hung: list[httpx.Response] = []

        async def hang(name: str) -> None:
            hung.append(await it.run(name))

        last: list[httpx.Response] = []
        async with anyio.create_task_group() as group:
            group.start_soon(hang, "a")
            group.start_soon(hang, "b")
            await eventually(lambda: world.acting == 2)
            world.may_act = None

            async def wait() -> None:
                last.append(await it.run("c"))

            group.start_soon(wait)

        assert [failure(one)["failure_kind"] for one in hung] == [
            "transport_timeout"
        ] * 2
        told = result(last[0])["livery"]
        assert isinstance(told, dict)
        seconds = told["seconds"]
        assert {*seconds} >= {"queue", "seed", "act", "verify", "clean"}
        assert seconds["queue"] > 0.05


@pytest.mark.parametrize("about", [{}, {"stepwise": False}, {"concurrency": 4}])
async def test_an_agent_that_is_not_stepwise_is_refused_before_anything(
    about: dict[str, object],
) -> None:
    world = World(about=about)
    async with fleet(world, max_steps=5) as it:
        failed = failure(await it.run())

        assert failed["terminal"] is True
        assert "stepwise" in str(failed["failure_reason"])
        assert not world.seeded


async def test_a_stepped_episode_ends_when_the_task_is_complete() -> None:
    world = World(about={"stepwise": True}, steps=9, complete_after=3)
    async with fleet(world, max_steps=50) as it:
        graded = result(await it.run())

        assert world.activations == 3
        response = graded["response"]
        assert isinstance(response, dict)
        assert [item["type"] for item in response["output"]] == [
            "function_call",
            "function_call_output",
        ] * 3
        assert world.resources.paths.count("/task_state") == 3


async def test_a_server_without_a_task_state_fails_a_stepped_episode() -> None:
    world = World(about={"stepwise": True}, steps=9)
    world.answers["/task_state"] = lambda: JSONResponse({"detail": "Not Found"}, 404)
    async with fleet(world, max_steps=50) as it:
        failed = failure(await it.run())

        assert (failed["stage"], failed["terminal"]) == ("agent", True)
        assert {*world.seeded} == {*world.closed}


async def test_a_server_that_is_not_there_is_told_as_such() -> None:
    world = World()
    async with fleet(world, reach_timeout_seconds=0.1) as it:
        # The address is of a port that nothing listens on.
        gone = run_body("gone")
        server = it.one.agent.server
        object.__setattr__(server, "url", "http://127.0.0.1:9")
        failed = failure(await it.one.post("/run", gone))

        assert failed["failure_kind"] == "transport_unreachable"
        assert (failed["stage"], failed["terminal"]) == ("agent", False)


@pytest.mark.case("FC-142")
async def test_an_episode_of_a_dead_server_is_gone_on_with() -> None:
    journal = MemoryJournal()
    episode = EpisodeId("r1")
    body = run_body("r1")["task"]["task_input"]
    task = Task(
        task_id=TaskId("set", "1"),
        responses_create_params=body["responses_create_params"],
        task_data=body["task_data"],
    )
    queue = QueueEpisode(
        episode=episode,
        task=task.task_id,
        request=task.request,
        holder=Holder("a dead process"),
        at=Instant(1.0),
    )
    stream = episode_stream("environment", episode.key)
    await journal.append(stream, decide(EPISODES.initial, queue), expected_version=0)
    async with fleet(journal=journal) as it:
        assert result(await it.run())["reward"] == 1.0


async def test_shutdown_lets_episodes_finish_and_takes_no_other() -> None:
    world = World(may_act=anyio.Event())
    async with fleet(world) as it, anyio.create_task_group() as group:
        replies: list[httpx.Response] = []

        async def ask() -> None:
            replies.append(await it.run())

        group.start_soon(ask)
        await eventually(lambda: world.acting == 1)
        group.start_soon(it.one.served.drain)
        await eventually(lambda: it.one.served.draining)
        refused = await it.run("other")
        ready = await it.one.client.get("/readyz")
        assert world.may_act is not None
        world.may_act.set()
    assert result(replies[0])["reward"] == 1.0
    assert refused.status_code == ready.status_code == 503
    assert refused.json()["kind"] == "admission_shut"


async def test_shutdown_ends_what_does_not_finish_and_cleans_up() -> None:
    world = World(may_act=anyio.Event())
    replies: list[httpx.Response] = []
    async with fleet(world, shutdown_grace_seconds=0.3) as it:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                replies.append(await it.run())

            group.start_soon(ask)
            await eventually(lambda: world.acting == 1)
            await it.one.served.drain()
        assert failure(replies[0])["failure_kind"] == "cancelled"
        assert sorted(world.closed) == sorted(world.seeded)


@pytest.mark.case("FC-109")
async def test_twenty_at_once_of_one_episode_run_it_once() -> None:
    async with fleet(servers=2) as it:
        replies = await _many(it, 20)

        assert it.world.activations == 1
        assert all(same(replies[0], one) for one in replies)


async def _many(it: Fleet, number: int) -> list[httpx.Response]:
    replies: list[httpx.Response] = []

    async def ask(server: int) -> None:
        replies.append(await it.run(server=server))

    async with anyio.create_task_group() as group:
        for each in range(number):
            group.start_soon(ask, each % len(it.servers))
    return replies


async def test_rows_that_are_none_are_refused_before_anybody_is_asked() -> None:
    async with fleet() as it:
        reply = await it.one.post(
            "/aggregate_metrics", {"verify_responses": [{"reward": 1.0}, 5]}
        )

        (mistake,) = reply.json()["detail"]
        assert (reply.status_code, mistake["input"]) == (422, 5)
        assert mistake["loc"] == ["body", "verify_responses", 1]
        assert it.world.resources.asked == []


@pytest.mark.parametrize(
    ("answered", "status"), [(422, 422), (403, 502), (404, 502), (500, 502)]
)
async def test_what_the_resources_server_does_not_take_is_the_caller_s_mistake(
    answered: int, status: int
) -> None:
    told = {"detail": "row 0 has no reward"}
    world = World(answers={"/aggregate_metrics": lambda: JSONResponse(told, answered)})
    async with fleet(world) as it:
        reply = await it.one.post(
            "/aggregate_metrics", {"verify_responses": [{"a": 1}]}
        )

    assert reply.status_code == status
    assert "row 0 has no reward" in reply.text
