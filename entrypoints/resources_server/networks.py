# SPDX-License-Identifier: Apache-2.0
"""Which addresses may drive sessions: those of the networks that are trusted."""

import ipaddress
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..http_serving.answers import refused
from ..trusted_networks import Network

Endpoint = Callable[[Request], Awaitable[Response]]

FORBIDDEN: Final = 403


def is_trusted(host: str, networks: tuple[Network, ...]) -> bool:
    """Tell whether an address belongs to one of the networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return any(address in network for network in networks)


def trusted_only(networks: tuple[Network, ...]) -> Callable[[Endpoint], Endpoint]:
    """Return what guards an endpoint from everybody else."""

    def guarded(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def answered(request: Request) -> Response:
            host = request.client.host if request.client else ""
            if not is_trusted(host, networks):
                return refused(FORBIDDEN, "forbidden", "Not allowed from this address.")
            return await endpoint(request)

        return answered

    return guarded
