# SPDX-License-Identifier: Apache-2.0
"""Downloads: a tarball comes whole and as the registry said, or not at all."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs
import httpx

from ..http_client import HttpClient, HttpFailed
from .packages import Unusable

PIECE_BYTES: Final = 1024 * 1024
ATTEMPTS_MAX: Final = 4
PAUSE_SECONDS: Final = 1.0
REDIRECTS_MAX: Final = 4
TARBALL_MODE: Final = 0o600
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@attrs.frozen(kw_only=True)
class Downloaded:
    """A tarball that is here, as the registry said."""

    size: int
    sha256: str


@attrs.frozen
class _NotThisTime(Exception):
    """It did not come this time; another time it may."""

    reason: str


async def download(
    client: HttpClient,
    urls: Sequence[str],
    sha512: bytes,
    path: Path,
    *,
    bytes_max: int,
    pause_seconds: float = PAUSE_SECONDS,
) -> Downloaded:
    """Write the tarball to `path`, which nobody else sees; `urls` are asked in turn.

    Raises:
        Unusable: It did not come, or another file than was announced.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            url = urls[(attempt - 1) % len(urls)]
            return await _once(client, url, sha512, path, bytes_max)
        except _NotThisTime as fault:
            if attempt == ATTEMPTS_MAX:
                told = f"{fault.reason}, in {ATTEMPTS_MAX} attempts"
                raise Unusable(told) from fault
        except HttpFailed as fault:
            if attempt == ATTEMPTS_MAX:
                raise Unusable(f"the download broke off: {fault.reason}") from fault
        await anyio.sleep(pause_seconds * attempt)
    raise AssertionError("the last attempt returns or raises")


async def _once(
    client: HttpClient, url: str, sha512: bytes, path: Path, bytes_max: int
) -> Downloaded:
    for _ in range(REDIRECTS_MAX + 1):
        async with client.stream(
            "GET", url, headers={"accept-encoding": "identity"}
        ) as answer:
            if answer.status_code == 200:
                return await _kept(answer, sha512, path, bytes_max)
            if answer.status_code not in _REDIRECTS:
                told = f"the registry answered {answer.status_code} for its tarball"
                raise _NotThisTime(told)
            url = _redirected(answer)
    raise Unusable(f"the registry redirects more than {REDIRECTS_MAX} times")


async def _kept(
    answer: httpx.Response, announced: bytes, path: Path, bytes_max: int
) -> Downloaded:
    sha512, sha256, size = hashlib.sha512(), hashlib.sha256(), 0
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, TARBALL_MODE), "wb", buffering=0) as file:

        def keep(piece: bytes) -> None:
            view = memoryview(piece)
            while view:
                view = view[file.write(view) :]
            sha512.update(piece)
            sha256.update(piece)

        async for piece in answer.aiter_raw(PIECE_BYTES):
            size += len(piece)
            if size > bytes_max:
                raise Unusable(f"the tarball is larger than {bytes_max} bytes")
            await anyio.to_thread.run_sync(keep, piece)
    if sha512.digest() != announced:
        raise Unusable("what came is not what the registry's integrity value tells of")
    return Downloaded(size=size, sha256=sha256.hexdigest())


def _redirected(answer: httpx.Response) -> str:
    here = answer.request.url
    # One that is no URL was told already, as an answer that cannot be understood.
    there = here.join(answer.headers.get("location", ""))
    if there.scheme not in ("http", "https") or there == here:
        raise Unusable("the registry redirects to what cannot be asked")
    if here.scheme == "https" and there.scheme != "https":
        raise Unusable("the registry redirects from https to http")
    return str(there)
