# SPDX-License-Identifier: Apache-2.0
"""The sessions that may use the model: grant, look up by placeholder, revoke.

A placeholder is made from this installation's secret and the session's id, so it
is the same after a restart; it opens nothing unless it is granted. What was
revoked is forgotten but for a bounded number of records.
"""

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import ClassVar, Final

import anyio
import attrs

from ...adapters.model_upstream import ModelUpstream
from ...domain.agent_sessions import AgentSessionId
from ...ports.required.artifact_store import Shelf
from ...ports.required.clock import Clock
from ...ports.required.faults import Fault
from ...ports.required.model_access import ModelGrant, ModelRecord
from .bounds import GatewayBounds
from .session import GatewaySession

SESSIONS_MAX: Final = 10_000
RECORDS_MAX: Final = 1_000
"""So many records of revoked sessions are kept for who asks again."""
REVOKE_SECONDS: Final = 5.0
"""How long a revocation waits for the calls that it ended."""
PREFIX_CHARACTERS_MAX: Final = 1_024

_PLACEHOLDER: Final = re.compile(r"sk-livery-([0-9a-f]{32})-[0-9a-f]{64}")
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~%:@!$&'()*+,;=-]+)*")


@attrs.frozen
class GatewayFull(Fault):
    """No more sessions can have access at once."""

    kind: ClassVar[str] = "gateway_full"
    message: ClassVar[str] = "{open} sessions use the model gateway; none can be added."
    can_retry: ClassVar[bool] = True

    open: int


@attrs.frozen
class PrefixRefused(Fault):
    """What is to go before the model's paths is no path."""

    kind: ClassVar[str] = "prefix_refused"
    message: ClassVar[str] = "The prefix {prefix!r} for the model's paths is no path."

    prefix: str


@attrs.define(kw_only=True, eq=False)
class GatewaySessions:
    """`ModelAccess` through the gateway of this process."""

    upstream: ModelUpstream
    secret: str = attrs.field(repr=False)
    """This installation's own; placeholders are made from it."""
    clock: Clock
    base_url: str
    """Under which a sandbox reaches the gateway."""
    bounds: GatewayBounds = attrs.field(factory=GatewayBounds)
    sessions_max: int = SESSIONS_MAX
    _open: dict[AgentSessionId, GatewaySession] = attrs.field(
        factory=dict[AgentSessionId, GatewaySession], init=False
    )
    _by_mark: dict[str, GatewaySession] = attrs.field(
        factory=dict[str, GatewaySession], init=False
    )
    _records: OrderedDict[AgentSessionId, ModelRecord] = attrs.field(
        factory=OrderedDict[AgentSessionId, ModelRecord], init=False
    )

    async def grant(
        self,
        session: AgentSessionId,
        *,
        prefix: str = "",
        shelf: Shelf | None = None,
    ) -> ModelGrant:
        """Return the session's address and placeholder, the same when asked again.

        Raises:
            GatewayFull, PrefixRefused: As they say.
        """
        if len(prefix) > PREFIX_CHARACTERS_MAX or not _PREFIX.fullmatch(prefix):
            raise PrefixRefused(prefix[:PREFIX_CHARACTERS_MAX])
        if ".." in prefix.split("/"):
            raise PrefixRefused(prefix)
        found = self._open.get(session)
        if found is None:
            found = self._add(session)
        found.prefix = prefix.encode()
        found.shelf = shelf or found.shelf
        base_url = self.base_url.rstrip("/") + prefix
        return ModelGrant(base_url=base_url, placeholder=found.placeholder)

    def seen(self, session: AgentSessionId) -> ModelRecord:
        """Return what was seen until now."""
        found = self._open.get(session)
        if found is not None:
            return found.record()
        return self._records.get(session, ModelRecord(calls=0, failures=0))

    async def revoke(self, session: AgentSessionId) -> ModelRecord:
        """End the access and what runs of it, and return what was seen of it."""
        found = self._open.pop(session, None)
        if found is None:
            return self.seen(session)
        del self._by_mark[_mark_of(found.placeholder)]
        with anyio.CancelScope(shield=True):
            await found.close(seconds=REVOKE_SECONDS)
        self._records[session] = record = found.record()
        if len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)
        return record

    async def aclose(self) -> None:
        """Revoke whatever is open."""
        for session in tuple(self._open):
            await self.revoke(session)

    def holder(self, presented: Iterable[str]) -> GatewaySession | None:
        """Return the session whose placeholder all that is presented is.

        It takes as long for a wrong one as for a right one.
        """
        given = tuple(presented)
        marks = {_mark_of(one) for one in given}
        found = self._by_mark.get(marks.pop()) if len(marks) == 1 else None
        wanted = found.placeholder if found else _placeholder(self.secret, "nobody's")
        right = [hmac.compare_digest(one.encode(), wanted.encode()) for one in given]
        return found if right and all(right) else None

    def _add(self, session: AgentSessionId) -> GatewaySession:
        if len(self._open) >= self.sessions_max:
            raise GatewayFull(len(self._open))
        made = GatewaySession(
            session=session,
            placeholder=_placeholder(self.secret, session),
            line=self.upstream.line(),
            bounds=self.bounds,
            clock=self.clock,
        )
        self._records.pop(session, None)
        self._open[session] = made
        self._by_mark[_mark_of(made.placeholder)] = made
        return made


def _placeholder(secret: str, session: str) -> str:
    def digest(word: str) -> str:
        text = f"{word}\0{session}".encode("utf-8", "surrogatepass")
        return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()

    return f"sk-livery-{digest('model mark')[:32]}-{digest('model placeholder')}"


def _mark_of(placeholder: str) -> str:
    """Return the part that may be looked up; empty when it is none of ours."""
    found = _PLACEHOLDER.fullmatch(placeholder)
    return found[1] if found else ""
