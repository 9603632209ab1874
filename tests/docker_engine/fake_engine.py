# SPDX-License-Identifier: Apache-2.0
"""A small engine on a unix socket that fails as it is told to.

It keeps containers, and plays the one exec that makes a container ready, for an
image without Python. With `runs_here` its execs are processes of this host and its
archives are this host's files, so that all that happens over an engine's streams
can be tried without one. An operation with a behaviour behaves once and then works:
it says no (`Says`), never answers (`HANGS`), acts and breaks the connection
(`LOSES_REPLY`), or acts and answers late (`Late`).
"""

import io
import json
import os
import re
import socket
import struct
import subprocess
import tarfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import anyio.abc
import attrs

from livery.adapters.docker_engine.engine_socket import EngineSocket
from livery.adapters.docker_engine.keep_alive import MARK

VERSION = "1.41"
WAIT_SECONDS = 10.0
RECEIVE_BYTES = 64 * 1024
BACKLOG = 128
CHUNK_BYTES = 32 * 1024
IMAGE = "fake/image:1"
HANGS = "hangs"
LOSES_REPLY = "loses its reply"


@attrs.frozen
class Says:
    """The engine says no."""

    status: int
    message: str


@attrs.frozen
class Late:
    """The engine acts at once, and answers once `until` is set."""

    until: anyio.Event


Behaviour = Says | Late | str


