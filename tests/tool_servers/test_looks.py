# SPDX-License-Identifier: Apache-2.0
"""Tool servers that are there, are not, or do not answer: the same look everywhere."""

import json
import socket
import subprocess
import sys
from typing import Any

import pytest

from livery.adapters.tool_servers import HostToolServers
from livery.adapters.worker_scripts import program
from livery.ports.required.harness import ToolTransport

from .. import peers
from .servers import TOKEN, access, nowhere, tool_server

pytestmark = pytest.mark.anyio

SECONDS = 60.0
SOON_SECONDS = 1.0


@pytest.fixture(params=["own", "oldest"])
def python(request: pytest.FixtureRequest) -> str:
    return sys.executable if request.param == "own" else str(peers.oldest_python())


def looked(python: str, *servers: dict[str, Any], seconds: float = SECONDS) -> Any:
    words = json.dumps({"servers": servers, "seconds": seconds}).encode()
    ended = subprocess.run(
        [python, "-I", "-S", "-c", program("tool_servers")],
        input=words,
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    return json.loads(ended.stdout)["unreachable"]


def server(url: str, name: str = "tools", kind: str = "mcp") -> dict[str, Any]:
    return {"name": name, "kind": kind, "url": url, "headers": {"X-Token": TOKEN}}


def test_a_server_that_answers_is_greeted_and_its_session_is_ended(python: str) -> None:
    with tool_server(session="s-1") as there:
        assert looked(python, server(there.url)) == []

    greeted, ended = there.asked
    assert greeted[0] == "POST"
    assert greeted[2]["X-Token"] == TOKEN
    assert json.loads(greeted[3])["method"] == "initialize"
    assert ended[0] == "DELETE"
    assert ended[2]["Mcp-Session-Id"] == "s-1"


def test_which_ones_are_not_there_is_told_with_the_reason(python: str) -> None:
    with tool_server() as there, tool_server(401) as closed, tool_server(503) as ill:
        found = looked(
            python,
            server(there.url, "there"),
            server(nowhere(), "gone"),
            server(closed.url, "closed"),
            server(ill.url, "ill"),
            server("no-url", "odd"),
            server("http://127.0.0.1:1/x", "direct", "direct_http"),
        )

    assert {one["name"]: one["reason"] for one in found} == {
        "gone": "Connection refused",
        "closed": "it answers with status 401",
        "ill": "it answers with status 503",
        "odd": "unknown url type: 'no-url'",
        "direct": "Connection refused",
    }
    assert len(closed.asked) == 1, "who may not come in is not let in by asking again"
    assert len(ill.asked) > 1


def test_an_answer_of_any_kind_is_enough_of_plain_http(python: str) -> None:
    with tool_server(404) as there:
        assert looked(python, server(there.url, kind="direct_http")) == []

    assert [asked[0] for asked in there.asked] == ["GET"]


def test_no_token_follows_a_redirect(python: str) -> None:
    with tool_server() as elsewhere, tool_server(307, location=elsewhere.url) as there:
        assert looked(python, server(there.url)) == []

    assert elsewhere.asked == []


def test_a_server_that_never_answers_takes_no_longer_than_it_may(python: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        (found,) = looked(python, server(url), seconds=SOON_SECONDS)
        late = looked(python, server(url), seconds=0)

    assert found["reason"] in ("it does not answer in time", "timed out")
    assert late == [{"name": "tools", "reason": "there was no time to ask it"}]


def test_nobody_is_asked_when_nobody_is_named(python: str) -> None:
    assert looked(python) == []


async def test_this_host_looks_the_same_way() -> None:
    with tool_server() as there:
        found = await HostToolServers().unreachable(
            (
                access(there.url, "there"),
                access(nowhere(), "gone", transport=ToolTransport.DIRECT_HTTP),
            ),
            seconds=SECONDS,
        )

    assert found == (("gone", "Connection refused"),)
