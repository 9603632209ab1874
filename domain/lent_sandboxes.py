# SPDX-License-Identifier: Apache-2.0
"""Lent sandboxes: which sessions use one of them.

One session uses a lent sandbox, or several that all agreed to share it; whoever is not
of one mind with those who are there is refused. Each sandbox is a log of its own, which
is forgotten when the last one has left, so that whether it is free is one look, however
many sessions are open.
"""

from collections.abc import Mapping
from typing import Final, assert_never

import attrs

from .agent_sessions import AgentSessionId, SandboxInUse
from .deciders import Decider, Instant
from .evolved_values import evolved


@attrs.frozen(kw_only=True)
class BeginUse:
    """Asks for the sandbox to serve the session."""

    session: AgentSessionId
    shares: bool
    """Whether others that share may be there as well."""
    provider: str
    sandbox: str
    """As a refusal names it."""
    at: Instant


@attrs.frozen(kw_only=True)
class EndUse:
    """Tells that the session uses the sandbox no more."""

    session: AgentSessionId
    at: Instant


Command = BeginUse | EndUse


@attrs.frozen(kw_only=True)
class UseBegun:
    """The sandbox serves the session."""

    session: AgentSessionId
    shares: bool
    at: Instant


@attrs.frozen(kw_only=True)
class UseEnded:
    """The sandbox serves the session no more; another one is there."""

    session: AgentSessionId
    at: Instant


Event = UseBegun | UseEnded


def _in_order(
    users: Mapping[AgentSessionId, bool],
) -> tuple[tuple[AgentSessionId, bool], ...]:
    return tuple(users.items())


@attrs.frozen(kw_only=True)
class LentSandbox:
    """Who uses it."""

    users: Mapping[AgentSessionId, bool] = attrs.field(
        factory=dict[AgentSessionId, bool], eq=_in_order
    )
    """The sessions that it serves, and whether each of them shares it."""


def decide(lent: LentSandbox, command: Command) -> tuple[Event, ...]:
    """Return what happens next, which is nothing when it has happened before.

    Raises:
        SandboxInUse: It serves another session, and not both share it.
    """
    match command:
        case BeginUse(session=session, shares=shares, at=at):
            if session in lent.users:
                return ()
            for other, theirs in lent.users.items():
                if not (shares and theirs):
                    raise SandboxInUse(
                        provider=command.provider,
                        sandbox=command.sandbox,
                        session=other,
                    )
            return (UseBegun(session=session, shares=shares, at=at),)
        case EndUse(session=session, at=at):
            ended = UseEnded(session=session, at=at)
            return (ended,) if session in lent.users else ()
        case _:
            assert_never(command)


def evolve(lent: LentSandbox, event: Event) -> LentSandbox:
    """Return who uses the sandbox after `event`."""
    match event:
        case UseBegun(session=session, shares=shares):
            return evolved(lent, users={**lent.users, session: shares})
        case UseEnded(session=session):
            left = {
                user: shares for user, shares in lent.users.items() if user != session
            }
            return evolved(lent, users=left)
        case _:
            assert_never(event)


DECIDER: Final[Decider[LentSandbox, Command, Event]] = Decider(
    initial=LentSandbox(), decide=decide, evolve=evolve
)
