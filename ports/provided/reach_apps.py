# SPDX-License-Identifier: Apache-2.0
"""Reach the apps from a lent sandbox: by an address that it has a route to, or a relay.

A relay runs as long as its session lends the sandbox; it leads to the routes for
agents and to nothing else.
"""

import logging
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.abc
import attrs

from ...domain.resources_sessions import ResourcesSessionId
from ..required.faults import Fault
from ..required.sandbox import Sandbox
from ..required.sandbox_streams import Dial, StreamingSandbox
from .mailbox_streams import through_files
from .reach_model import port_inside
from .relay_connections import RelayStart, attached, open_relay

log = logging.getLogger(__name__)

APPS: Final = "apps"
LET_GO_SECONDS: Final = 10.0


@attrs.define(eq=False)
class _Relayed:
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    over: anyio.Event = attrs.field(factory=anyio.Event)


@attrs.frozen(kw_only=True)
class ReachApps:
    """The use case, for the sandboxes of one server."""

    group: anyio.abc.TaskGroup
    """Relays run in it."""
    advertised_url: str | None
    """Where a sandbox reaches the routes for agents; None: through a relay."""
    dial: Dial
    relay_start: RelayStart
    mailbox_program: bytes
    _relays: dict[ResourcesSessionId, _Relayed] = attrs.field(
        factory=dict[ResourcesSessionId, _Relayed], init=False
    )

    async def __call__(self, session: ResourcesSessionId, sandbox: Sandbox) -> str:
        """Return the URL of the apps inside the sandbox.

        Raises:
            Fault: No relay runs.
        """
        if self.advertised_url is not None:
            return self.advertised_url
        await self.let_go(session)
        relayed = _Relayed()
        self._relays[session] = relayed
        try:
            told = await self.group.start(self._relay, session, sandbox, relayed)
        except BaseException:
            self._relays.pop(session, None)
            raise
        if isinstance(told, Fault):
            self._relays.pop(session, None)
            raise told
        return str(told)

    async def let_go(self, session: ResourcesSessionId) -> None:
        """End the session's relay, if it has one."""
        relayed = self._relays.pop(session, None)
        if relayed is not None:
            relayed.scope.cancel()
            with anyio.move_on_after(LET_GO_SECONDS, shield=True):
                await relayed.over.wait()

    async def _relay(
        self,
        session: ResourcesSessionId,
        sandbox: Sandbox,
        relayed: _Relayed,
        *,
        task_status: anyio.abc.TaskStatus[str | Fault],
    ) -> None:
        if isinstance(sandbox, StreamingSandbox):
            open_stream = attached(sandbox, self.relay_start)
        else:
            open_stream = through_files(sandbox, self.mailbox_program)
        targets: Mapping[str, Dial] = {APPS: self.dial}
        ports = {APPS: port_inside(session, APPS)}
        started = False
        try:
            with relayed.scope:
                async with open_relay(open_stream, targets, ports=ports) as relay:
                    task_status.started(relay.url(APPS))
                    started = True
                    await anyio.sleep_forever()
        except Fault as fault:
            if not started:
                task_status.started(fault)
            else:
                log.warning("The relay to the apps is lost: %s", fault)
        finally:
            relayed.over.set()
