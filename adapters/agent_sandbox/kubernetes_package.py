# SPDX-License-Identifier: Apache-2.0
"""The `kubernetes` package, with the types that it does not tell.

Its configuration is read here: kubeconfig or service account, with certificates,
tokens and programs that give some. It asks nothing again by itself, and writes no
file.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Protocol, cast

import attrs
import urllib3
import yaml  # type: ignore[import-untyped]  # it has no stubs here; pyright knows it
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .open_connections import OpenConnections

CONNECTIONS_MAX = 32
WATCHES_MAX = 8
"""Connections kept beside those of the calls."""


@attrs.frozen(kw_only=True)
class ClusterAddress:
    """Which cluster, and who asks."""

    kubeconfig: str | None = None
    """A file; $KUBECONFIG or the usual one when None."""
    context: str | None = None
    in_cluster: bool = False
    """Whether the service account of this pod is used instead."""


@attrs.frozen
class ConfigurationUnusable(Exception):
    """There is no configuration, or it cannot be read."""

    reason: str

    def __str__(self) -> str:
        return self.reason


_UNREADABLE = (
    config.ConfigException,
    OSError,
    ValueError,
    yaml.YAMLError,
    # Of a file that is YAML and no configuration, the package reads on regardless.
    AttributeError,
    KeyError,
    TypeError,
)

_LOADS = cast("Mapping[str, Callable[..., None]]", vars(config))


class CustomObjects(Protocol):
    """What is used of `CustomObjectsApi`; every answer comes unread."""

    def create_namespaced_custom_object(
        self,
        group: str,
        version: str,
        namespace: str,
        plural: str,
        body: object,
        **options: object,
    ) -> urllib3.HTTPResponse:
        """Make one."""
        ...

    def get_namespaced_custom_object(
        self,
        group: str,
        version: str,
        namespace: str,
        plural: str,
        name: str,
        **options: object,
    ) -> urllib3.HTTPResponse:
        """Read one."""
        ...

    def list_namespaced_custom_object(
        self,
        group: str,
        version: str,
        namespace: str,
        plural: str,
        **options: object,
    ) -> urllib3.HTTPResponse:
        """Read many, or watch them."""
        ...

    def delete_namespaced_custom_object(
        self,
        group: str,
        version: str,
        namespace: str,
        plural: str,
        name: str,
        **options: object,
    ) -> urllib3.HTTPResponse:
        """Ask for the end of one."""
        ...

    def patch_namespaced_custom_object(
        self,
        group: str,
        version: str,
        namespace: str,
        plural: str,
        name: str,
        body: object,
        **options: object,
    ) -> urllib3.HTTPResponse:
        """Change one."""
        ...


@attrs.frozen
class Connected:
    """A client with its configuration."""

    _client: client.ApiClient
    host: str
    _opened: OpenConnections

    @property
    def objects(self) -> CustomObjects:
        """The calls for custom resources."""
        # Asked for unread answers, the package gives urllib3's own.
        return cast("CustomObjects", client.CustomObjectsApi(self._client))

    def close(self) -> None:
        """Close the connections; calls under way go on to their end."""
        # Before the package clears them: a pool that was cleared alone is closed when
        # nothing mentions it any more, and a failure of a call still may.
        pools = self._client.rest_client.pool_manager.pools
        for key in list(pools.keys()):
            pools[key].close()
        self._client.close()  # type: ignore[no-untyped-call]  # pyright knows it

    def cut(self) -> None:
        """Close the connections, also of calls under way, and open no other."""
        self._opened.cut()
        self.close()


def connected(address: ClusterAddress) -> Connected:
    """Return a client for a cluster; it asks nothing yet, and reads files.

    Raises:
        ConfigurationUnusable: As it says.
    """
    settings = client.Configuration()
    try:
        if address.in_cluster:
            _LOADS["load_incluster_config"](client_configuration=settings)
        else:
            _LOADS["load_kube_config"](
                config_file=address.kubeconfig,
                context=address.context,
                client_configuration=settings,
                persist_config=False,
            )
    except _UNREADABLE as failure:
        told = " ".join(str(failure).split()) or type(failure).__name__
        raise ConfigurationUnusable(told) from failure
    settings.retries = False
    settings.connection_pool_maxsize = CONNECTIONS_MAX + WATCHES_MAX
    made, opened = client.ApiClient(configuration=settings), OpenConnections()
    opened.keep_of(made.rest_client.pool_manager)
    return Connected(made, str(settings.host), opened)


@attrs.frozen(kw_only=True)
class Refusal:
    """What the package tells of an answer that is an error."""

    status: int
    reason: str
    body: str
    headers: Mapping[str, str]


def refusal_of(failure: ApiException) -> Refusal:
    """Read what the package raised."""
    words = cast("Mapping[str, object]", vars(failure))
    body, headers = words.get("body"), words.get("headers")
    status = words.get("status")
    return Refusal(
        status=status if isinstance(status, int) else 0,
        reason=str(words.get("reason") or ""),
        body=body.decode(errors="replace") if isinstance(body, bytes) else str(body),
        headers=cast("Mapping[str, str]", headers)
        if isinstance(headers, Mapping)
        else {},
    )


def told(failure: BaseException) -> str:
    """Return a library's failure in words, without the address it was told with."""
    for cause in _causes(failure):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not believed: {cause.verify_message}"
        if isinstance(cause, ConnectionRefusedError):
            return "nobody listens there"
        if isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError):
            return "no answer in time"
    return type(failure).__name__


def _causes(failure: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = failure
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found
