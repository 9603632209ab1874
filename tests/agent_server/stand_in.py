# SPDX-License-Identifier: Apache-2.0
"""A program that stands for Claude Code, and a model's server that it asks.

The program counts its starts, asks its model before and after it is told to go on, and
writes down all that it sees of its surroundings. It runs wherever python3 is.
"""

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs

STARTS, SEEN, GO = "starts", "seen", "go"
VERSION = "9.9.9"
JOIN_SECONDS = 10.0

PROGRAM = f"""#!/usr/bin/env python3
import glob, json, os, sys, time, urllib.request
if "--version" in sys.argv:
    print("{VERSION} (Claude Code)")
    sys.exit()
shared = os.environ["SHARED"]
prompt = sys.stdin.read()
with open(shared + "/{STARTS}", "a") as starts:
    starts.write("start\\n")


def say(**event):
    print(json.dumps(event), flush=True)


def ask(words):
    body = {{"model": "m1", "messages": [{{"role": "user", "content": words}}]}}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {{
            "content-type": "application/json",
            "x-api-key": os.environ["ANTHROPIC_API_KEY"],
        }},
    )
    until = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["content"][0]["text"]
        except OSError:  # Nobody is there, or nobody knows us yet.
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


say(type="system", subtype="init", session_id="s", model="m1")
first = ask(prompt)
with open(shared + "/{SEEN}", "w") as seen:
    own = dict(os.environ)
    inside = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
    seen.write(json.dumps([own, sys.argv, {{path: read(path) for path in inside}}]))
os.rename(shared + "/{SEEN}", shared + "/{SEEN}.json")
until = time.monotonic() + 300
while not os.path.exists(shared + "/{GO}") and time.monotonic() < until:
    time.sleep(0.05)
second = ask("and then?")
say(
    type="assistant",
    message={{
        "id": "msg_1",
        "model": "m1",
        "stop_reason": "end_turn",
        "content": [{{"type": "text", "text": first + " " + second}}],
        "usage": {{"input_tokens": 5, "output_tokens": 7}},
    }},
)
say(type="result", subtype="success", is_error=False, result=second,
    usage={{"input_tokens": 5, "output_tokens": 7}})
"""


@attrs.frozen
class StandIn:
    """The program as a file, and the folder that it shares with the test."""

    folder: Path

    def __attrs_post_init__(self) -> None:
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)
        self.path.write_text(PROGRAM)
        self.path.chmod(0o755)

    @property
    def path(self) -> Path:
        return self.folder / "claude"

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(PROGRAM.encode()).hexdigest()

    @property
    def starts(self) -> list[str]:
        file = self.shared / STARTS
        return file.read_text().splitlines() if file.exists() else []

    @property
    def has_seen(self) -> bool:
        return (self.shared / f"{SEEN}.json").exists()

    def seen(self) -> str:
        """Return what the program saw: its environment, its words, every process."""
        return (self.shared / f"{SEEN}.json").read_text()

    def go_on(self) -> None:
        (self.shared / GO).touch()


@attrs.define
class Model:
    """What the model's server was asked, and what it says each time."""

    port: int = 0
    heads: list[dict[str, str]] = attrs.field(factory=list[dict[str, str]])
    paths: list[str] = attrs.field(factory=list[str])
    fails: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, number: int) -> dict[str, object]:
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "m1",
            "content": [{"type": "text", "text": f"answer {number}"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "output_tokens": 7},
        }


@contextmanager
def model_server() -> Generator[Model]:
    """Serve a model until the block is left."""
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            model.heads.append({k.lower(): v for k, v in self.headers.items()})
            model.paths.append(self.path)
            told = {**model.answer(len(model.heads)), "heard": model.heads[-1]}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False
        model.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join(JOIN_SECONDS)
