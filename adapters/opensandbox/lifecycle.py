# SPDX-License-Identifier: Apache-2.0
"""The lifecycle API: sandboxes by id, as the server knows them.

The key goes to the server and nowhere else: where a server says it back, as some do with
a wrong one, it is covered, since what a server said is written down. Every method may raise
`ProviderUnreachable`, `ProviderForbidden`, and `ApiRefused` where the server's no
is the caller's to answer.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import attrs

from ...ports.provided.secret_values import MASK
from ...ports.required.sandbox_provider import ProviderForbidden, ProviderUnreachable
from ..http_client import HttpClient, HttpFailed, Patience
from .lifecycle_facts import (
    ApiRefused,
    EndpointFacts,
    SandboxFacts,
    to_endpoint,
    to_page,
    to_refused,
    to_sandbox,
    words_of,
)

CONTROL_SECONDS = 30.0
FIRST_PATIENCE = Patience(attempts_max=3, seconds_max=1.0, connect_seconds=2.0)
"""A server that was never there is told at once: mostly nobody has started it."""
PAGE_SIZE = 200
PAGES_MAX = 1000
KEY_HEADER = "OPEN-SANDBOX-API-KEY"
SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
"""What may be an id: it becomes a part of a path, in which dots lead elsewhere."""


@attrs.define(kw_only=True)
class Lifecycle:
    """A server at one address."""

    http: HttpClient
    provider: str
    address: str
    key: str = attrs.field(default="", repr=False)
    """What `http` carries; empty without one. A no says which."""
    _was_met: bool = attrs.field(default=False, init=False)
    """Whether it has answered once: then it is waited for, as `http` is patient."""

    async def create(
        self, body: Mapping[str, object], *, seconds: float
    ) -> SandboxFacts:
        """Make a sandbox; answered when its container was started."""
        raw = await self._ask(
            "POST", "/v1/sandboxes", body=body, repeatable=False, seconds=seconds
        )
        return to_sandbox(raw)

    async def get(self, sandbox_id: str) -> SandboxFacts | None:
        """Look at a sandbox; None when there was seen to be none."""
        try:
            return to_sandbox(await self._ask("GET", _path(sandbox_id)))
        except ApiRefused as refused:
            if refused.tells_absence:
                return None
            raise self.at_odds(refused) from refused

    async def with_metadata(
        self, wanted: Mapping[str, str]
    ) -> AsyncIterator[SandboxFacts]:
        """Tell every sandbox that carries all of `wanted`, whatever its state."""
        for page in range(1, PAGES_MAX + 1):
            # One parameter that holds a query of its own. Under any other name the
            # server would tell of everybody's sandboxes.
            query = urlencode(
                {"metadata": urlencode(wanted), "page": page, "pageSize": PAGE_SIZE}
            )
            try:
                found = to_page(await self._ask("GET", f"/v1/sandboxes?{query}"))
            except ApiRefused as refused:
                raise self.at_odds(refused) from refused
            for sandbox in found.sandboxes:
                if wanted.items() <= sandbox.metadata.items():
                    yield sandbox
            if not found.has_next:
                return

    async def delete(self, sandbox_id: str) -> None:
        """Ask for the end of a sandbox; one that is gone is a success."""
        try:
            await self._ask("DELETE", _path(sandbox_id))
        except ApiRefused as refused:
            if not refused.tells_absence:
                raise

    async def renew(self, sandbox_id: str, expires_at: float) -> None:
        """Have a sandbox end itself at another time, sooner or later."""
        at = datetime.fromtimestamp(expires_at, UTC).isoformat()
        path = f"{_path(sandbox_id)}/renew-expiration"
        await self._ask("POST", path, body={"expiresAt": at})

    async def change_metadata(
        self, sandbox_id: str, changes: Mapping[str, str | None]
    ) -> SandboxFacts:
        """Set what has a value, remove what has None; return what is so then."""
        raw = await self._ask("PATCH", f"{_path(sandbox_id)}/metadata", body=changes)
        return to_sandbox(raw)

    async def pause(self, sandbox_id: str) -> None:
        """Freeze every process of a sandbox."""
        await self._ask("POST", f"{_path(sandbox_id)}/pause", repeatable=False)

    async def resume(self, sandbox_id: str) -> None:
        """Let the processes of a sandbox go on."""
        await self._ask("POST", f"{_path(sandbox_id)}/resume", repeatable=False)

    async def endpoint(
        self, sandbox_id: str, port: int, *, through_server: bool
    ) -> EndpointFacts:
        """Tell where a port of a sandbox is reached; told also of a dead one."""
        query = "?use_server_proxy=true" if through_server else ""
        path = f"{_path(sandbox_id)}/endpoints/{port}{query}"
        return to_endpoint(await self._ask("GET", path))

    async def network_policy(self, sandbox_id: str) -> Mapping[str, object]:
        """Tell what policy the server says is in force."""
        return words_of(await self._ask("GET", f"{_path(sandbox_id)}/networkpolicy"))

    def at_odds(self, refused: ApiRefused) -> ProviderUnreachable:
        """Return the fault of a server that says no where no is no answer."""
        return self.unreachable(f"it answers with {refused.status}, {refused}")

    def unreachable(self, reason: str) -> ProviderUnreachable:
        """Return the fault of a server that cannot be spoken to."""
        return ProviderUnreachable(
            provider=self.provider, address=self.address, reason=reason
        )

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        repeatable: bool = True,
        seconds: float = CONTROL_SECONDS,
    ) -> object:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = await self.http.request(
                method,
                path,
                repeatable=repeatable,
                content=content,
                headers=headers,
                timeout_seconds=seconds,
                patience=None if self._was_met else FIRST_PATIENCE,
            )
        except HttpFailed as failed:
            raise self.unreachable(failed.reason) from failed
        self._was_met = True
        if answer.status_code in {401, 403}:
            refused = self._refused(answer.status_code, answer.content)
            key = "the api_key of its options" if self.key else "no api_key"
            raise ProviderForbidden(
                provider=self.provider,
                address=self.address,
                reason=f"{str(refused).rstrip('.')} (asked with {key})",
            )
        if not answer.is_success:
            raise self._refused(answer.status_code, answer.content)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as failed:
            raise self.unreachable("what answers there is no JSON") from failed

    def _refused(self, status: int, body: bytes) -> ApiRefused:
        if self.key:
            body = body.replace(self.key.encode(), MASK.encode())
        return to_refused(status, body)


def _path(sandbox_id: str) -> str:
    return f"/v1/sandboxes/{quote(sandbox_id, safe='')}"
