# SPDX-License-Identifier: Apache-2.0
"""TCP connections from this host, with ends in each direction."""

from typing import ClassVar
from urllib.parse import urlsplit

import anyio
import anyio.abc
import attrs

from ...ports.required.faults import Fault
from ...ports.required.sandbox_streams import Dial, DuplexStream

RECEIVE_BYTES_MAX = 64 * 1024
_PORTS = {"http": 80}


@attrs.frozen
class BadTarget(Fault):
    """A relay cannot carry connections to such an address."""

    kind: ClassVar[str] = "bad_target"
    message: ClassVar[str] = "No relay can reach {scheme}://{host}: {reason}."

    scheme: str
    host: str
    reason: str


@attrs.frozen
class TcpStream:
    """A connection; what breaks is an `OSError`."""

    _stream: anyio.abc.SocketStream

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
            raise BrokenPipeError("the connection broke") from fault

    async def send_end(self) -> None:
        """Say that nothing more will be sent."""
        try:
            await self._stream.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
            raise BrokenPipeError("the connection broke") from fault

    async def receive(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty at the end."""
        try:
            return await self._stream.receive(RECEIVE_BYTES_MAX)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
            raise ConnectionResetError("the connection broke") from fault

    async def aclose(self) -> None:
        """Close both directions."""
        await self._stream.aclose()


def dial_tcp(host: str, port: int) -> Dial:
    """Return what connects to a port that this host reaches."""

    async def dial() -> DuplexStream:
        return TcpStream(await anyio.connect_tcp(host, port))

    return dial


def dial_url(url: str) -> Dial:
    """Return what connects to where an `http` URL points.

    Raises:
        BadTarget: It is no plain HTTP; inside, nobody could check the certificate.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        host = parts.hostname or ""
        raise BadTarget(parts.scheme, host, "a plain http address is wanted")
    return dial_tcp(parts.hostname, parts.port or _PORTS[parts.scheme])
