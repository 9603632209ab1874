# SPDX-License-Identifier: Apache-2.0
"""Calls of apps: one guard on every way, and the races that it is there for."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from livery.domain.resources_sessions import ResourcesSessionId
from livery.ports.provided.open_resources import OpenResources
from livery.ports.required.apps import Reach
from livery.ports.required.sandbox import (
    Ended,
    Exited,
    Output,
    SandboxFailed,
    TransferCut,
)

from .folders import FolderProvider
from .serving import EPISODE, BoxWorld, ScriptedWorld, Server, seed, serving

pytestmark = pytest.mark.anyio

ACCEPT = "application/json, text/event-stream"
WAIT_SECONDS = 60.0
GRADED_SECONDS = 1.0


def token_of(server: Server, session: str = "s1") -> str:
    return server.application.tokens.token(ResourcesSessionId(session))


def open_session(server: Server, session: str = "s1") -> OpenResources:
    sessions = server.application.served.sessions
    return sessions._open[ResourcesSessionId(session)]


async def over_mcp(
    server: Server, token: str, method: str, **params: Any
) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await server.client.post(
        "/mcp",
        json=body,
        headers={"accept": ACCEPT, "authorization": f"Bearer {token}"},
    )


async def put_over_mcp(server: Server, token: str, word: str) -> dict[str, Any]:
    reply = await over_mcp(
        server, token, "tools/call", name="box_put", arguments={"word": word}
    )
    assert reply.status_code == 200, reply.text
    result: dict[str, Any] = reply.json()["result"]
    return result


async def until(event: anyio.Event) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        await event.wait()


async def test_every_way_reaches_the_same_apps(tmp_path: Path) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        cookie = await server.seeded()
        token = token_of(server)

        direct = await server.post("/box_put", {"word": "tin"}, cookie)
        by_token = await server.post("/box_put", {"word": "iron"}, token=token)
        endpoint = await server.post("/api/box/put", {"word": "zinc"}, token=token)
        result = await put_over_mcp(server, token, "gold")

        state = await server.get("/task_state", cookie)
        verdict = await server.verify(cookie)

    assert direct.json() == {"kept": 1}
    assert by_token.json() == {"kept": 2}
    assert endpoint.json() == {"kept": 3}
    assert json.loads(result["content"][0]["text"]) == {"kept": 4}
    assert state.json() == {"complete": True, "revision": 4}
    assert verdict.json()["reward"] == 1.0


async def test_a_seed_says_where_the_tools_are_and_with_what_token(
    tmp_path: Path,
) -> None:
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world, mcp_server_name="office") as server:
        told = (await server.post("/seed_session", seed())).json()["resources_tools"]
        listed = await server.client.post(
            told["url_path"],
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            headers={"accept": ACCEPT, **told["headers"]},
        )

    assert (told["server_name"], told["transport"]) == ("office", "http")
    tools = listed.json()["result"]["tools"]
    assert [one["name"] for one in tools] == ["box_put", "box_attach", "box_export"]


@pytest.mark.parametrize(
    ("way", "names"), [(Reach.COMMANDS, []), (Reach.ENDPOINTS, ["office_docs"])]
)
async def test_tools_are_offered_by_the_way_that_the_task_takes(
    way: Reach, names: list[str], tmp_path: Path
) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False, way=way)) as server:
        await server.seeded()
        token = token_of(server)

        listed = await over_mcp(server, token, "tools/list")
        looked_up = await over_mcp(
            server, token, "tools/call", name="office_docs", arguments={}
        )

    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == names
    assert looked_up.json()["result"].get("isError", False) is (way is Reach.COMMANDS)


async def test_the_endpoints_are_documented_for_who_has_a_token(tmp_path: Path) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        await server.seeded()
        told = await server.get("/api", token=token_of(server))
        strangers = [
            await server.get("/api"),
            await server.get("/api", token="wrong"),
            await server.post("/api/box/put", {"word": "x"}),
            await server.post("/box_put", {"word": "x"}),
            await server.get("/files/x"),
            await over_mcp(server, "wrong", "tools/list"),
        ]
        streamed = await server.get("/mcp", token=token_of(server))

    paths = [one["path"] for one in told.json()["endpoints"]]
    assert paths == ["/api/box/put", "/api/box/attach", "/api/box/export"]
    assert [reply.status_code for reply in strangers] == [401] * len(strangers)
    assert streamed.status_code == 405, "there is no stream of what a server says"


async def test_only_trusted_networks_drive_sessions(tmp_path: Path) -> None:
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world, client_at="172.17.0.5") as server:
        replies = [
            await server.post("/seed_session", seed()),
            await server.post("/ng-rollout/r/seed_session", seed()),
            await server.post("/verify", {}),
            await server.post("/close_session", {}),
            await server.post("/aggregate_metrics", {}),
            await server.get("/task_state"),
            await server.get("/reverify_mode"),
            await server.get("/openapi.json"),
        ]
        health = await server.get("/health")
        call = await server.post("/api/box/put", {"word": "x"})

    assert [reply.status_code for reply in replies] == [403] * len(replies)
    assert health.status_code == 200
    assert call.status_code == 401
    assert world.built == []


async def test_what_is_asked_beside_sessions(tmp_path: Path) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        mode = await server.get("/reverify_mode")
        document = await server.get("/openapi.json")
        metrics = await server.post("/aggregate_metrics", {"verify_responses": []})
        stateless = await server.get("/task_state")
        ready = await server.get("/readyz")
        await server.application.served.drain()
        draining = await server.get("/readyz")
        late = await server.post("/seed_session", seed())

    assert mode.json() == "unsupported"
    assert "/seed_session" in document.json()["paths"]
    assert metrics.json()["agent_metrics"] == {}
    assert stateless.status_code == 409
    assert (ready.status_code, draining.status_code) == (200, 503)
    assert (late.status_code, late.json()["kind"]) == (503, "admission_shut")


@pytest.mark.parametrize(
    "reward", ["1e999", "-1e308", "1" + "0" * 400], ids=["none", "huge", "long"]
)
@pytest.mark.case("FC-258")
async def test_a_number_that_cannot_be_summed_up_is_told_by_its_place(
    reward: str, tmp_path: Path
) -> None:
    rows = b'{"verify_responses": [{"reward": 1}, {"reward": ' + reward.encode()
    async with serving(tmp_path) as server:
        reply = await server.post("/aggregate_metrics", rows + b"}]}")

    (mistake,) = reply.json()["detail"]
    assert reply.status_code == 422
    assert mistake["type"] in ("json_invalid", "value_error")
    if mistake["type"] == "value_error":
        assert mistake["loc"] == ["body", "verify_responses", 1, "reward"]
        assert mistake["input"] in ("-1E+308", "1E+400")


async def test_a_number_that_is_none_is_refused_before_it_is_graded(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as server:
        cookie = await server.seeded()
        body = b'{"responses_create_params": {"temperature": 1e999}, "response": {}}'
        wrong = await server.post("/verify", body, cookie)
        right = await server.verify(cookie)

    assert (wrong.status_code, right.status_code) == (422, 200)


async def test_a_call_after_verify_or_close_is_refused_on_every_way(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        cookie = await server.seeded()
        token = token_of(server)
        await server.verify(cookie)

        for _ in range(2):
            direct = await server.post("/box_put", {"word": "x"}, cookie)
            endpoint = await server.post("/api/box/put", {"word": "x"}, token=token)
            result = await put_over_mcp(server, token, "x")

            assert (direct.status_code, endpoint.status_code) == (409, 409)
            assert result["isError"]
            assert result["structuredContent"]["status"] == 409
            await server.close()


async def test_calls_end_with_the_task_where_that_is_set(tmp_path: Path) -> None:
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world, close_tools_on_task_end=True) as server:
        cookie = await server.seeded()
        first = await server.post("/box_put", {"word": "gold"}, cookie)
        left_over = await server.post("/box_put", {"word": "tin"}, cookie)
        state = await server.get("/task_state", cookie)
        verdict = await server.verify(cookie)

    assert (first.status_code, left_over.status_code) == (200, 409)
    assert state.json() == {"complete": True, "revision": 1}
    assert verdict.json()["reward"] == 1.0


async def test_arguments_that_do_not_fit_are_told(tmp_path: Path) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        cookie = await server.seeded()
        wrong = await server.post("/box_put", {"word": 3, "wort": "x"}, cookie)
        none = await server.post("/box_burn", {}, cookie)
        odd = await server.post("/box_put", b"[1]", cookie)
        pasted = await server.post("/box_attach", {"files": ["QUJD" * 100]}, cookie)
        state = await server.get("/task_state", cookie)

    assert "word must be of type string; wort is unknown" in wrong.json()["detail"]
    assert "There is no box_burn" in none.json()["detail"]
    assert odd.status_code == 422
    assert "box attach --files=PATH" in pasted.json()["detail"]
    assert pasted.status_code == 422
    assert state.json()["revision"] == 0


async def test_files_go_through_the_workspace(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        token = token_of(server)
        (Path(provider.only().workdir) / "in.txt").write_text("abc")

        attached = await server.post("/box_attach", {"files": ["in.txt"]}, cookie)
        exported = await server.post("/box_export", {"name": "out/a.txt"}, cookie)
        read = await server.get("/files/out/a.txt", token=token)
        written = await server.client.put(
            "/files/new.txt",
            content=b"new",
            headers={"authorization": f"Bearer {token}"},
        )
        missing = await server.get("/files/none", token=token)
        guide = (Path(provider.only().workdir) / "GUIDE.md").read_text()
        new = (Path(provider.only().workdir) / "new.txt").read_text()
        verdict = await server.verify(cookie)

    assert attached.json() == {"sizes": {"in.txt": 3}}
    assert exported.json() == {"ok": True, "saved": ["out/a.txt"]}
    assert read.content == b"in.txt"
    assert (written.json(), new) == ({"saved": ["new.txt"]}, "new")
    assert (missing.status_code, missing.json()["kind"]) == (422, "call_refused")
    assert "You have tools for: box." in guide
    assert verdict.json()["mask_sample"] is False
    assert provider.live == {}, "the sandbox goes before the apps are graded"


async def test_without_a_workspace_files_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        cookie = await server.seeded()
        reply = await server.post("/box_attach", {"files": ["x"]}, cookie)

    assert (reply.status_code, reply.json()["kind"]) == (422, "call_refused")


async def test_a_folder_where_a_result_goes_is_the_agents(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        work = Path(provider.only().workdir)
        (work / "a").mkdir()
        (work / "b").write_text("a file where a folder must be")

        folder = await server.post("/box_export", {"name": "a"}, cookie)
        below = await server.post("/box_export", {"name": "b/c"}, cookie)
        verdict = await server.verify(cookie)

    assert (folder.status_code, below.status_code) == (422, 422)
    assert verdict.json()["mask_sample"] is False


# The four races and mistakes that reviewers of such servers find.


async def test_a_save_under_way_is_waited_for_by_verify(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    order: list[str] = []
    graded = anyio.Event()
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        provider.faults.may_save = anyio.Event()

        async def export() -> None:
            reply = await server.post("/box_export", {}, cookie)
            order.append(f"saved {reply.status_code}")

        async def verify() -> None:
            reply = await server.verify(cookie)
            order.append(f"graded {reply.status_code}")
            graded.set()

        async with anyio.create_task_group() as group:
            group.start_soon(export)
            await until(provider.faults.saving)
            group.start_soon(verify)
            with anyio.fail_after(WAIT_SECONDS):
                while not open_session(server).ended:
                    await anyio.lowlevel.checkpoint()
            with anyio.fail_after(WAIT_SECONDS):
                late = await server.post("/box_put", {"word": "x"}, cookie)
            # Grading that did not wait would be over long before this is.
            with anyio.move_on_after(GRADED_SECONDS):
                await graded.wait()
            assert provider.live, "the sandbox went under the save"
            assert order == []
            provider.faults.may_save.set()

    assert late.status_code == 409, "a call that comes later is refused at once"
    assert order == ["saved 200", "graded 200"]


async def test_shutdown_comes_before_a_seed_that_waits_makes_anything(
    tmp_path: Path,
) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    provider.may_create = anyio.Event()
    world = BoxWorld()
    replies: list[httpx.Response] = []
    async with serving(tmp_path / "state", world, provider) as server:

        async def ask(session: str) -> None:
            replies.append(await server.post("/seed_session", seed(session)))

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "s1")
            await until(provider.creating)
            async with anyio.create_task_group() as drained:
                drained.start_soon(server.application.served.drain)
                with anyio.fail_after(WAIT_SECONDS):
                    while not server.application.served.draining:
                        await anyio.lowlevel.checkpoint()
                late = await server.post("/seed_session", seed("s2"))
                provider.may_create.set()

    assert late.status_code == 503
    assert world.built == ["1"], "nothing was built after the flag"
    assert len(provider.made) == 1
    assert provider.live == {}, "what a seed was making was stopped as well"
    assert len(replies) == 1


async def test_a_seed_that_was_let_in_before_the_flag_makes_nothing_after_it(
    tmp_path: Path,
) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    replies: list[httpx.Response] = []
    world = ScriptedWorld()
    async with serving(tmp_path / "state", world, provider) as server:
        served = server.application.served

        async def ask() -> None:
            replies.append(await server.post("/seed_session", seed()))

        async with anyio.create_task_group() as group:
            locks, session = served.sessions._locks, ResourcesSessionId("s1")
            holding = locks.holding(session)
            await holding.__aenter__()  # Something is under way, so the seed waits.
            group.start_soon(ask)
            with anyio.fail_after(WAIT_SECONDS):
                while locks.users(session) < 2:
                    await anyio.lowlevel.checkpoint()
            await served.drain()
            await holding.__aexit__(None, None, None)

    assert [reply.status_code for reply in replies] == [503]
    assert provider.made == []


async def test_a_seed_that_waits_for_its_turn_is_answered_503(tmp_path: Path) -> None:
    world = BoxWorld(wants_sandbox=False)
    replies: list[httpx.Response] = []
    async with serving(tmp_path, world) as server:
        served = server.application.served
        turns = served.sessions.apps.turns  # type: ignore[union-attr]
        may_end, begun = anyio.Event(), anyio.Event()

        async def long_build() -> None:
            begun.set()
            await may_end.wait()

        async def ask() -> None:
            replies.append(await server.post("/seed_session", seed()))

        async with anyio.create_task_group() as group:
            group.start_soon(turns, long_build)
            await until(begun)
            group.start_soon(ask)
            with anyio.fail_after(WAIT_SECONDS):
                while not served.sessions.making:
                    await anyio.lowlevel.checkpoint()
            group.start_soon(served.drain)
            with anyio.fail_after(WAIT_SECONDS):
                while not served.draining:
                    await anyio.lowlevel.checkpoint()
            may_end.set()

    assert [reply.status_code for reply in replies] == [503]
    assert world.built == []


FEWER = Ended(how=Exited(0), stdout=Output(head=b"", size=0))
NOT_THERE = Ended(how=Exited(0), stdout=Output(head=b"-\n", size=2))
ODD = Ended(how=Exited(0), stdout=Output(head=b"x\n", size=2))
BROKEN = Ended(how=Exited(1))


@pytest.mark.parametrize(
    ("look", "status", "masked"),
    [
        (None, 502, True),
        (FEWER, 502, True),
        (ODD, 502, True),
        (BROKEN, 502, True),
        (NOT_THERE, 422, False),
    ],
    ids=["it is there", "fewer lines", "odd", "look failed", "it is not there"],
)
@pytest.mark.case("FC-248", "FC-247")
async def test_a_failure_of_the_provider_is_not_read_as_a_missing_file(
    look: Ended | None, status: int, masked: bool, tmp_path: Path
) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        (Path(provider.only().workdir) / "in.txt").write_text("abc")
        provider.faults.says_missing.add("in.txt")
        provider.faults.look = look

        reply = await server.post("/box_attach", {"files": ["in.txt"]}, cookie)
        provider.faults.look = None
        verdict = (await server.verify(cookie)).json()

    assert reply.status_code == status
    assert "folder" not in reply.json()["detail"]
    assert verdict["mask_sample"] is masked
    if masked:
        assert reply.json() == {
            "detail": "The service cannot be reached at the moment.",
            "kind": "workspace_unavailable",
        }
        assert verdict["failure_kind"] == "provider_unavailable"
        assert (
            "in.txt" in verdict["failure_reason"] or "look" in verdict["failure_reason"]
        )


async def test_a_502_stays_one_on_every_way_and_its_words_stay_here(
    tmp_path: Path,
) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        token = token_of(server)
        provider.faults.put = SandboxFailed("fake", "s", "put", "secret words")

        direct = await server.post("/box_export", {}, cookie)
        endpoint = await server.post("/api/box/export", {}, token=token)
        result = (
            await over_mcp(server, token, "tools/call", name="box_export", arguments={})
        ).json()["result"]
        verdict = (await server.verify(cookie)).json()

    told = direct.text + endpoint.text + json.dumps(result)
    assert (direct.status_code, endpoint.status_code) == (502, 502)
    assert result["structuredContent"]["status"] == 502
    assert "secret words" not in told
    assert "secret words" in verdict["failure_reason"]


async def test_a_file_that_changes_under_the_reader_is_the_agents(
    tmp_path: Path,
) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        provider.faults.get = TransferCut("in.txt", 1, 3)
        reply = await server.post("/box_attach", {"files": ["in.txt"]}, cookie)

    assert (reply.status_code, reply.json()["kind"]) == (422, "call_refused")


async def test_a_world_that_fails_at_a_call_masks_the_sample(tmp_path: Path) -> None:
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world) as server:
        cookie = await server.seeded()
        world.call_fault = ZeroDivisionError("in the world")
        reply = await server.post("/box_put", {"word": "gold"}, cookie)
        verdict = (await server.verify(cookie)).json()

    assert (reply.status_code, reply.json()["kind"]) == (502, "workspace_unavailable")
    assert verdict["mask_sample"]


async def test_locks_and_tokens_live_as_long_as_somebody_uses_them(
    tmp_path: Path,
) -> None:
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world, closed_sessions_max=1) as server:
        sessions = server.application.served.sessions
        for number in range(5):
            name = f"s{number}"
            cookie = await server.seeded(name)
            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(server.post, "/box_put", {"word": "w"}, cookie)
                    group.start_soon(server.post, "/api/box/put", {}, None, "wrong")
            assert (await server.get("/task_state", cookie)).json()["revision"] == 8
            await server.close(name)
            await server.post(
                "/close_session",
                {"resources_session_id": f"never-{number}", "episode_id": EPISODE},
            )

        assert sessions.in_hand == 0
        assert sessions.open_here == ()
        assert server.application.served.remembered == 1
        assert len(server.application.tokens) <= 1
        assert list((tmp_path / "resources").iterdir()) == []


async def test_calls_of_one_session_are_whole_and_of_two_go_side_by_side(
    tmp_path: Path,
) -> None:
    world = BoxWorld(wants_sandbox=False, may_go_on=anyio.Event())
    statuses: list[int] = []
    async with serving(tmp_path, world) as server:
        cookies = [await server.seeded("s1"), await server.seeded("s2")]

        async def call(cookie: str) -> None:
            reply = await server.post("/box_put", {"word": "w"}, cookie)
            statuses.append(reply.status_code)

        async with anyio.create_task_group() as group:
            for cookie in (*cookies, *cookies):
                group.start_soon(call, cookie)
            await until(world.under_way)
            with anyio.fail_after(WAIT_SECONDS):
                while server.application.served.sessions.in_hand < 2:
                    await anyio.lowlevel.checkpoint()
            assert world.may_go_on is not None
            world.may_go_on.set()
        states = [(await server.get("/task_state", c)).json() for c in cookies]

    assert statuses == [200] * 4
    assert [state["revision"] for state in states] == [2, 2]
