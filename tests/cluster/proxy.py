# SPDX-License-Identifier: Apache-2.0
"""A proxy that goes wrong where it is told to.

It stands before the API server and before runtime servers, passes requests on one to
a connection, writes down what it saw, and does to those that match a rule what the
rule says. Replies are passed byte for byte.
"""

import itertools
import json
import re
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import anyio.abc
import attrs
from anyio.streams.tls import TLSListener

HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024
SEEN_MAX = 20_000
DIAL_SECONDS_MAX = 5.0

GONE = (
    OSError,
    ssl.SSLError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)

Does = Literal["answer", "cut", "cut_reply", "stall", "delay"]


@attrs.frozen(kw_only=True)
class Head:
    """The head of a request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    def value(self, name: str) -> str:
        """Return a header's value, or nothing."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        return found[0] if found else ""

    def without(self, *names: str) -> "Head":
        """Return the head without some headers."""
        kept = [(k, v) for k, v in self.headers if k.lower() not in names]
        return attrs.evolve(self, headers=tuple(kept))

    def bytes(self) -> bytes:
        """Return what goes over the wire, for one request alone."""
        kept = self.without("connection", "proxy-connection", "keep-alive").headers
        lines = [f"{self.method} {self.target} HTTP/1.1", "Connection: close"]
        lines += [f"{key}: {value}" for key, value in kept]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@attrs.frozen(kw_only=True)
