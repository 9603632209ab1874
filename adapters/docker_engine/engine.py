# SPDX-License-Identifier: Apache-2.0
"""The engine as the rest of this folder sees it: no call blocks the event loop.

Short questions go through the `docker` package, in threads that are limited in
number and in time. Attached execs and archives have sockets of their own
(`engine_connection`). Nothing is asked of the engine before the first call.

Every method may raise `ProviderUnreachable`, `ProviderForbidden`, and
`EngineRefused` where the engine's no is the caller's to answer.
"""

import json
import math
import socket
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar, cast
from urllib.parse import quote, urlencode

import anyio
import anyio.to_thread
import docker
import docker.errors
import requests
import urllib3

from .attached_exec import AttachedExec
from .engine_address import EngineAddress
from .engine_connection import (
    BadAnswer,
    EngineConnection,
    Head,
    open_connection,
)
from .engine_facts import (
    ContainerFacts,
    ImageFacts,
    ListedContainer,
    to_container,
    to_exit_code,
    to_id,
    to_image,
    to_listed,
)
from .engine_faults import EnginePlace, EngineRefused, to_refused

THREADS_MAX = 16
PULLS_MAX = 16
"""Threads of their own: a pull takes minutes, and nothing short may wait for it."""
CONTROL_SECONDS = 30.0
ABORT_SECONDS = 10.0
PULL_SILENCE_SECONDS = 600.0
"""How long a pull may say nothing; how long it may take is the caller's."""
DONE_STATUSES = frozenset({200})
EXEC_STATUSES = frozenset({101, 200})

Answer = TypeVar("Answer")


class _ControlClient(Protocol):
    """The calls of `docker.APIClient` that are used, with types."""

    def close(self) -> None: ...
    def inspect_image(self, image: str) -> object: ...
    def create_container_from_config(
        self, config: Mapping[str, object], name: str
    ) -> object: ...
    def inspect_container(self, container: str) -> object: ...
    def containers(self, *, all: bool, filters: Mapping[str, list[str]]) -> object: ...
    def start(self, container: str) -> None: ...
    def kill(self, container: str) -> None: ...
    def pause(self, container: str) -> None: ...
    def unpause(self, container: str) -> None: ...
    def remove_container(self, container: str, *, v: bool, force: bool) -> None: ...
    def exec_create(
        self,
        container: str,
        cmd: list[str],
        *,
        stdin: bool,
        user: str,
        environment: dict[str, str],
    ) -> object: ...
    def exec_inspect(self, exec_id: str) -> object: ...
    def pull(
        self, repository: str, tag: str | None, *, stream: bool, decode: bool
    ) -> Iterable[Mapping[str, object]]: ...


