# SPDX-License-Identifier: Apache-2.0
"""Pods that are folders and processes of this host, each with its runtime server.

The server speaks the sandbox runtime's HTTP API with its weaknesses: no shell, text
alone, whole files, a time after which it cuts a command, no word of a client that
went away. A pod has an address of its own on loopback; its end takes every process.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.abc
import attrs

from ..model_gateway.upstream import Request, answer, upstream

PORT = 28888
MARK = "LIVERY_TEST_POD"
CUT_SECONDS = 300.0

_numbers = itertools.count(os.getpid() * 64 % (1 << 22))


def new_address() -> str:
    """Return an address of loopback that no other pod here has."""
    number = next(_numbers) % (1 << 22)
    return f"127.{(number >> 16) + 8}.{(number >> 8) & 255}.{number & 255}"


@attrs.define(eq=False)
class FakePod:
    """A pod."""

    uid: str
    folder: Path
    address: str = attrs.field(factory=new_address)
    cut_seconds: float = CUT_SECONDS
    answers: list[bytes] = attrs.field(factory=list[bytes])
    """What the server says next instead of doing what it is asked."""
    refuses: Callable[[str], bytes | None] | None = None
    """Says by path what the server answers instead, for as long as it is set."""
    asked: list[str] = attrs.field(factory=list[str])
    commands: list[str] = attrs.field(factory=list[str])
    headers: list[Request] = attrs.field(factory=list[Request])
    is_over: bool = False
    _stop: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)

    async def serve(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen until the pod's end."""
        with self._stop:
            async with upstream(self._answer, host=self.address, port=PORT):
                task_status.started()
                await anyio.sleep_forever()

    def end(self) -> None:
        """End the pod and everything that ran in it."""
        self.is_over = True
        self._stop.cancel()
        kill_marked(self.uid)
        for pattern in ("/tmp/.run-*", "/var/tmp/.run-*", "/dev/shm/.run-*"):
            self._remove_scratch(pattern)

    def restart(self) -> None:
        """End everything that runs, as a container's restart does; files stay."""
        kill_marked(self.uid)

    def _remove_scratch(self, pattern: str) -> None:
        for name in self.folder.glob(".livery-*"):
            key = name.name.removeprefix(".livery-")
            shutil.rmtree(Path(pattern.replace("*", key)), ignore_errors=True)

    async def _answer(self, request: Request, stream: anyio.abc.SocketStream) -> None:
        method, path, _ = request.line.decode().split()
        self.asked.append(f"{method} {path.split('?')[0]}")
        self.headers.append(request)
        said = self.refuses(path) if self.refuses else None
        if said is None and self.answers:
            said = self.answers.pop(0)
        if said == b"":
            await stream.aclose()
            return
        await stream.send(said or await self._do(path, request))

    async def _do(self, path: str, request: Request) -> bytes:
        if path == "/execute":
            return await self._execute(json.loads(request.body)["command"])
        if path == "/upload":
            return await anyio.to_thread.run_sync(self._upload, request)
        return answer(200, b'{"status": "ok"}')

    async def _execute(self, command: str) -> bytes:
        self.commands.append(command)
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", MARK: self.uid}
        try:
            process = await anyio.open_process(
                shlex.split(command),
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as failure:
            return _executed(1, b"", f"Failed to execute command: {failure}".encode())
        said: dict[str, bytes] = {}

        async def read(name: str, reader: anyio.abc.ByteReceiveStream) -> None:
            said[name] = b"".join([piece async for piece in reader])

        async with process:
            assert process.stdout is not None
            assert process.stderr is not None
            with anyio.move_on_after(self.cut_seconds) as cut:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read, "out", process.stdout)
                    tasks.start_soon(read, "err", process.stderr)
                await process.wait()
            if cut.cancelled_caught:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return _executed(1, b"", b"Command timed out")
        return _executed(process.returncode or 0, said["out"], said["err"])

    def _upload(self, request: Request) -> bytes:
        found = re.search(rb'filename="([^"]*)"\r\n', request.body)
        assert found is not None
        (kind,) = request.header(b"content-type")
        word = kind.split(b"boundary=")[1]
        content = request.body.split(b"\r\n\r\n", 1)[1]
        content = content[: content.rindex(b"\r\n--" + word)]
        path = os.path.realpath(self.folder / found[1].decode())
        if not path.startswith(f"{os.path.realpath(self.folder)}/"):
            return answer(403, b'{"detail": "Access denied"}')
        try:
            # As older servers do: parents are not made.
            Path(path).write_bytes(content)
        except OSError as failure:
            return answer(500, json.dumps({"detail": str(failure)}).encode())
        return answer(200, b'{"message": "ok"}')


def _executed(code: int, out: bytes, err: bytes) -> bytes:
    try:
        words = {"stdout": out.decode(), "stderr": err.decode(), "exit_code": code}
    except UnicodeDecodeError as failure:
        return answer(500, json.dumps({"detail": str(failure)}).encode())
    return answer(200, json.dumps(words).encode())


def marked(uid: str) -> list[int]:
    """Return the processes of a pod."""
    found: list[int] = []
    wanted = f"{MARK}={uid}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


def kill_marked(uid: str) -> None:
    """Kill the processes of a pod, until none is left."""
    for _ in range(200):
        left = marked(uid)
        if not left:
            return
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def new_pod(uid: str) -> AsyncGenerator[FakePod]:
    """Run a pod until the block is left."""
    with tempfile.TemporaryDirectory(prefix="lvpod-", ignore_cleanup_errors=True) as at:
        pod = FakePod(uid, Path(at))
        async with anyio.create_task_group() as tasks:
            await tasks.start(pod.serve)
            try:
                yield pod
            finally:
                pod.end()
                tasks.cancel_scope.cancel()