@attrs.define
class FakeEngine:
    """What the engine has, what was asked, and what is to go wrong next."""

    path: Path
    containers: dict[str, dict[str, Any]] = attrs.field(factory=dict[str, Any])
    behaviours: dict[str, list[Behaviour]] = attrs.field(factory=dict[str, Any])
    asked: list[str] = attrs.field(factory=list[str])
    opening: bytes = b"ready 0 0 4000000000.0\nplain it is a fake\n"
    images: set[str] = attrs.field(factory=lambda: {IMAGE})
    runs_here: bool = False
    tcp_port: int | None = None
    image_config: dict[str, Any] = attrs.field(factory=lambda: {"User": ""})
    health: list[str] = attrs.field(factory=list[str])
    """What the looks at a container tell of its health, one after the other."""
    execs: dict[str, dict[str, Any]] = attrs.field(factory=dict[str, Any])
    pull_steps: list[Any] = attrs.field(factory=list[Any])
    in_request: anyio.Event = attrs.field(factory=anyio.Event)

    def will(self, operation: str, *behaviours: Behaviour) -> None:
        """Have the next calls of an operation behave like this."""
        self.behaviours.setdefault(operation, []).extend(behaviours)

    async def asked_for(self, operation: str, *, times: int) -> None:
        """Wait until an operation was asked for so often."""
        with anyio.fail_after(WAIT_SECONDS):
            while self.asked.count(operation) < times:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    @property
    def address(self) -> str:
        if self.tcp_port is not None:
            return f"tcp://127.0.0.1:{self.tcp_port}"
        return f"unix://{self.path}"

    async def serve(self, stream: EngineSocket) -> None:
        """Answer the requests of one connection."""
        try:
            while await self._answer(stream):
                pass
        except OSError:
            return
        finally:
            stream.close()

    async def _answer(self, stream: EngineSocket) -> bool:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = await stream.receive(RECEIVE_BYTES)
            if not piece:
                return False
            head += piece
        head, _, body = head.partition(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        while length and len(body) < int(length[1]):
            piece = await stream.receive(RECEIVE_BYTES)
            if not piece:
                return await _reply(stream, 400, {"message": "unexpected EOF"})
            body += piece
        parts = urlsplit(re.sub(r"^/v[\d.]+", "", target))
        operation, act = self._find(method, unquote(parts.path), parts.query, body)
        self.asked.append(operation)
        behaviour = next(iter(self.behaviours.get(operation, [])), None)
        if behaviour is not None:
            self.behaviours[operation].pop(0)
            self.in_request.set()
        if behaviour == HANGS:
            await anyio.sleep_forever()
        if isinstance(behaviour, Says):
            return await _reply(
                stream, behaviour.status, {"message": behaviour.message}
            )
        if operation == "exec start":
            if self.runs_here:
                return await self._run_exec(stream, target)
            await self._play_exec(stream)
            return False
        if operation == "pull":
            return await self._play_pull(stream)
        status, answer = act()
        if behaviour == LOSES_REPLY:
            return False
        if isinstance(behaviour, Late):
            await behaviour.until.wait()
        return await _reply(stream, status, answer)

    def _find(
        self, method: str, path: str, query: str, body: bytes
    ) -> tuple[str, Callable[[], tuple[int, Any]]]:
        told = parse_qs(query, errors="surrogateescape")
        words = {name: values[0] for name, values in told.items()}
        if path == "/version":
            return "version", lambda: (200, {"ApiVersion": VERSION})
        if image := re.fullmatch(r"/images/(.+)/json", path):
            return "image", lambda: self._image(image[1])
        if path == "/images/create":
            return "pull", lambda: (200, None)
        if path == "/containers/json":
            return "list", self._list
        if path == "/containers/create":
            return "create", lambda: self._create(words["name"], json.loads(body))
        if path.startswith("/exec/") and method == "POST":
            return "exec start", lambda: (200, {})
        if path.startswith("/exec/"):
            exec_id = path.split("/")[2]
            return "exec inspect", lambda: (200, self.execs[exec_id])
        if path.endswith("/archive") and method == "PUT":
            return "put archive", lambda: _unpack(words["path"], body)
        if path.endswith("/archive"):
            return "get archive", lambda: _pack(words["path"])
        found = re.fullmatch(r"/containers/([^/]+)(?:/(\w+))?", path)
        assert found, f"the fake does not know {method} {path}"
        name, verb = found[1], found[2] or "remove"
        acts: dict[str, Callable[[], tuple[int, Any]]] = {
            "json": lambda: self._inspect(name),
            "start": lambda: self._set(name, "running"),
            "kill": lambda: self._set(name, "exited"),
            "unpause": lambda: self._set(name, "running"),
            "pause": lambda: self._set(name, "paused"),
            "remove": lambda: self._remove(name),
            "exec": lambda: self._new_exec(name, json.loads(body)),
        }
        verb = "inspect" if verb == "json" else verb
        return verb, acts["json" if verb == "inspect" else verb]

    def _image(self, name: str) -> tuple[int, Any]:
        if name in self.images:
            return 200, {"Id": "i1", "Config": self.image_config}
        return 404, {"message": f"No such image: {name}"}

    def _create(self, name: str, config: dict[str, Any]) -> tuple[int, Any]:
        if name in self.containers:
            return 409, {"message": f'The container name "/{name}" is already in use'}
        self.add(name, labels=config["Labels"], state="created")
        return 201, {"Id": name}

    def add(self, name: str, *, labels: dict[str, str], state: str) -> None:
        """Have a container; its id is its name."""
        self.containers[name] = {
            "Id": name,
            "Name": f"/{name}",
            "Config": {"Labels": labels, "User": ""},
            "State": {"Status": state, "ExitCode": 0, "OOMKilled": False},
        }

    def _inspect(self, name: str) -> tuple[int, Any]:
        if name not in self.containers:
            return 404, {"message": f"No such container: {name}"}
        if self.health:
            self.containers[name]["State"]["Health"] = {"Status": self.health.pop(0)}
        return 200, self.containers[name]

    def _list(self) -> tuple[int, Any]:
        return 200, [
            {
                "Names": [one["Name"]],
                "Labels": one["Config"]["Labels"],
                "State": one["State"]["Status"],
            }
            for one in self.containers.values()
        ]

    def _set(self, name: str, state: str) -> tuple[int, Any]:
        if name not in self.containers:
            return 404, {"message": f"No such container: {name}"}
        self.containers[name]["State"]["Status"] = state
        return 204, None

    def _remove(self, name: str) -> tuple[int, Any]:
        if self.containers.pop(name, None) is None:
            return 404, {"message": f"No such container: {name}"}
        return 204, None

    def _new_exec(self, container: str, config: dict[str, Any]) -> tuple[int, Any]:
        state = self.containers[container]["State"]["Status"]
        if state != "running":
            return 409, {"message": f"Container {container} is {state}"}
        exec_id = f"e{len(self.execs) + 1}"
        self.execs[exec_id] = {**config, "Running": True, "ExitCode": None}
        return 201, {"Id": exec_id}

    async def _run_exec(self, stream: EngineSocket, target: str) -> bool:
        """Run an exec as a process of this host, as who runs the test."""
        found = self.execs[target.split("/")[-2]]
        if not found["User"].partition(":")[0].isdigit():
            message = f"unable to find user {found['User']}"
            return await _reply(stream, 400, {"message": message})
        await stream.send(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n")
        mark = str(self.path.with_name("ready"))
        argv = [mark if word == MARK else word for word in found["Cmd"]]
        env = dict(pair.split("=", 1) for pair in found["Env"] or [])
        try:
            # Given up half begun, a process would be nobody's, and never waited for.
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **env},
                    start_new_session=True,
                )
        except OSError as failure:
            await _frame(stream, 2, f"exec {argv[0]}: {failure.strerror}\n".encode())
            found.update(Running=False, ExitCode=1)
            return False
        async with process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pump_in, stream, process.stdin)
                async with anyio.create_task_group() as outputs:
                    outputs.start_soon(_pump_out, stream, 1, process.stdout)
                    outputs.start_soon(_pump_out, stream, 2, process.stderr)
                    code = await process.wait()
                    code = code if code >= 0 else 128 - code
                    found.update(Running=False, ExitCode=code)
                tasks.cancel_scope.cancel()
        return False

    async def _play_exec(self, stream: EngineSocket) -> None:
        """Say what opens a container, in two frames, and end."""
        await stream.send(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n")
        for piece in (self.opening[:5], self.opening[5:]):
            await stream.send(struct.pack(">BxxxI", 1, len(piece)) + piece)
        stream.send_end()
        # Closing with unread input would reset the connection.
        while await stream.receive(RECEIVE_BYTES):
            pass

    async def _play_pull(self, stream: EngineSocket) -> bool:
        await stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for step in self.pull_steps:
            if isinstance(step, float):
                await anyio.sleep(step)
                continue
            if isinstance(step, bytes):
                await stream.send(b"%x\r\n%b\r\n" % (len(step), step))
                continue
            if step == LOSES_REPLY:
                return False
            line = json.dumps(step).encode() + b"\r\n"
            await stream.send(b"%x\r\n%b\r\n" % (len(line), line))
            if "error" in step:
                break
        else:
            self.images.add(IMAGE)
        await stream.send(b"0\r\n\r\n")
        return True


async def _frame(stream: EngineSocket, kind: int, piece: bytes) -> None:
    await stream.send(struct.pack(">BxxxI", kind, len(piece)) + piece)


async def _pump_out(
    stream: EngineSocket, kind: int, output: anyio.abc.ByteReceiveStream
) -> None:
    async for piece in output:
        try:
            await _frame(stream, kind, piece)
        except OSError:
            continue  # Nobody listens; the process is not to be held up by that.


async def _pump_in(stream: EngineSocket, given: anyio.abc.ByteSendStream) -> None:
    try:
        while piece := await stream.receive(RECEIVE_BYTES):
            await given.send(piece)
    except (OSError, anyio.BrokenResourceError):
        pass  # The host is gone, or the process reads no more.
    await given.aclose()


def _unpack(folder: str, packed: bytes) -> tuple[int, Any]:
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="fully_trusted")
    except (OSError, tarfile.TarError) as failure:
        return 500, {"message": str(failure)}
    return 200, None