class Engine:
    """A Docker Engine at one address."""

    def __init__(
        self,
        address: EngineAddress,
        *,
        provider: str,
        control_seconds: float = CONTROL_SECONDS,
    ) -> None:
        """Speak to the engine at `address` once it is asked something.

        `control_seconds` bounds a short question; attached execs and archives take
        the time that they take.
        """
        self._control_seconds = control_seconds
        self.address = address
        self.place = EnginePlace(provider=provider, address=address.url)
        self._threads = anyio.CapacityLimiter(THREADS_MAX)
        self._pulls = anyio.CapacityLimiter(PULLS_MAX)
        self._clients: dict[int, docker.APIClient] = {}
        self._version = ""
        self._opening = threading.Lock()

    async def image(self, name: str) -> ImageFacts:
        """Look at an image."""
        return to_image(await self._call(lambda client: client.inspect_image(name)))

    async def pull(
        self, repository: str, tag: str | None, *, tell: Callable[[str], None]
    ) -> None:
        """Pull an image; the caller bounds it, and hears of the progress."""

        given_up = threading.Event()

        def pull(client: _ControlClient) -> None:
            for step in client.pull(repository, tag, stream=True, decode=True):
                if given_up.is_set():
                    return
                if "error" in step:
                    raise to_refused(500, str(step["error"]))
                tell(" ".join(str(step.get(key, "")) for key in ("id", "status")))

        try:
            await self._call(pull, seconds=PULL_SILENCE_SECONDS, limiter=self._pulls)
        finally:
            given_up.set()

    async def create(
        self, config: Mapping[str, object], *, name: str, seconds: float
    ) -> str:
        """Make a container and return its id."""
        raw = await self._call(
            lambda client: client.create_container_from_config(config, name),
            seconds=seconds,
        )
        return to_id(raw)

    async def start(self, container: str, *, seconds: float) -> None:
        """Start a container; one that runs already is left running."""
        await self._call(lambda client: client.start(container), seconds=seconds)

    async def inspect(self, container: str) -> ContainerFacts | None:
        """Look at a container; None when there was seen to be none."""
        try:
            raw = await self._call(lambda client: client.inspect_container(container))
        except EngineRefused as refused:
            if refused.status == 404:
                return None
            raise self.place.at_odds(refused) from refused
        return to_container(raw)

    async def containers(self, label: str) -> tuple[ListedContainer, ...]:
        """List the containers with the label, whatever their state."""
        try:
            raw = await self._call(
                lambda client: client.containers(all=True, filters={"label": [label]})
            )
        except EngineRefused as refused:
            raise self.place.at_odds(refused) from refused
        return to_listed(raw)

    async def kill(self, container: str) -> None:
        """Send KILL to a container's first process."""
        await self._call(lambda client: client.kill(container))

    async def pause(self, container: str) -> None:
        """Freeze every process of a container."""
        await self._call(lambda client: client.pause(container))

    async def unpause(self, container: str) -> None:
        """Let the processes of a container go on."""
        await self._call(lambda client: client.unpause(container))

    async def remove(self, container: str) -> None:
        """End and remove a container with its anonymous volumes."""
        await self._call(
            lambda client: client.remove_container(container, v=True, force=True)
        )

    async def exec_attached(
        self,
        container: str,
        argv: Iterable[str],
        *,
        user: str,
        env: Mapping[str, str] | None = None,
    ) -> AttachedExec:
        """Start a process in a container with its three streams attached."""
        words = list(argv)
        raw = await self._call(
            lambda client: client.exec_create(
                container, words, stdin=True, user=user, environment=dict(env or {})
            )
        )
        exec_id = to_id(raw)
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        target = await self._target(f"/exec/{exec_id}/start")
        connection = await self._connect()
        try:
            with self._unbroken():
                await connection.request(
                    "POST",
                    target,
                    {
                        "Connection": "Upgrade",
                        "Upgrade": "tcp",
                        "Content-Type": "application/json",
                        "Content-Length": str(len(body)),
                    },
                )
                await connection.send(body)
                await _check(connection, statuses=EXEC_STATUSES)
        except BaseException:
            connection.close()
            raise
        return AttachedExec(exec_id, connection)

    async def exec_exit_code(self, exec_id: str) -> int | None:
        """Return how an exec ended; None while it runs or is not known."""
        return to_exit_code(
            await self._call(lambda client: client.exec_inspect(exec_id))
        )

    async def put_archive(
        self, container: str, folder: str, pieces: AsyncIterator[bytes], *, length: int
    ) -> None:
        """Unpack a tar of `length` bytes into a folder of the container.

        What `pieces` raises comes through as it is.
        """
        target = await self._archive_target(container, folder)
        connection = await self._connect()
        try:
            with self._unbroken():
                await connection.request(
                    "PUT",
                    target,
                    {
                        "Content-Type": "application/x-tar",
                        "Content-Length": str(length),
                    },
                )
            try:
                async for piece in pieces:
                    if not await _is_sent(connection, piece):
                        break
            except BaseException:
                await _abort(connection)
                raise
            with self._unbroken():
                await _check(connection)
        finally:
            connection.close()

    @asynccontextmanager
    async def get_archive(
        self, container: str, path: str
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a tar of what is under a path of the container."""
        target = await self._archive_target(container, path)
        connection = await self._connect()
        try:
            with self._unbroken():
                await connection.request("GET", target, {})
                head = await _check(connection)
            yield connection.body(head)
        finally:
            connection.close()

    async def aclose(self) -> None:
        """Close the connections that are kept for the next call."""
        with self._opening:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    async def _archive_target(self, container: str, path: str) -> str:
        words = {"path": path}
        query = urlencode(words, quote_via=quote, errors="surrogateescape")
        return await self._target(f"/containers/{quote(container)}/archive?{query}")

    async def _target(self, path: str) -> str:
        if not self._version:
            await self._call(lambda _: None)
        return f"/v{self._version}{path}"

    async def _connect(self) -> EngineConnection:
        try:
            with anyio.fail_after(CONTROL_SECONDS):
                return await open_connection(self.address)
        except TimeoutError as failure:
            raise self.place.unreachable(
                f"no connection within {CONTROL_SECONDS:g} s"
            ) from failure
        except OSError as failure:
            raise self.place.from_os(failure) from failure

    async def _call(
        self,
        act: Callable[[_ControlClient], Answer],
        *,
        seconds: float | None = None,
        limiter: anyio.CapacityLimiter | None = None,
    ) -> Answer:
        limit = self._control_seconds if seconds is None else seconds

        def run() -> Answer:
            try:
                return act(self._client(limit))
            except docker.errors.APIError as failure:
                status = 0 if failure.response is None else failure.response.status_code
                raise to_refused(status, str(failure.explanation or "")) from failure
            except (
                docker.errors.DockerException,
                # Of an answer in pieces that broke off, the package lets these through.
                docker.errors.StreamParseError,
                urllib3.exceptions.HTTPError,
                requests.exceptions.RequestException,
                OSError,
                ValueError,
            ) as failure:
                raise self.place.from_library(failure, limit) from failure

        return await anyio.to_thread.run_sync(
            run, limiter=limiter or self._threads, abandon_on_cancel=True
        )

    def _client(self, seconds: float) -> _ControlClient:
        """Return a client whose time limit is no shorter; called in a thread."""
        # A few limits serve all callers, who bound what they wait for themselves.
        limit = 2 ** max(0, math.ceil(math.log2(max(seconds, 1.0))))
        with self._opening:
            client = self._clients.get(limit)
        if client is None:
            _knock(self.address, limit)
            # Unlocked: an engine that hangs here must not hold up other threads.
            client = docker.APIClient(
                base_url=self.address.url,
                version=self._version or "auto",
                timeout=limit,
                max_pool_size=THREADS_MAX,
            )
            self._version = client.api_version
            with self._opening:
                first = self._clients.setdefault(limit, client)
            if first is not client:
                client.close()
                client = first
        # The stubs leave most arguments and answers of these calls untyped.
        return cast("_ControlClient", client)

    @contextmanager
    def _unbroken(self) -> Generator[None]:
        """Tell an exchange that breaks off as what it is to a caller."""
        try:
            yield
        except (BadAnswer, OSError) as failure:
            text = str(failure) or type(failure).__name__
            raise self.place.unreachable(
                f"the exchange broke off ({text})"
            ) from failure


def _knock(address: EngineAddress, seconds: float) -> None:
    """Raise what the operating system says when nobody can be reached.

    The `docker` package wraps it in words, and leaves its socket open.
    """
    if address.path is None:
        return
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(seconds)
        tried.connect(address.path)


async def _check(
    connection: EngineConnection, *, statuses: frozenset[int] = DONE_STATUSES
) -> Head:
    """Return the head of an answer that says yes; raise the no of any other."""
    head = await connection.head()
    if head.status not in statuses:
        raise await _refusal(connection, head)
    return head


async def _refusal(connection: EngineConnection, head: Head) -> EngineRefused:
    raw = await connection.error_text(head)
    try:
        told: object = json.loads(raw)
    except ValueError:
        told = None
    if isinstance(told, dict):
        return to_refused(
            head.status, str(cast("dict[str, object]", told).get("message", ""))
        )
    return to_refused(head.status, raw.decode(errors="replace"))


async def _is_sent(connection: EngineConnection, piece: bytes) -> bool:
    """Send a piece; an engine that says no stops reading, and its answer tells why."""
    try:
        await connection.send(piece)
    except OSError:
        return False
    return True


async def _abort(connection: EngineConnection) -> None:
    """End a request in its middle, and wait until the engine is done with it."""
    with anyio.move_on_after(ABORT_SECONDS, shield=True):
        try:
            connection.send_end()
            await connection.head()
        except (BadAnswer, OSError):
            return
