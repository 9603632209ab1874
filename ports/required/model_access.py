# SPDX-License-Identifier: Apache-2.0
"""How a harness in a sandbox reaches its model without a real credential."""

from collections.abc import Mapping
from typing import Protocol

import attrs

from ...domain.agent_sessions import AgentSessionId


@attrs.frozen(kw_only=True)
class ModelGrant:
    """What a sandbox is given: an address and a placeholder."""

    base_url: str
    placeholder: str = attrs.field(repr=False)
    """A credential that is good for this session alone."""


@attrs.frozen(kw_only=True)
class ModelRecord:
    """What the gateway saw of a session's calls to its model."""

    calls: int
    failures: int
    last_failure: str = ""
    usage: Mapping[str, int] = attrs.field(factory=dict[str, int])


class ModelAccess(Protocol):
    """Grants and revokes access to the model, one session at a time."""

    async def grant(self, session: AgentSessionId) -> ModelGrant:
        """Return the session's address and placeholder, the same when asked again."""
        ...

    async def revoke(self, session: AgentSessionId) -> ModelRecord:
        """End the access, and return what was seen of it."""
        ...