def _pack(path: str) -> tuple[int, Any]:
    if not os.path.lexists(path):
        return 404, {"message": f"Could not find the file {path}"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(path, arcname=os.path.basename(path))
    return 200, packed.getvalue()


async def _reply(stream: EngineSocket, status: int, answer: Any) -> bool:
    if isinstance(answer, bytes):
        await _reply_in_chunks(stream, answer)
        return True
    content = b"" if answer is None else json.dumps(answer).encode()
    await stream.send(
        b"HTTP/1.1 %d Told\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (status, len(content), content)
    )
    return True


async def _reply_in_chunks(stream: EngineSocket, content: bytes) -> None:
    """Answer as the engine does with an archive."""
    await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for start in range(0, len(content), CHUNK_BYTES):
        piece = content[start : start + CHUNK_BYTES]
        await stream.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await stream.send(b"0\r\n\r\n")


@asynccontextmanager
async def fake_engine(
    folder: Path, *, over_tcp: bool = False
) -> AsyncGenerator[FakeEngine]:
    """Serve a fake on a socket in `folder`, or on a port of this host."""
    engine = FakeEngine(path=folder / "engine.sock")
    family = socket.AF_INET if over_tcp else socket.AF_UNIX
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1", 0) if over_tcp else str(engine.path))
        engine.tcp_port = listener.getsockname()[1] if over_tcp else None
        listener.listen(BACKLOG)
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:

            async def accept() -> None:
                while True:
                    await anyio.wait_readable(listener)
                    accepted, _ = listener.accept()
                    accepted.setblocking(False)
                    tasks.start_soon(engine.serve, EngineSocket(accepted))

            tasks.start_soon(accept)
            yield engine
            tasks.cancel_scope.cancel()
