# SPDX-License-Identifier: Apache-2.0
"""Where a tool server lets sandboxes in: another address than the one for everybody.

A resources server of ours drives sessions at the address that environments know, for
whoever comes from a trusted network, as a relay's connections do. It tells in its
OpenAPI document at which address a sandbox has its tools and nothing else.
"""

import http.client
import ipaddress
import json
import urllib.error
import urllib.request
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from ...ports.required.tool_servers import ABOUT, SANDBOX_URL
from ..worker_scripts.tool_servers import reason_of

ASK_SECONDS: Final = 10.0
DOCUMENT_BYTES_MAX: Final = 4 * 1024 * 1024


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def sandbox_side(url: str) -> str:
    """Return where a sandbox is to have the tools at `url`: there, mostly.

    Raises:
        OSError: The server does not answer, or keeps an address for sandboxes that is
            not to be reached from another host.
    """
    told = _told(urlsplit(url))
    return url if told is None else led_to(url, told)


def led_to(url: str, told: str) -> str:
    """Return the tools at `url` where their server lets sandboxes in, as it `told`.

    Raises:
        OSError: That is not to be reached from another host than the server's.
    """
    known, kept = urlsplit(url), urlsplit(told)
    host = kept.hostname or ""
    if _address(host).is_unspecified:
        host = known.hostname or ""
    elif _address(host).is_loopback and not _address(known.hostname or "").is_loopback:
        raise OSError(
            f"its server lets sandboxes in at {told}, which is its own host's alone:"
            " set sandbox_host in [resources_server]"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return kept._replace(
        netloc=f"{bracketed}:{kept.port}", path=known.path, query=known.query
    ).geturl()


def _told(server: SplitResult) -> str | None:
    """Return what the server's document says, if it has one that says it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Unfollowed)
    place = f"{server.scheme}://{server.netloc}/openapi.json"
    try:
        with opener.open(place, timeout=ASK_SECONDS) as answer:
            found: object = json.loads(answer.read(DOCUMENT_BYTES_MAX))
        for word in ("info", ABOUT, SANDBOX_URL):
            found = cast("dict[str, object]", found)[word]
    except urllib.error.HTTPError as refused:
        refused.close()
        return None
    except (OSError, http.client.HTTPException) as fault:
        raise OSError(reason_of(fault)) from fault
    except (LookupError, TypeError, ValueError):
        return None
    return found if isinstance(found, str) else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address; of a name that is none, one of the wide world."""
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return ipaddress.ip_address("192.0.2.1")
