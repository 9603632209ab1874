# SPDX-License-Identifier: Apache-2.0
"""Opening the gateway as the settings say, and the way to it from sandboxes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

import anyio
import attrs

from ...adapters.host_ports import dial_tcp
from ...adapters.http_client import base_url
from ...adapters.model_upstream import Credential, ModelUpstream
from ...adapters.worker_scripts import bootstrap, program
from ...ports.provided.reach_model import ReachModel
from ...ports.provided.secret_values import SecretValues
from ...ports.required.artifact_store import ArtifactStore
from ...ports.required.clock import Clock
from ...ports.required.faults import Fault
from ...ports.required.sandbox_provider import Capabilities, Capability, Network
from ..model_settings import ModelSettings, check_model_url
from .application import gateway_app
from .bounds import GatewayBounds
from .serving import listening, serving
from .sessions import GatewaySessions

PYTHON = "python3"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@attrs.frozen
class GatewayNotServed(Fault):
    """The gateway cannot listen where the settings say."""

    kind: ClassVar[str] = "gateway_not_served"
    message: ClassVar[str] = (
        "The model gateway cannot listen on {host} port {port}: {reason}."
    )

    host: str
    port: int
    reason: str


@attrs.frozen(kw_only=True)
class OpenGateway:
    """A gateway that is served."""

    access: GatewaySessions
    reach: ReachModel
    has_advertised_url: bool

    def relays(self, network: Network, capabilities: Capabilities) -> bool:
        """Return whether a sandbox of that kind needs the relay."""
        if Capability.ISOLATION not in capabilities:
            return False  # It is this host, and has its loopback.
        return network is not Network.DEFAULT or not self.has_advertised_url


@asynccontextmanager
async def open_model_gateway(
    settings: ModelSettings,
    *,
    secrets: SecretValues,
    installation_secret: str,
    clock: Clock,
    artifacts: ArtifactStore | None = None,
) -> AsyncGenerator[OpenGateway]:
    """Serve the gateway until the block is left; every access ends with it.

    Raises:
        ModelUrlRefused, GatewayNotServed, SecretMissing, SecretsFull: As they say.
    """
    url, advertised = check_model_url(settings), settings.advertised_url
    sessions = GatewaySessions(
        upstream=_upstream(settings, url, secrets),
        secret=installation_secret,
        clock=clock,
        base_url="",  # Known when it listens.
        bounds=_bounds(settings),
    )
    app = gateway_app(sessions, bodies=artifacts if settings.keep_bodies else None)
    host = settings.gateway_host
    try:
        listener = listening(host, settings.gateway_port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GatewayNotServed(host, settings.gateway_port, reason) from error
    async with serving(app, listener) as port:
        reached = _ANYWHERE.get(host, host)
        sessions.base_url = advertised or base_url(reached, port)
        try:
            yield OpenGateway(
                access=sessions,
                reach=ReachModel(
                    access=sessions,
                    dial=dial_tcp(reached, port),
                    relay_start=_relay,
                    mailbox_program=program("mailbox"),
                ),
                has_advertised_url=advertised is not None,
            )
        finally:
            with anyio.CancelScope(shield=True):
                await sessions.aclose()


def _upstream(
    settings: ModelSettings, url: str, secrets: SecretValues
) -> ModelUpstream:
    secret = settings.credential
    credential = None
    if secret is not None:
        value = secret.revealed(secrets)
        credential = Credential(secret=value, style=settings.credential_header)
    return ModelUpstream(
        base_url=url,
        credential=credential,
        silence_seconds=settings.silence_timeout_seconds,
    )


def _bounds(settings: ModelSettings) -> GatewayBounds:
    return GatewayBounds(
        request_bytes_max=settings.request_bytes_max,
        calls_max=settings.calls_max,
        calls_at_once_max=settings.calls_at_once_max,
        session_seconds_max=settings.session_timeout_seconds,
        call_seconds_max=settings.call_timeout_seconds,
        keep_alive_seconds=settings.keep_alive_seconds,
        early_seconds=settings.early_answer_seconds,
    )


def _relay(ports: tuple[int, ...]) -> tuple[tuple[str, ...], bytes]:
    return bootstrap(PYTHON, *map(str, ports), name="relay")
