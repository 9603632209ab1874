# SPDX-License-Identifier: Apache-2.0
"""Servers as processes: killed, followed, two at once, stopped in time."""

import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from livery.entrypoints.http_serving.serving import KEEP_ALIVE_SECONDS

from .processes import Ground, Process
from .scripted import HELLO

ACTIVATIONS = "/v1/responses"
PROMPT = {"input": "hello"}
GRACE_SECONDS = 60.0
GYM_KEEPS_SECONDS = 15.0
WAIT_SECONDS = 120.0
SLACK_SECONDS = 20.0


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_background(ask: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def carried_out() -> None:
        try:
            found.append(ask())
        except httpx.HTTPError as gone:
            found.append(gone)

    thread = threading.Thread(target=carried_out)
    thread.start()
    return thread, found


@pytest.mark.case("FC-112", "FC-115", "FC-142")
def test_a_killed_server_s_run_is_found_again_and_started_once(ground: Ground) -> None:
    ground.settle("sleep 4; echo told")
    with ground.server() as first:
        cookie = first.seeded()
        thread, _ = in_background(lambda: first.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: len(ground.starts) == 1)
        first.popen.kill()
        first.popen.wait()
        thread.join()
    with ground.server() as second:
        reply = second.post(ACTIVATIONS, PROMPT, cookie)
        again = second.post(ACTIVATIONS, PROMPT, cookie)
        closed = second.close()

    assert reply.status_code == 200
    assert reply.json()["status"] == "completed"
    assert "told" in reply.text
    assert again.content == reply.content
    assert closed.json()["agent_observations"]["records"]
    assert ground.starts == ["start"]
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []


@pytest.mark.case("FC-112", "FC-113")
def test_two_servers_on_one_journal_run_a_request_once(ground: Ground) -> None:
    ground.settle("sleep 1; echo told")
    with ground.server() as first, ground.server() as second:
        cookie = first.seeded()
        assert second.seeded() != ""
        thread, found = in_background(lambda: first.post(ACTIVATIONS, PROMPT, cookie))
        other = second.post(ACTIVATIONS, PROMPT, cookie)
        thread.join()
        conflict = second.post(ACTIVATIONS, {"input": "another"}, cookie)
        closes = [second.close(), first.close()]

    (mine,) = found
    assert isinstance(mine, httpx.Response)
    assert mine.status_code == 200
    assert mine.content == other.content
    assert conflict.status_code == 409
    assert closes[0].content == closes[1].content
    assert ground.starts == ["start"]


def test_a_session_s_own_sandbox_is_as_the_server_wants_it(ground: Ground) -> None:
    ground.settle(
        'echo "$ONE $TWO"',
        more='sandbox_config = {env = {TWO = "2"}}',
        block='provider = "local"\nenv = {ONE = "1", TWO = "1"}',
    )
    with ground.server() as server:
        reply = server.post(ACTIVATIONS, PROMPT, server.seeded())
        server.close()

    (message,) = reply.json()["output"]
    assert message["content"][0]["text"] == "1 2\n"


@pytest.mark.case("FC-076")
def test_an_id_that_is_longer_than_a_name_may_be_works(ground: Ground) -> None:
    session = "S" * 70
    with ground.server() as server:
        cookie = server.seeded(session)
        reply = server.post(ACTIVATIONS, PROMPT, cookie)
        closed = server.close(session)

    assert reply.json()["status"] == "completed"
    assert closed.json()["agent_session_id"] == session
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []


def test_a_close_elsewhere_ends_what_a_server_runs(ground: Ground) -> None:
    ground.settle("echo so far; sleep 600")
    with ground.server() as first, ground.server() as second:
        cookie = first.seeded()
        thread, found = in_background(lambda: first.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: len(ground.starts) == 1)
        closed = second.close()
        thread.join()

    (ended,) = found
    assert isinstance(ended, httpx.Response)
    assert ended.json()["status"] == "cancelled"
    assert closed.json()["agent_observations"]["records"]


@pytest.mark.case("FC-144", "FC-099", "FC-147")
def test_a_server_with_a_hung_request_is_gone_by_its_grace(ground: Ground) -> None:
    ground.settle("sleep 600")
    with ground.server() as server:
        cookie = server.seeded()
        thread, found = in_background(lambda: server.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: len(ground.starts) == 1)
        status, seconds = server.end(signal.SIGTERM, within=WAIT_SECONDS)
        thread.join()

    (ended,) = found
    assert status == 0
    assert seconds < GRACE_SECONDS + SLACK_SECONDS
    assert isinstance(ended, httpx.Response)
    assert ended.json()["status"] == "cancelled"
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []


@pytest.mark.case("FC-144", "FC-142")
def test_what_will_not_end_is_left_to_the_next_server_and_given_back_there(
    ground: Ground,
) -> None:
    ground.settle("trap '' TERM; while :; do sleep 1; done")
    text = (ground.folder / "livery.toml").read_text()
    (ground.folder / "livery.toml").write_text(
        text.replace("shutdown_grace_seconds = 60", "shutdown_grace_seconds = 1")
    )
    with ground.server() as first:
        cookie = first.seeded()
        thread, _ = in_background(lambda: first.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: len(ground.starts) == 1)
        status, seconds = first.end(signal.SIGTERM, within=WAIT_SECONDS)
        thread.join()
    with ground.server() as second:
        closed = second.close()

    assert status == 1
    assert seconds < SLACK_SECONDS
    assert closed.status_code == 200
    assert ground.starts == ["start"]
    assert list((ground.folder / "state" / "sandboxes").iterdir()) == []


@pytest.mark.case("FC-145", "FC-141")
def test_an_idle_server_ends_at_once_and_its_port_is_free(ground: Ground) -> None:
    with ground.server() as server:
        assert server.client.get("/livez").status_code == 200
        port = int(server.url.rpartition(":")[2])
        status, seconds = server.end(signal.SIGINT, within=WAIT_SECONDS)
    ground.settle(more="")
    text = (ground.folder / "livery.toml").read_text()
    (ground.folder / "livery.toml").write_text(
        text.replace("port = 0", f"port = {port}")
    )
    with ground.server() as again:
        assert again.client.get("/readyz").status_code == 200

    assert status == 0
    assert seconds < GRACE_SECONDS / 2
    assert again.url == server.url


@pytest.mark.case("FC-148")
def test_a_provider_that_is_not_there_ends_the_start_with_the_reason(
    ground: Ground,
) -> None:
    nowhere = ground.folder / "nothing.sock"
    ground.settle(
        block=f'provider = "docker"\noptions = {{address = "unix://{nowhere}"}}'
    )

    popen = ground.begin()
    _, told = popen.communicate(timeout=WAIT_SECONDS)

    assert popen.returncode == 2
    assert str(nowhere) in told
    assert "Traceback" not in told


def test_a_port_that_is_taken_ends_the_start_with_the_reason(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = (ground.folder / "livery.toml").read_text()
        (ground.folder / "livery.toml").write_text(
            text.replace("port = 0", f"port = {port}")
        )
        popen = ground.begin()
        _, told = popen.communicate(timeout=WAIT_SECONDS)

    assert popen.returncode == 2
    assert f"port {port}" in told


def left_after_asking(server: Process, cookie: str) -> socket.socket:
    """Ask for an activation on a connection that the test can drop."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    link = socket.create_connection((host, int(port)))
    body = b'{"input": "hello"}'
    link.sendall(
        b"POST /v1/responses HTTP/1.1\r\nHost: agent\r\nCookie: %s\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (cookie.encode(), len(body), body)
    )
    return link


@pytest.mark.case("FC-112", "FC-218", "FC-219", "FC-220", "FC-217")
def test_who_comes_back_in_time_finds_the_run(ground: Ground) -> None:
    ground.settle("sleep 2; echo told", more="disconnect_grace_seconds = 20")
    with ground.server() as server:
        cookie = server.seeded()
        left_after_asking(server, cookie).close()
        until(lambda: len(ground.starts) == 1)
        reply = server.post(ACTIVATIONS, PROMPT, cookie)
        server.close()

    assert reply.json()["status"] == "completed"
    assert ground.starts == ["start"]


def test_who_comes_back_to_another_server_finds_the_run(ground: Ground) -> None:
    ground.settle("sleep 6; echo told", more="disconnect_grace_seconds = 1")
    with ground.server() as first, ground.server() as second:
        cookie = first.seeded()
        link = left_after_asking(first, cookie)
        until(lambda: len(ground.starts) == 1)
        thread, found = in_background(lambda: second.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: waits(ground) == 1)
        link.close()
        thread.join()
        second.close()
        left = waits(ground)

    (reply,) = found
    assert isinstance(reply, httpx.Response)
    assert reply.json()["status"] == "completed"
    assert ground.starts == ["start"]
    assert left == 0


def waits(ground: Ground) -> int:
    """Return how many callers wait at one server for what another runs."""
    path = ground.folder / "state" / "journal.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
        statement = "SELECT count(*) FROM streams WHERE category = 'waits'"
        return int(journal.execute(statement).fetchone()[0])


@pytest.mark.case("FC-218", "FC-219")
def test_nobody_for_long_ends_the_run_and_keeps_what_it_wrote(ground: Ground) -> None:
    ground.settle("echo so far; sleep 600", more="disconnect_grace_seconds = 0.5")
    with ground.server() as server:
        cookie = server.seeded()
        link = left_after_asking(server, cookie)
        until(lambda: len(ground.starts) == 1)
        link.close()
        time.sleep(2.0)  # The grace, and the while that a disconnect takes.
        reply = server.post(ACTIVATIONS, PROMPT, cookie)
        closed = server.close()

    assert reply.json()["status"] == "cancelled"
    assert "so far" in reply.text
    assert closed.json()["agent_observations"]["records"]


@pytest.mark.case("FC-226")
def test_an_idle_connection_outlives_the_gym_client_s_patience(ground: Ground) -> None:
    assert KEEP_ALIVE_SECONDS > GYM_KEEPS_SECONDS
    with ground.server() as server:
        first = server.client.get("/livez")
        second = server.client.get("/livez")

    assert "connection" not in {*first.headers, *second.headers}


def test_a_body_that_is_too_long_is_refused_and_holds_nothing_up(
    ground: Ground,
) -> None:
    ground.settle(more="body_bytes_max = 1024")
    long = {**HELLO, "metadata": {"x": "y" * 400_000}}
    with ground.server() as server:
        refused = server.post("/v1/agent_sessions", long)
        unknown = server.post("/nowhere", long)
        alive = server.client.get("/livez")
        status, seconds = server.end(signal.SIGTERM, within=WAIT_SECONDS)

    assert [refused.status_code, unknown.status_code, alive.status_code] == [
        413,
        404,
        200,
    ]
    assert unknown.json() == {"detail": "Not Found", "kind": "path_unknown"}
    assert status == 0
    assert seconds < GRACE_SECONDS / 2
