# SPDX-License-Identifier: Apache-2.0
"""The sandbox router's stand-in: which pod a request is for, by its headers."""

import ipaddress
import re
from collections.abc import Callable

import attrs

from .proxy import Canned, Head, Upstream

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DIALS = 3
BETWEEN_SECONDS = 0.2
SANDBOX_PORT = "8888"


@attrs.define(kw_only=True)
class RouterSettings:
    """How the router was set up."""

    token: str = ""
    """What the bearer must be; without it nobody is asked."""


@attrs.frozen(kw_only=True)
class Router:
    """Sends a request to the pod that its headers name."""

    settings: RouterSettings
    address_of: Callable[[str, str], str | None]
    """The pod's real address by namespace and sandbox."""
    real_address: Callable[[str], str]
    """The real address behind one that a pod's status tells."""

    async def __call__(self, head: Head) -> Upstream | Canned:
        """Return where the request goes on to, or what the router answers itself."""
        if refused := self._unauthorised(head):
            return refused
        sandbox = head.value("X-Sandbox-ID")
        namespace = head.value("X-Sandbox-Namespace") or "default"
        port = head.value("X-Sandbox-Port") or SANDBOX_PORT
        if not sandbox:
            return _told(400, "X-Sandbox-ID header is required.")
        if not DNS_LABEL.fullmatch(sandbox):
            return _told(400, "Invalid X-Sandbox-ID format.")
        if not DNS_LABEL.fullmatch(namespace):
            return _told(400, "Invalid namespace format.")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            return _told(400, "Invalid port format.")
        address = self._address(head.value("X-Sandbox-Pod-IP"), namespace, sandbox)
        if isinstance(address, Canned):
            return address
        unreachable = f"Could not connect to the backend sandbox: {sandbox}"
        if address is None:
            return _told(502, unreachable)
        return Upstream(
            host=address,
            port=int(port),
            hides=("authorization",),
            tries=DIALS,
            between_seconds=BETWEEN_SECONDS,
            refused=_told(502, unreachable),
        )

    def _unauthorised(self, head: Head) -> Canned | None:
        if not self.settings.token:
            return None
        given = head.value("Authorization")
        if not given.startswith("Bearer "):
            return _told(401, "Missing bearer token.")
        if given.removeprefix("Bearer ") != self.settings.token:
            return _told(403, "Not authorized for this sandbox.")
        return None

    def _address(self, told: str, namespace: str, sandbox: str) -> str | Canned | None:
        if not told:
            return self.address_of(namespace, sandbox)
        try:
            address = ipaddress.ip_address(told)
        except ValueError:
            return _told(400, "Invalid X-Sandbox-Pod-IP.")
        real = self.real_address(told)
        if real == told and (address.is_loopback or address.is_link_local):
            return _told(400, "X-Sandbox-Pod-IP is not allowed.")
        return real


def _told(status: int, detail: str) -> Canned:
    return Canned(status=status, body={"detail": detail})
