# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the lifecycle server, in this process, for fast tests and faults.

It answers as the real one was measured to. A sandbox of it is a process of this host
in namespaces of its own, with a `/tmp` of its own and our stand-in execd in it; it
has the host's other files. `faults` has it go wrong on purpose.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import attrs

from .. import peers

API_KEY = "key-of-the-stand-in"
EXECD_PORT = 44772
FOLDER = Path(__file__).with_name("execd_image")
PREFIX = "/v1/sandboxes"

_INSIDE = """\
set -e
mount -t tmpfs tmpfs /opt
mkdir /opt/opensandbox /opt/stand-in
python3 -I -S -c '
import fcntl, socket, struct
with socket.socket() as any:
    try:
        fcntl.ioctl(any, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
    except PermissionError:
        pass  # It is up: the network is the host'"'"'s.
'
mount --bind "$STAND_IN_FOLDER" /opt/stand-in
# Before /tmp is another one: the checkout may be below it.
cp "$0"/execd.py /opt/opensandbox/execd
cp "$0"/bootstrap.sh /opt/opensandbox/bootstrap.sh
mount -t tmpfs -o size=64m,mode=1777 tmpfs /tmp
mount -t tmpfs -o size=2m,mode=1777 tmpfs /dev/shm
if [ "$STAND_IN_IS_CUT" ]; then mount -t sysfs sysfs /sys; fi
if [ -s /opt/stand-in/hosts ]; then mount --bind /opt/stand-in/hosts /etc/hosts; fi
exec /opt/opensandbox/bootstrap.sh "$@"
"""


