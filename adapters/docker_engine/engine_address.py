# SPDX-License-Identifier: Apache-2.0
"""Where a Docker Engine listens: a unix socket, or plain TCP.

The address is that of the configuration, else `DOCKER_HOST`, else the usual
socket. Ways that need another library or another program (`ssh://`, TLS) are
refused by name, never taken for something else.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

from ...ports.required.sandbox_provider import SpecRefused

USUAL = "unix:///var/run/docker.sock"
TCP_PORT = 2375


@attrs.frozen(kw_only=True)
class EngineAddress:
    """A socket's path, or a host and its port."""

    path: str | None = None
    host: str = ""
    port: int = TCP_PORT

    @property
    def url(self) -> str:
        """The address as the `docker` package and people write it."""
        if self.path is not None:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether the engine runs on this host, so that its loopback is ours."""
        return self.path is not None or self.host in {"127.0.0.1", "::1", "localhost"}


def to_address(
    configured: str | None, *, provider: str, environ: Mapping[str, str] = os.environ
) -> EngineAddress:
    """Return the engine's address.

    Raises:
        SpecRefused: It is not one of the two kinds that are spoken here.
    """
    text = configured or environ.get("DOCKER_HOST") or USUAL
    try:
        parts = urlsplit(text)
        port = parts.port or TCP_PORT
    except ValueError as failure:
        raise _refused(provider, f"{text!r} is no address: {failure}") from failure
    if parts.scheme == "unix" and parts.path:
        return EngineAddress(path=parts.netloc + parts.path)
    if parts.scheme == "tcp" and parts.hostname and parts.path in {"", "/"}:
        if configured is None and environ.get("DOCKER_TLS_VERIFY"):
            raise _refused(
                provider,
                "DOCKER_TLS_VERIFY is set, and TLS is not spoken here;"
                " tunnel to a unix socket instead",
            )
        return EngineAddress(host=parts.hostname, port=port)
    raise _refused(
        provider,
        f"{text!r} is not spoken here; unix:///path and tcp://host:port are",
    )


def _refused(provider: str, reason: str) -> SpecRefused:
    return SpecRefused(
        provider=provider, field="address (or DOCKER_HOST)", reason=reason
    )
