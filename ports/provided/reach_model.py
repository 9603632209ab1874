# SPDX-License-Identifier: Apache-2.0
"""Reach the model: a grant for a session, and a way to it from its sandbox.

Where the sandbox has a route to this host, the grant's own address is the way.
Where it has none, a relay carries the model's connections, and those of granted
tool servers, on ports that are the same after a restart. A relay that was lost is
in what is told of the model: a run that failed for it failed for us.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs

from ...domain.agent_sessions import AgentSessionId
from ..required.artifact_store import Shelf
from ..required.model_access import ModelAccess, ModelGrant, ModelRecord
from ..required.sandbox import Sandbox
from ..required.sandbox_streams import Dial, StreamingSandbox
from .mailbox_streams import through_files
from .relay_connections import RelayRecord, RelayStart, attached, open_relay

MODEL: Final = "model"
PORT_FIRST: Final = 20_000
PORTS: Final = 12_768
"""Up to where systems begin to give out ports by themselves."""


@attrs.frozen(kw_only=True)
class ModelInReach:
    """What a harness in the sandbox is given."""

    grant: ModelGrant
    tool_urls: Mapping[str, str]
    """The address inside of each tool server that was asked for; no path."""
    seen: Callable[[], ModelRecord]
    """Tells what was seen until now, lost relays among the failures."""


@attrs.frozen(kw_only=True)
class ReachModel:
    """The use case."""

    access: ModelAccess
    dial: Dial
    """Connects this host to what `access` grants."""
    relay_start: RelayStart
    mailbox_program: bytes

    @asynccontextmanager
    async def __call__(
        self,
        session: AgentSessionId,
        sandbox: Sandbox,
        *,
        relays: bool,
        prefix: str = "",
        shelf: Shelf | None = None,
        tools: Mapping[str, Dial] | None = None,
    ) -> AsyncGenerator[ModelInReach]:
        """Keep the model in reach until the block is left; the grant goes on.

        `relays` says that the sandbox has no route to this host. Tools are reached
        through the relay, and not without one.

        Raises:
            Fault: The access was not granted, or no relay runs.
        """
        grant = await self.access.grant(session, prefix=prefix, shelf=shelf)
        seen = partial(self.access.seen, session)
        if not relays:
            yield ModelInReach(grant=grant, tool_urls={}, seen=seen)
            return
        targets = {
            MODEL: self.dial,
            **{f"tool {n}": d for n, d in (tools or {}).items()},
        }
        if isinstance(sandbox, StreamingSandbox):
            open_stream = attached(sandbox, self.relay_start)
        else:
            open_stream = through_files(sandbox, self.mailbox_program)
        ports = {target: port_inside(session, target) for target in targets}
        async with open_relay(open_stream, targets, ports=ports) as relay:

            def seen_through() -> ModelRecord:
                return with_losses(seen(), relay.record)

            yield ModelInReach(
                grant=attrs.evolve(grant, base_url=relay.url(MODEL) + prefix),
                tool_urls={name: relay.url(f"tool {name}") for name in tools or {}},
                seen=seen_through,
            )


def port_inside(session: str, target: str) -> int:
    """Return the port of a session's target, the same whenever it is asked."""
    digest = hashlib.sha256(f"{session}\0{target}".encode()).digest()
    return PORT_FIRST + int.from_bytes(digest[:4], "big") % PORTS


def with_losses(record: ModelRecord, relay: RelayRecord) -> ModelRecord:
    """Return the record with the relay's failures among those of the model."""
    failures = relay.losses + relay.failed_dials
    if not failures:
        return record
    last = f"the relay: {relay.told[-1]}" if relay.told else "the relay was lost"
    return attrs.evolve(
        record,
        failures=record.failures + failures,
        last_failure=record.last_failure or last,
    )
