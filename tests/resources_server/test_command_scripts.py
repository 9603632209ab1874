# SPDX-License-Identifier: Apache-2.0
"""The commands in a sandbox, against a service that answers in every odd way."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from livery.domain.digests import Json
from livery.entrypoints.resources_server.commands import app_commands, docs_command
from livery.ports.required.apps import Tool

SECONDS = 60.0
HEADERS = {"Authorization": "Bearer t"}


@contextmanager
def answering(reply: bytes) -> Generator[tuple[str, list[bytes]]]:
    """Answer one request so, whatever it is; give the address, and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(SECONDS)

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(SECONDS)
                asked.append(_request(connection))
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        finally:
            thread.join()


def _request(connection: socket.socket) -> bytes:
    """Return the body, or nothing where the head promises none."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(65536)
    head, _, body = found.partition(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ]
    while len(body) < sum(lengths):
        body += connection.recv(65536)
    return body


def run(
    folder: Path, content: bytes, *words: str, **env: str
) -> tuple[int, bytes, bytes]:
    script = folder / "script"
    script.write_bytes(content)
    ended = subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        timeout=SECONDS,
        env=env,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def box(url: str, **properties: Json) -> bytes:
    tool = Tool(
        app="box",
        action="put",
        description="",
        parameters={"type": "object", "properties": properties},
    )
    (placed,) = app_commands([tool], url=url, headers=HEADERS)
    return placed.content


def told(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"no HTTP\r\n",
        told(b"{", length=90),
        told(b"<html></html>"),
        told(b"\xff"),
        told(b"", "431 Too Large"),
        told(b"<html></html>", "502 Bad Gateway"),
        told(b"[]", "502 Bad Gateway"),
        told(b"{", "502 Bad Gateway", length=90),
        told(b"\xff", "502 Bad Gateway"),
    ],
)
@pytest.mark.parametrize("which", ["app", "docs"])
def test_an_answer_that_is_none_is_told_in_a_line(
    which: str, reply: bytes, tmp_path: Path
) -> None:
    with answering(reply) as (url, _):
        script, words = box(url), ["put"]
        if which == "docs":
            script, words = docs_command("docs", url=url, headers=HEADERS).content, []
        status, out, err = run(tmp_path, script, *words)

    assert (status != 0, out) == (True, b"")
    assert b"Traceback" not in err
    assert b"error " in err or b"does not answer: " in err


def test_what_a_terminal_cannot_show_is_shown_in_another_way(tmp_path: Path) -> None:
    reply = told(json.dumps({"name": "Zoë"}, ensure_ascii=False).encode())
    with answering(reply) as (url, _):
        status, out, err = run(
            tmp_path, box(url), "put", PYTHONIOENCODING="ascii", PYTHONUTF8="0"
        )

    assert (status, err) == (0, b"")
    assert rb"Zo\xeb" in out


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": ["integer", "null"]}, "3", 3),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["number", "boolean"]}, "true", True),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": ["array", "null"], "items": {"type": "integer"}}, "3", [3]),
        ({}, "3", "3"),
    ],
)
def test_a_value_is_sent_as_the_type_that_it_is_to_be(
    schema: dict[str, Any], text: str, value: Json, tmp_path: Path
) -> None:
    with answering(told(b"{}")) as (url, asked):
        status, _, err = run(tmp_path, box(url, x=schema), "put", f"--x={text}")

    assert (status, err) == (0, b"")
    assert json.loads(asked[0]) == {"x": value}


@pytest.mark.parametrize(
    ("schema", "text", "words"),
    [
        ({"type": "integer"}, "1.5", b"--x must be a number"),
        ({"type": "number"}, "nan", b"--x must be a number"),
        ({"type": "boolean"}, "yes", b"--x must be true or false"),
        ({"type": "object"}, "{", b"--x must be a JSON object"),
    ],
)
def test_a_value_of_another_type_is_told_before_it_is_sent(
    schema: dict[str, Any], text: str, words: bytes, tmp_path: Path
) -> None:
    status, _, err = run(
        tmp_path, box("http://127.0.0.1:9", x=schema), "put", f"--x={text}"
    )

    assert status == 2
    assert words in err
