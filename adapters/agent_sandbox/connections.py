# SPDX-License-Identifier: Apache-2.0
"""Ways to a sandbox's runtime server: its pod's address, a gateway, or a router.

In the cluster the pod itself is asked. From outside a router stands between, which
is told by headers which sandbox is meant; its address is given (`direct`), or read
from a Gateway object (`gateway`).
"""

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum

import anyio
import attrs

from ...ports.required.sandbox import Endpoint
from ..http_client import base_url
from .claim_facts import Words, objects, part, text
from .cluster import GATEWAY, Cluster

SERVER_PORT = 8888
DIAL_SECONDS = 3.0
GATEWAY_LOOK_SECONDS = 0.5
SCHEMES = {"HTTP": "http", "HTTPS": "https"}


class Mode(StrEnum):
    """How sandboxes are reached."""

    IN_CLUSTER = "in_cluster"
    GATEWAY = "gateway"
    DIRECT = "direct"


@attrs.frozen(kw_only=True)
class ConnectionConfig:
    """How sandboxes are reached, and with what right."""

    mode: Mode = Mode.IN_CLUSTER
    server_port: int = SERVER_PORT
    api_url: str | None = None
    """Of the router, for `direct`."""
    gateway_name: str | None = None
    gateway_namespace: str = "default"
    gateway_ready_seconds: float = 60.0
    token: str | None = attrs.field(default=None, repr=False)
    """For the router, which does not pass it on."""
    ca_file: str | None = None
    """Certificates that are believed instead of the well-known ones."""


@attrs.frozen(kw_only=True)
class Place:
    """Which sandbox is meant."""

    namespace: str
    sandbox_name: str
    sandbox_uid: str
    pod_ips: tuple[str, ...]


@attrs.frozen
class NoWay(Exception):
    """There is no way to the sandbox at the moment."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class Connections:
    """Finds the way to each sandbox."""

    def __init__(self, config: ConnectionConfig, cluster: Cluster) -> None:
        """Use what the configuration says; a Gateway is read when it is needed.

        Raises:
            SpecRefused: The file of certificates is none.
        """
        self.config = config
        # One for all: reading the well-known certificates takes its time.
        try:
            self.trust = ssl.create_default_context(cafile=config.ca_file)
        except OSError as failure:  # TLS's own errors are among them.
            raise cluster.place.refused(
                "connection.ca_file",
                f"{config.ca_file} holds no certificates ({failure.strerror})",
            ) from failure
        self._cluster = cluster
        self._gateway: str | None = None
        self._finding = anyio.Lock()

    @property
    def is_through_router(self) -> bool:
        """Whether something else than the sandbox itself answers first."""
        return self.config.mode is not Mode.IN_CLUSTER

    async def endpoint(self, place: Place, *, port: int | None = None) -> Endpoint:
        """Return where a port of the sandbox is reached, the server's when None.

        Raises:
            NoWay: Not at the moment.
            ClusterRefused, ClusterSilent: The Gateway cannot be read.
        """
        asked = self.config.server_port if port is None else port
        if self.config.mode is Mode.IN_CLUSTER:
            return Endpoint(url=await _dialled(place.pod_ips, asked))
        url = self.config.api_url or await self._gateway_url()
        return Endpoint(url=url.rstrip("/"), headers=self._headers(place, asked))

    def forget(self) -> None:
        """Read the Gateway again at the next need: its address may have changed."""
        self._gateway = None

    def _headers(self, place: Place, port: int) -> Mapping[str, str]:
        headers = {
            "X-Sandbox-ID": place.sandbox_name,
            "X-Sandbox-Namespace": place.namespace,
            "X-Sandbox-Port": str(port),
            "X-Sandbox-UID": place.sandbox_uid,
        }
        if self.config.token is not None:
            headers["Authorization"] = f"Bearer {self.config.token}"
        return headers

    async def _gateway_url(self) -> str:
        async with self._finding:
            until = time.monotonic() + self.config.gateway_ready_seconds
            name, namespace = self.config.gateway_name, self.config.gateway_namespace
            while self._gateway is None:
                found = await self._cluster.get(GATEWAY, namespace, str(name))
                self._gateway = None if found is None else _address_in(found)
                if self._gateway is None:
                    if time.monotonic() > until:
                        state = "there is none" if found is None else "it has none yet"
                        raise NoWay(
                            f"no address of Gateway {namespace}/{name}: {state}"
                        )
                    await anyio.sleep(GATEWAY_LOOK_SECONDS)
            return self._gateway


async def _dialled(addresses: tuple[str, ...], port: int) -> str:
    """Return the URL of the first address that takes a connection.

    On dual stack, this host may have a route to one of the two alone.
    """
    if not addresses:
        raise NoWay("its pod has no address")
    if len(addresses) == 1:
        return base_url(addresses[0], port)
    for address in addresses:
        with suppress(OSError, TimeoutError), anyio.fail_after(DIAL_SECONDS):
            async with await anyio.connect_tcp(address, port):
                return base_url(address, port)
    return base_url(addresses[0], port)


def _address_in(gateway: Words) -> str | None:
    """Return the URL that a Gateway's status tells, IP or hostname alike."""
    addresses = objects(part(gateway, "status"), "addresses")
    if not addresses:
        return None
    for listener in objects(part(gateway, "spec"), "listeners"):
        scheme, port = SCHEMES.get(text(listener, "protocol")), listener.get("port")
        if scheme is not None and isinstance(port, int):
            return base_url(text(addresses[0], "value"), port, scheme=scheme)
    return base_url(text(addresses[0], "value"), 80)
