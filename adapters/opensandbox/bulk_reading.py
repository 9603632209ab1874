# SPDX-License-Identifier: Apache-2.0
"""Large files out of a sandbox by execd's own download.

Execd reads as root, and expands `$` and `~` in a path. So this is for sandboxes
whose user is root, and for paths that mean themselves. What does not come this way
comes through the worker; a file that was begun and breaks off is cut.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import attrs

from ...ports.required.sandbox import FileKind, FileStat, TransferCut
from ..http_client import HttpFailed
from .execd import SILENCE_SECONDS, Execd
from .spec_terms import ROOT

BULK_BYTES_MIN = 4 * 1024 * 1024
PIECE_BYTES = 256 * 1024


@attrs.frozen
class NotBulk(Exception):
    """It has to go the other way; nothing has come yet."""


def is_bulk(path: str, stat: FileStat, *, user: str) -> bool:
    """Return whether execd's download gives what the worker would."""
    plain = "$" not in path and not path.startswith("~")
    large = stat.kind is FileKind.FILE and stat.size >= BULK_BYTES_MIN
    return large and plain and user == ROOT


@asynccontextmanager
async def download(execd: Execd, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Open a file for reading in pieces.

    Raises:
        NotBulk: Execd does not give it.
        TransferCut: Inside the block: it ended before its announced size.
    """
    got, announced = 0, -1
    try:
        async with execd.http.stream(
            "GET",
            f"{execd.url}/files/download?{urlencode({'path': path})}",
            headers=execd.headers,
            timeout_seconds=SILENCE_SECONDS,
        ) as answer:
            length = answer.headers.get("content-length", "")
            if answer.status_code != 200 or not length.isdigit():
                raise NotBulk
            announced = int(length)

            async def pieces() -> AsyncIterator[bytes]:
                nonlocal got
                async for piece in answer.aiter_raw(PIECE_BYTES):
                    got += len(piece)
                    yield piece

            yield pieces()
    except HttpFailed as failed:
        if announced < 0:
            raise NotBulk from failed
        raise TransferCut(path=path, got=got, announced=announced) from failed