class Canned:
    """An answer that nobody behind the proxy gave."""

    status: int
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()

    def bytes(self) -> bytes:
        """Return the answer as it goes over the wire."""
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        content = b"" if self.body is None else text.encode()
        lines = [f"HTTP/1.1 {self.status} Told", "Connection: close"]
        lines += [f"Content-Length: {len(content)}"]
        if not any(key.lower() == "content-type" for key, _ in self.headers):
            lines.append("Content-Type: application/json")
        lines += [f"{key}: {value}" for key, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


@attrs.frozen(kw_only=True)
class Upstream:
    """Where a request goes on to."""

    host: str
    port: int
    trust: ssl.SSLContext | None = None
    hides: tuple[str, ...] = ()
    """Headers, in lower case, that are not passed on."""
    tries: int = 1
    between_seconds: float = 0.0
    refused: Canned | None = None
    """What is answered when nobody can be dialled; None: the connection is cut."""


Route = Callable[[Head], Awaitable[Upstream | Canned]]


@attrs.define(kw_only=True)
class Rule:
    """What is done to requests that match."""

    number: int
    method: str
    target: re.Pattern[str]
    header: str
    """`Name: pattern`, or nothing."""
    does: Does
    answer: Canned
    seconds: float
    times: int | None
    """How many more requests it is for; None: all."""

    def matches(self, head: Head) -> bool:
        """Return whether it is for this request."""
        if self.times == 0 or self.method not in ("", head.method):
            return False
        name, _, pattern = self.header.partition(":")
        if name and not re.search(pattern.strip(), head.value(name.strip())):
            return False
        return self.target.search(head.target) is not None


@attrs.define(eq=False)
class Passing:
    """One request under way."""

    head: Head
    scope: anyio.CancelScope
    goes_on: anyio.Event


class Listener:
    """One address at which the proxy listens."""

    def __init__(self, name: str, route: Route) -> None:
        """Pass what comes to where `route` says."""
        self.name = name
        self.seen: deque[dict[str, Any]] = deque(maxlen=SEEN_MAX)
        self._route = route
        self._rules: list[Rule] = []
        self._numbers = itertools.count(1)
        self._passing: set[Passing] = set()
        self._up = [True]

    def add(
        self,
        does: Does,
        *,
        method: str = "",
        target: str = "",
        header: str = "",
        status: int = 500,
        body: Any = None,
        headers: dict[str, str] | None = None,
        seconds: float = 0.0,
        times: int | None = None,
    ) -> int:
        """Add a rule and return its number; the first that matches counts."""
        rule = Rule(
            number=next(self._numbers),
            method=method,
            target=re.compile(target),
            header=header,
            does=does,
            answer=Canned(
                status=status, body=body, headers=tuple((headers or {}).items())
            ),
            seconds=seconds,
            times=times,
        )
        self._rules.append(rule)
        return rule.number

    def share(self, other: "Listener") -> None:
        """Go by the rules of another, and write down with it."""
        self.seen, self._rules, self._passing = other.seen, other._rules, other._passing
        self._up = other._up

    @property
    def is_up(self) -> bool:
        """Whether anybody is answered."""
        return self._up[0]

    @is_up.setter
    def is_up(self, is_up: bool) -> None:
        self._up[0] = is_up

    def remove(self, number: int) -> None:
        """Take a rule away."""
        self._rules[:] = [rule for rule in self._rules if rule.number != number]

    def clear(self) -> None:
        """Take all rules away, let go on what was stalled, forget what was seen."""
        self._rules.clear()
        self.is_up = True
        self.let_go()
        self.seen.clear()

    def cut(self, target: str = "") -> int:
        """Cut the connections under way whose request matches."""
        hit = self._matching(target)
        for passing in hit:
            passing.scope.cancel()
        return len(hit)

    def stall(self, target: str = "") -> int:
        """Hold the replies under way whose request matches, with nothing said."""
        hit = self._matching(target)
        for passing in hit:
            passing.goes_on = anyio.Event()
        return len(hit)

    def let_go(self, target: str = "") -> int:
        """Let replies go on that were held."""
        hit = self._matching(target)
        for passing in hit:
            passing.goes_on.set()
        return len(hit)

    def under_way(self, target: str = "") -> int:
        """Return how many requests that match are under way."""
        return len(self._matching(target))

    def _matching(self, target: str) -> list[Passing]:
        wanted = re.compile(target)
        return [one for one in self._passing if wanted.search(one.head.target)]

    async def serve(
        self,
        host: str,
        port: int,
        *,
        trust: ssl.SSLContext | None = None,
        task_status: anyio.abc.TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen until cancelled; the port is told once it is listened at."""
        tcp = await anyio.create_tcp_listener(
            local_host=host, local_port=port, backlog=1024
        )
        (one, *_) = tcp.listeners
        found = int(one.extra(anyio.abc.SocketAttribute.local_port))
        listener: Any = tcp
        if trust is not None:
            listener = TLSListener(tcp, trust, standard_compatible=False)
        task_status.started(found)
        await listener.serve(self._answered)

    async def _answered(self, client: anyio.abc.ByteStream) -> None:
        try:
            async with client:
                if self.is_up:
                    await self._answer(client)
        except* GONE:
            pass  # Either end went away.

    async def _answer(self, client: anyio.abc.ByteStream) -> None:
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += await client.receive(PIECE_BYTES)
            assert len(raw) <= HEAD_BYTES_MAX, "a head without end"
        text, _, rest = raw.partition(b"\r\n\r\n")
        head = _head(text.decode("latin-1"))
        facts: dict[str, Any] = {
            "method": head.method,
            "target": head.target,
            "headers": dict(head.headers),
            "status": None,
            "at": time.time(),
        }
        self.seen.append(facts)
        scope = anyio.CancelScope()
        passing = Passing(head, scope, anyio.Event())
        passing.goes_on.set()
        self._passing.add(passing)
        try:
            with scope:
                await self._pass(client, passing, rest, facts)
        finally:
            self._passing.discard(passing)

    async def _pass(
        self,
        client: anyio.abc.ByteStream,
        passing: Passing,
        rest: bytes,
        facts: dict[str, Any],
    ) -> None:
        head = passing.head
        rule = next((one for one in self._rules if one.matches(head)), None)
        if rule is not None and rule.times is not None:
            rule.times -= 1
        does = rule.does if rule else None
        facts["rule"] = rule.number if rule else None
        if rule is not None and rule.seconds:
            await anyio.sleep(rule.seconds)
        if does == "cut":
            return
        if rule is not None and does == "answer":
            facts["status"] = rule.answer.status
            await _drain(client, head, rest)
            await client.send(rule.answer.bytes())
            return
        if does == "stall":
            passing.goes_on = anyio.Event()
        to = await self._route(head)
        upstream = to if isinstance(to, Canned) else await _dialled(to)
        if upstream is None:
            return
        if isinstance(upstream, Canned):
            facts["status"] = upstream.status
            await _drain(client, head, rest)
            await client.send(upstream.bytes())
            return
        assert isinstance(to, Upstream)
        async with upstream:
            await upstream.send(head.without(*to.hides).bytes() + rest)
            async with anyio.create_task_group() as group:
                group.start_soon(_copy, client, upstream, group.cancel_scope)
                kept = None if does == "cut_reply" else client
                await self._replied(upstream, kept, passing, facts)
                group.cancel_scope.cancel()

    async def _replied(
        self,
        upstream: anyio.abc.ByteStream,
        client: anyio.abc.ByteStream | None,
        passing: Passing,
        facts: dict[str, Any],
    ) -> None:
        is_first = True
        async for piece in upstream:
            if is_first:
                facts["status"] = int(piece.split(b" ", 2)[1])
                is_first = False
            await passing.goes_on.wait()
            if client is not None:
                await client.send(piece)


async def _dialled(to: Upstream) -> anyio.abc.ByteStream | Canned | None:
    for attempt in range(to.tries):
        if attempt:
            await anyio.sleep(to.between_seconds)
        try:
            with anyio.fail_after(DIAL_SECONDS_MAX):
                if to.trust is None:
                    return await anyio.connect_tcp(to.host, to.port)
                return await anyio.connect_tcp(
                    to.host,
                    to.port,
                    tls=True,
                    ssl_context=to.trust,
                    tls_standard_compatible=False,
                    tls_hostname="127.0.0.1",
                )
        except (OSError, TimeoutError):
            continue
    return to.refused


async def _copy(
    client: anyio.abc.ByteStream,
    upstream: anyio.abc.ByteStream,
    scope: anyio.CancelScope,
) -> None:
    async for piece in client:
        await upstream.send(piece)
    # Nobody is left to answer.
    scope.cancel()


async def _drain(client: anyio.abc.ByteStream, head: Head, rest: bytes) -> None:
    """Read the body, so that the answer is not lost to a reset."""
    if head.value("transfer-encoding").lower() == "chunked":
        while not rest.endswith(b"0\r\n\r\n"):
            rest = rest[-8:] + await client.receive(PIECE_BYTES)
        return
    missing = int(head.value("content-length") or 0) - len(rest)
    while missing > 0:
        missing -= len(await client.receive(PIECE_BYTES))


def _head(text: str) -> Head:
    first, *lines = text.split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = [line.partition(":") for line in lines]
    headers = tuple((key.strip(), value.strip()) for key, _, value in pairs)
    return Head(method=method, target=target, headers=headers)
