# SPDX-License-Identifier: Apache-2.0
"""A small engine on a unix socket that fails as it is told to.

It keeps containers, and plays the one exec that makes a container ready, for an
image without Python. An operation with a behaviour behaves once and then works:
it says no (`Says`), never answers (`HANGS`), acts and breaks the connection
(`LOSES_REPLY`), or acts and answers late (`Late`).
"""

import json
import re
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import attrs

from livery.adapters.docker_engine.engine_socket import EngineSocket

VERSION = "1.41"
WAIT_SECONDS = 10.0
RECEIVE_BYTES = 64 * 1024
BACKLOG = 128
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
            body += await stream.receive(RECEIVE_BYTES)
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
        words = {name: values[0] for name, values in parse_qs(query).items()}
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
        if path.startswith("/exec/"):
            return "exec start", lambda: (200, {})
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
            "exec": lambda: (201, {"Id": "e1"}),
        }
        verb = "inspect" if verb == "json" else verb
        return verb, acts["json" if verb == "inspect" else verb]

    def _image(self, name: str) -> tuple[int, Any]:
        if name in self.images:
            return 200, {"Id": "i1", "Config": {"User": ""}}
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
            line = json.dumps(step).encode() + b"\r\n"
            await stream.send(b"%x\r\n%b\r\n" % (len(line), line))
            if "error" in step:
                break
        else:
            self.images.add(IMAGE)
        await stream.send(b"0\r\n\r\n")
        return True


async def _reply(stream: EngineSocket, status: int, answer: Any) -> bool:
    content = b"" if answer is None else json.dumps(answer).encode()
    await stream.send(
        b"HTTP/1.1 %d Told\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (status, len(content), content)
    )
    return True


@asynccontextmanager
async def fake_engine(folder: Path) -> AsyncGenerator[FakeEngine]:
    """Serve a fake on a socket in `folder`."""
    engine = FakeEngine(path=folder / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(engine.path))
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
