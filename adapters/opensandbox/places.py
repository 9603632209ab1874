# SPDX-License-Identifier: Apache-2.0
"""Where things are reached: a sandbox's execd and its ports, as the server tells.

An address may be of a port that is mapped here, of a gateway, or of the server's
own proxy. The server's key goes along to its proxy alone, the sandbox's token to
its execd alone.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

from ...ports.required.sandbox import Endpoint
from ..http_client import HttpClient, names_a_place
from .execd import TOKEN_HEADER, Execd
from .lifecycle import KEY_HEADER, Lifecycle

EXECD_PORT = 44772
_ITSELF = f"/proxy/{EXECD_PORT}"
"""A path by which execd would pass requests to itself: one hop too many."""


@attrs.frozen(kw_only=True)
class Places:
    """The server, and the way from it to what is in its sandboxes."""

    lifecycle: Lifecycle
    http: HttpClient
    """For execd; it carries no key."""
    through_server: bool
    scheme: str
    """Of addresses that the server gives without one."""
    api_key: str = attrs.field(repr=False)

    async def execd(self, sandbox_id: str, token: str) -> Execd:
        """Return the execd of a sandbox; whether it answers is not asked."""
        url, headers = await self._where(sandbox_id, EXECD_PORT)
        if not self.through_server and urlsplit(url).path == _ITSELF:
            url = url.removesuffix(_ITSELF)
        return Execd(http=self.http, url=url, headers=_with(headers, token))

    async def endpoint(self, sandbox_id: str, port: int, token: str) -> Endpoint:
        """Return where a port of a sandbox is reached."""
        url, headers = await self._where(sandbox_id, port)
        if "/proxy/" in urlsplit(url).path:
            headers = _with(headers, token)
        return Endpoint(url=url, headers=headers)

    async def _where(self, sandbox_id: str, port: int) -> tuple[str, dict[str, str]]:
        found = await self.lifecycle.endpoint(
            sandbox_id, port, through_server=self.through_server
        )
        scheme = urlsplit(self.lifecycle.address).scheme
        if not self.through_server:
            scheme = self.scheme
        address = found.address.rstrip("/")
        url = address if "://" in address else f"{scheme}://{address}"
        if not names_a_place(url):
            raise self.lifecycle.unreachable(
                f"it tells {found.address!r} for port {port} of sandbox {sandbox_id},"
                " which is no address"
            )
        headers = dict(found.headers)
        if self.through_server and self.api_key:
            headers[KEY_HEADER] = self.api_key
        return url, headers


def _with(headers: Mapping[str, str], token: str) -> dict[str, str]:
    return {**headers, **({TOKEN_HEADER: token} if token else {})}
