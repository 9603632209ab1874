# SPDX-License-Identifier: Apache-2.0
"""Large files out of a sandbox by execd's own download.

Execd reads as root, and expands `$` and `~` in a path. So this is for sandboxes
whose user is root, and for paths that mean themselves. What does not come this way
comes through the worker; a file that was begun and breaks off is cut.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

import anyio
import anyio.abc
import attrs

from ...ports.required.sandbox import FileKind, FileStat, TransferCut
from .execd import SILENCE_SECONDS, Execd
from .spec_terms import ROOT
from .tunnel import NoDoor, connect, exchange, read_head

BULK_BYTES_MIN = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024


@attrs.frozen
class NotBulk(Exception):
    """It has to go the other way; nothing has come yet."""


def is_bulk(path: str, stat: FileStat, *, user: str) -> bool:
    """Return whether execd's download gives what the worker would."""
    plain = "$" not in path and not path.startswith("~")
    large = stat.kind is FileKind.FILE and stat.size >= BULK_BYTES_MIN
    return large and plain and user == ROOT


@asynccontextmanager
async def download(
    execd: Execd, path: str, *, trust: ssl.SSLContext | None
) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Open a file for reading in pieces, on a connection of its own.

    Raises:
        NotBulk: Execd does not give it.
        TransferCut: While it is read: it ended before its announced size.
    """
    try:
        connection = await connect(execd.url, trust, for_bulk=True)
    except NoDoor as failed:
        raise NotBulk from failed
    try:
        try:
            head, held = await exchange(connection, _request(execd, path))
            status, headers = read_head(head)
        except NoDoor as failed:
            raise NotBulk from failed
        length = headers.get("content-length", "")
        if status != 200 or not length.isdigit():
            raise NotBulk
        yield _pieces(connection, held, path=path, announced=int(length))
    finally:
        await anyio.aclose_forcefully(connection)


async def _pieces(
    connection: anyio.abc.ByteStream, held: bytes, *, path: str, announced: int
) -> AsyncIterator[bytes]:
    got = len(held)
    if held:
        yield held
    while got < announced:
        try:
            with anyio.fail_after(SILENCE_SECONDS):
                piece = await connection.receive(PIECE_BYTES)
        except (
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            TimeoutError,
        ) as failed:
            raise TransferCut(path=path, got=got, announced=announced) from failed
        got += len(piece)
        yield piece


def _request(execd: Execd, path: str) -> bytes:
    parts = urlsplit(execd.url)
    query = urlencode({"path": path})
    headers = {
        "Host": parts.netloc.rpartition("@")[2],
        "Connection": "close",
        **execd.headers,
    }
    lines = [
        f"GET {parts.path.rstrip('/')}/files/download?{query} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
