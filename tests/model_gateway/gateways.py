# SPDX-License-Identifier: Apache-2.0
"""A gateway that is served on loopback, before a scripted upstream."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio
import attrs
import httpx

from livery.adapters.model_upstream import Credential, ModelUpstream
from livery.adapters.system_clock import SystemClock
from livery.domain.agent_sessions import AgentSessionId
from livery.entrypoints.model_gateway import (
    GatewayBounds,
    GatewaySessions,
    gateway_app,
)
from livery.entrypoints.model_gateway.serving import listening, serving
from livery.ports.required.artifact_store import ArtifactStore, Shelf
from livery.ports.required.model_access import ModelCall, ModelGrant

from .upstream import Script, Upstream, upstream

SESSION = AgentSessionId("session-1")
REAL = "sk-real-Pl4nt3d-credential"
PATIENCE_SECONDS = 20.0
MESSAGES = "/v1/messages"


def asking(*texts: str, model: str = "model-1", **more: object) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts or ("hello",)]
    return json.dumps({"model": model, "messages": messages, **more}).encode()


@attrs.frozen(kw_only=True)
class Gateway:
    """A gateway, one granted session, and a caller that holds its placeholder."""

    sessions: GatewaySessions
    upstream: Upstream
    grant: ModelGrant
    caller: httpx.AsyncClient

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return self.sessions.seen(SESSION).entries

    async def post(
        self, body: bytes, path: str = MESSAGES, **headers: str
    ) -> httpx.Response:
        return await self.caller.post(path, content=body, headers=headers)

    async def call(self, count: int = 1) -> ModelCall:
        """Return the last call once so many are over."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(self.calls) < count:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return self.calls[-1]


@asynccontextmanager
async def gateway(
    script: Script,
    *,
    bounds: GatewayBounds | None = None,
    prefix: str = "",
    credential: str | None = REAL,
    silence_seconds: float = 30.0,
    bodies: ArtifactStore | None = None,
    url: str | None = None,
    base: str = "",
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[Gateway]:
    async with upstream(script) as served:
        sessions = GatewaySessions(
            upstream=ModelUpstream(
                base_url=(url or served.url) + base,
                credential=Credential(secret=credential) if credential else None,
                silence_seconds=silence_seconds,
            ),
            secret="installation",
            clock=SystemClock(),
            base_url="http://gateway.invalid",
            bounds=bounds or GatewayBounds(),
        )
        async with serving(gateway_app(sessions, bodies=bodies), listening()) as port:
            sessions.base_url = f"http://127.0.0.1:{port}"
            grant = await sessions.grant(SESSION, prefix=prefix, shelf=Shelf("e-1"))
            shown = headers or {"x-api-key": grant.placeholder}
            async with httpx.AsyncClient(
                base_url=grant.base_url, headers=shown, timeout=PATIENCE_SECONDS
            ) as caller:
                yield Gateway(
                    sessions=sessions, upstream=served, grant=grant, caller=caller
                )
            await sessions.aclose()