@attrs.define(kw_only=True)
class StandInSandbox:
    """One sandbox, and what the server tells of it."""

    sandbox_id: str
    metadata: dict[str, str]
    created_at: float
    expires_at: float | None
    port: int
    process: subprocess.Popen[bytes]
    is_paused: bool = False
    said: str = ""
    """Why it is as it is, where the server knows better than it looks."""
    policy: dict[str, Any] | None = None
    """What the server says is in force."""
    folder: Path
    """Seen inside; execd listens there too, for a sandbox without a network."""
    forwarder: "Forwarder"

    def signal(self, number: int) -> None:
        for pid in _tree(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        """Kill the first process of the namespaces: the kernel ends the others."""
        while self.process.poll() is None:
            self.signal(signal.SIGCONT)
            for pid in _children(self.process.pid):
                with suppress(ProcessLookupError):  # It has just ended.
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.forwarder.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def state(self) -> tuple[str, str]:
        code = self.process.poll()
        if code is None:
            return (
                ("Paused", "") if self.is_paused else ("Running", "CONTAINER_RUNNING")
            )
        if code == 0:
            return "Terminated", "exited successfully"
        return "Failed", f"exited with code {code if code > 0 else 128 - code}"

    def told(self) -> dict[str, Any]:
        word, reason = self.state()
        reason = self.said or reason
        return {
            "id": self.sandbox_id,
            "status": {"state": word, "reason": reason},
            "metadata": self.metadata,
            "createdAt": _at(self.created_at),
            **({"expiresAt": _at(self.expires_at)} if self.expires_at else {}),
        }


class StandInServer:
    """The server; enter it to have it answer."""

    def __init__(self, *, python: str | None = None) -> None:
        self.sandboxes: dict[str, StandInSandbox] = {}
        self.faults: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.enforcement = "enforced"
        self.page_size = 200
        self.python = python or "python3"
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for sandbox in list(self.sandboxes.values()):
            sandbox.end()

    def start(self) -> None:
        handler = type("OurHandler", (_Handler,), {"server_itself": self})
        self._http = _Http(("127.0.0.1", self._port), handler)
        self._port = int(self._http.server_address[1])
        self._is_over.clear()
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()
        self._timer = threading.Thread(target=self._expire)
        self._timer.start()

    def stop(self) -> None:
        assert self._http
        assert self._thread
        self._is_over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._timer.join()

    def fault(self, name: str) -> Any:
        """Return what is wrong on purpose now; a number is counted down."""
        with self._lock:
            found = self.faults.get(name)
            if isinstance(found, int) and not isinstance(found, bool):
                self.faults[name] = found - 1
                return found if found > 0 else None
            return found

    def of_claim(self, claim: str) -> StandInSandbox:
        return next(
            one
            for one in self.sandboxes.values()
            if one.metadata.get("livery.claim") == claim
        )

    def left(self, claim: str) -> tuple[str, ...]:
        return tuple(
            f"sandbox {one.sandbox_id}"
            for one in list(self.sandboxes.values())
            if one.metadata.get("livery.claim") == claim
        )

    def kill(self, claim: str) -> None:
        """End the sandbox as an operator would, past the server."""
        self.of_claim(claim).end()

    def make(self, words: dict[str, Any]) -> StandInSandbox:
        forgets = self.enforcement == "forgotten"
        cut = bool(words.get("networkPolicy")) and not forgets
        folder = Path(tempfile.mkdtemp(prefix="livery-stand-in-"))
        folder.chmod(0o755)
        if cut and self.enforcement == "addresses alone":
            (folder / "hosts").write_text(
                "127.0.0.1 localhost\n192.0.2.1 example.com\n"
            )
        # A half that filters names alone leaves the network as it is.
        network = ("--net",) if cut and self.enforcement != "names alone" else ()
        forwarder = Forwarder(folder / "execd.sock")
        sandbox_id = str(uuid.uuid4())
        bin_folder = Path(sys.executable).resolve().parent
        environment = {
            "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "OPENSANDBOX_ID": sandbox_id,
            "STAND_IN_LISTEN": str(folder / "execd.sock"),
            "STAND_IN_FOLDER": str(folder),
            "STAND_IN_IS_CUT": "yes" if network else "",
            **{k: v for k, v in (words.get("env") or {}).items() if v is not None},
        }
        process = subprocess.Popen(
            [
                *peers.namespaces(),
                *network,
                *("/bin/sh", "-c", _INSIDE, str(FOLDER)),
                *words["entrypoint"],
            ],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        now = time.time()
        timeout = words.get("timeout")
        sandbox = StandInSandbox(
            sandbox_id=sandbox_id,
            metadata=dict(words.get("metadata") or {}),
            created_at=now,
            expires_at=now + timeout if timeout else None,
            port=forwarder.port,
            process=process,
            folder=folder,
            forwarder=forwarder,
        )
        self.sandboxes[sandbox_id] = sandbox
        return sandbox

    def _expire(self) -> None:
        while not self._is_over.wait(0.05):
            for sandbox in list(self.sandboxes.values()):
                if sandbox.expires_at and sandbox.expires_at <= time.time():
                    sandbox.end()
                    self.sandboxes.pop(sandbox.sandbox_id, None)


class Forwarder:
    """A port of this host that leads to a unix socket, wherever that is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._is_over = False
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        """Close everything, and wait until nobody is at work any more."""
        if self._is_over:
            return
        self._is_over = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._is_over:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _carry(self, connection: socket.socket) -> None:
        behind = socket.socket(socket.AF_UNIX)
        with connection, behind:
            try:
                behind.connect(str(self._path))
            except OSError:
                # As of a port that nobody listens at.
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return
            self._open |= {connection, behind}
            back = threading.Thread(target=_pump, args=(behind, connection))
            back.start()
            _pump(connection, behind)
            back.join()
            self._open -= {connection, behind}


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(256 * 1024):
            target.sendall(piece)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_itself: StandInServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do(self) -> None:
        server = self.server_itself
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        target = urlsplit(self.path)
        server.requests.append((self.command, self.path))
        server.headers.append(dict(self.headers))
        if (status := server.faults.get("status")) is not None:
            return self._answer(
                status, {"code": "SANDBOX::INTERNAL_ERROR", "message": "on purpose"}
            )
        if server.faults.get("is_away"):
            return self._page(404, b"default backend - 404")
        if (key := self.headers.get("OPEN-SANDBOX-API-KEY")) != API_KEY:
            # Some gateways in front of a server say the key back.
            return self._refuse(401, "INVALID_API_KEY", f"API key {key} is not valid")
        words = json.loads(body) if body else {}
        steps = target.path.removeprefix(PREFIX).strip("/").split("/")
        if steps == [""]:
            if self.command == "POST":
                return self._create(words)
            return self._list(dict(parse_qsl(target.query)))
        sandbox = server.sandboxes.get(steps[0])
        if sandbox is None:
            return self._refuse(404, "DOCKER::SANDBOX_NOT_FOUND", "no such sandbox")
        act = steps[1] if len(steps) > 1 else ""
        return self._on(sandbox, act, steps, words)

    do_GET = do_POST = do_DELETE = do_PATCH = do  # noqa: N815

    def _create(self, words: dict[str, Any]) -> None:
        server = self.server_itself
        server.bodies.append(words)
        if server.fault("drop_create"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if refusal := server.fault("refuse_create"):
            return self._answer(*refusal)
        if (
            not isinstance(words.get("timeout", 60), int)
            or words.get("timeout", 60) < 60
        ):
            detail = [{"loc": ["body", "timeout"], "msg": "at least 60"}]
            return self._answer(422, {"detail": detail})
        policy = words.get("networkPolicy")
        if (delay := server.fault("create_seconds")) is not None:
            time.sleep(delay)
        sandbox = server.make(words)
        if policy is not None:
            told = {"defaultAction": "allow", "egress": []}
            forgets = server.fault("forget_policy")
            sandbox.policy = told if forgets else policy
        if server.fault("lose_create_reply"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        return self._answer(202, sandbox.told())

    def _list(self, query: dict[str, str]) -> None:
        wanted = dict(parse_qsl(query.get("metadata", "")))
        size, page = int(query.get("pageSize", 20)), int(query.get("page", 1))
        size = min(size, self.server_itself.page_size)
        found = sorted(
            (
                one
                for one in list(self.server_itself.sandboxes.values())
                if wanted.items() <= one.metadata.items()
            ),
            key=lambda one: -one.created_at,
        )
        if self.server_itself.fault("late_list"):
            found = []
        shown = found[(page - 1) * size : page * size]
        return self._answer(
            200,
            {
                "items": [one.told() for one in shown],
                "pagination": {"page": page, "hasNextPage": page * size < len(found)},
            },
        )

    def _on(
        self, sandbox: StandInSandbox, act: str, steps: list[str], words: dict[str, Any]
    ) -> None:
        server = self.server_itself
        if act == "" and self.command == "GET":
            return self._answer(200, sandbox.told())
        if act == "" and self.command == "DELETE":
            if server.fault("delete_fails"):
                return self._refuse(
                    500, "DOCKER::SANDBOX_DELETE_FAILED", "removal in progress"
                )
            if server.sandboxes.pop(sandbox.sandbox_id, None):
                sandbox.end()
            return self._answer(204, None)
        if act == "endpoints":
            port = int(steps[2])
            address = f"127.0.0.1:{sandbox.port}/proxy/{port}"
            address = server.faults.get("endpoint", address)
            return self._answer(200, {"endpoint": address})
        if act == "renew-expiration":
            if server.fault("renew_fails"):
                return self._refuse(500, "DOCKER::RENEW_FAILED", "the store is busy")
            at = datetime.fromisoformat(words["expiresAt"]).timestamp()
            if at <= time.time():
                return self._refuse(400, "DOCKER::INVALID_EXPIRATION", "it is past")
            sandbox.expires_at = at
            return self._answer(200, {"expiresAt": _at(at)})
        if act == "metadata":
            if not server.fault("metadata_stay"):
                for name, value in words.items():
                    sandbox.metadata.pop(name, None)
                    if value is not None:
                        sandbox.metadata[name] = value
            return self._answer(200, sandbox.told())
        if act in {"pause", "resume"}:
            pauses = act == "pause"
            if sandbox.is_paused is pauses or sandbox.state()[0] not in {
                "Running",
                "Paused",
            }:
                return self._refuse(409, "DOCKER::SANDBOX_NOT_RUNNING", "wrong state")
            sandbox.signal(signal.SIGSTOP if pauses else signal.SIGCONT)
            sandbox.is_paused = pauses
            return self._answer(202, None)
        if act == "networkpolicy":
            if sandbox.policy is None or server.fault("no_sidecar"):
                return self._refuse(502, "BACKEND_CONNECTION_FAILED", "no sidecar")
            return self._answer(200, {"policy": sandbox.policy})
        return self._refuse(404, "NOT_FOUND", act)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, {"code": code, "message": message})

    def _answer(self, status: int, words: Any) -> None:
        content = b"" if words is None else json.dumps(words).encode()
        self._page(status, content, kind="application/json")

    def _page(self, status: int, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-request-id", secrets.token_hex(8))
        self.end_headers()
        self.wfile.write(content)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _tree(pid: int) -> list[int]:
    """Return everything below the process, the deepest last, without itself."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *_tree(child)]
    return found


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
