# SPDX-License-Identifier: Apache-2.0
"""A connection to the door in a sandbox: an upgraded request, then bytes both ways.

What lies between (execd's own proxy, a gateway) passes an upgraded connection on
as it comes. Both ends show that they know the door's key before a byte of ours
goes over it.
"""

import base64
import hashlib
import hmac
import json
import secrets
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import anyio
import anyio.abc
import attrs

from ...ports.required.byte_stream import ByteStream
from .plain_stream import connect_plainly
from .web_socket import WebSocketStream

CONNECT_SECONDS = 10.0
HEAD_SECONDS = 15.0
HEAD_BYTES_MAX = 64 * 1024
RECEIVE_BYTES_MAX = 64 * 1024


@attrs.frozen
class NoDoor(Exception):
    """Nobody opened; `status` is the answer's, 0 when there was none."""

    status: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class DoorAddress:
    """Where a door is, and what opens it."""

    url: str
    """Of the door itself, without a path of its own behind it."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """What the way there asks for."""
    key: bytes = attrs.field(repr=False)
    has_frames: bool = False
    """Whether the way takes WebSockets apart, and not only passes bytes on."""


class TunnelStream:
    """The `ByteStream` over an upgraded connection."""

    def __init__(self, connection: anyio.abc.ByteStream, held: bytes) -> None:
        """Own `connection`; `held` came with the answer's head."""
        self._connection = connection
        self._held = held

    async def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError` when the other end is gone."""
        try:
            await self._connection.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
            raise BrokenPipeError("the tunnel is closed") from fault

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        if self._held:
            piece = self._held[:RECEIVE_BYTES_MAX]
            self._held = self._held[RECEIVE_BYTES_MAX:]
            return piece
        try:
            return await self._connection.receive(RECEIVE_BYTES_MAX)
        except (
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            return b""

    async def aclose(self) -> None:
        """Close both directions; a pending `receive` ends."""
        await anyio.aclose_forcefully(self._connection)


async def open_tunnel(
    door: DoorAddress,
    *,
    argv: tuple[str, ...] | None = None,
    user: str | None = None,
    trust: ssl.SSLContext | None = None,
) -> ByteStream:
    """Have the door start a worker, or the program `argv` as `user`.

    Raises:
        NoDoor: There is no door, or it is not the one that the key belongs to.
    """
    connection = await connect(door.url, trust)
    try:
        nonce = secrets.token_hex(16)
        head, held = await exchange(connection, _request(door, nonce, argv, user))
        status, headers = read_head(head)
        if status != 101:
            raise NoDoor(status, f"the way to the door answers with {status}")
        stream: ByteStream = TunnelStream(connection, held)
        shown = headers.get("x-livery-proof", "")
        if door.has_frames:
            stream = WebSocketStream(stream)
            with anyio.move_on_after(HEAD_SECONDS):
                shown = (await stream.receive()).decode(errors="replace")
        if not hmac.compare_digest(shown, _proof(door.key, b"guest", nonce)):
            raise NoDoor(status, "what answers is not the door that was put there")
        return stream
    except BaseException:
        await anyio.aclose_forcefully(connection)
        raise


async def connect(
    url: str, trust: ssl.SSLContext | None, *, for_bulk: bool = False
) -> anyio.abc.ByteStream:
    """Connect to where a URL leads; `for_bulk` when much is going to be read.

    Raises:
        NoDoor: Nobody is there.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if is_tls else 80)
    try:
        with anyio.fail_after(CONNECT_SECONDS):
            if not is_tls and for_bulk:
                return await connect_plainly(host, port)
            if not is_tls:
                return await anyio.connect_tcp(host, port)
            context = trust or ssl.create_default_context()
            return await anyio.connect_tcp(
                host, port, tls=True, ssl_context=context, tls_standard_compatible=False
            )
    except TimeoutError as fault:
        raise NoDoor(0, f"no connection within {CONNECT_SECONDS:g} s") from fault
    except (OSError, ssl.SSLError) as fault:
        raise NoDoor(0, str(fault) or type(fault).__name__) from fault


def _request(
    door: DoorAddress, nonce: str, argv: tuple[str, ...] | None, user: str | None
) -> bytes:
    parts = urlsplit(door.url)
    path = f"{parts.path.rstrip('/')}/{'worker' if argv is None else 'process'}"
    headers = {
        "Host": parts.netloc.rpartition("@")[2],
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "X-Livery-Nonce": nonce,
        "X-Livery-Proof": _proof(door.key, b"host", nonce),
        **({"X-Livery-Frames": "yes"} if door.has_frames else {}),
        **door.headers,
    }
    if argv is not None:
        words = json.dumps({"argv": argv, "user": user}).encode()
        headers["X-Livery-Program"] = base64.b64encode(words).decode()
    lines = [f"GET {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def exchange(
    connection: anyio.abc.ByteStream, request: bytes
) -> tuple[bytes, bytes]:
    """Send the request; return the answer's head, and what came with it.

    Raises:
        NoDoor: There is no whole head.
    """
    text = b""
    try:
        with anyio.fail_after(HEAD_SECONDS):
            await connection.send(request)
            while b"\r\n\r\n" not in text:
                if len(text) > HEAD_BYTES_MAX:
                    raise NoDoor(0, "its answer has no end")
                text += await connection.receive(RECEIVE_BYTES_MAX)
    except TimeoutError as fault:
        raise NoDoor(0, f"no answer within {HEAD_SECONDS:g} s") from fault
    except (
        anyio.EndOfStream,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
        OSError,
    ) as fault:
        raise NoDoor(0, "the connection was dropped without an answer") from fault
    head, _, held = text.partition(b"\r\n\r\n")
    return head, held


def read_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Return an answer's status and its headers, by their names in small letters."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise NoDoor(0, "what answers does not speak HTTP")
    pairs = [line.partition(":") for line in lines]
    return int(words[1]), {k.strip().lower(): v.strip() for k, _, v in pairs}


def _proof(key: bytes, who: bytes, nonce: str) -> str:
    return hmac.new(key, who + b" " + nonce.encode(), hashlib.sha256).hexdigest()
