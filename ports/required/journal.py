# SPDX-License-Identifier: Apache-2.0
"""The journal: the durable log of what happened, one stream an aggregate.

An append names the version that the writer read. Another writer may have been
first; then nothing is written and the writer reads again. So a rule that a decider
states holds between tasks, processes and restarts. What was appended is on disk
when `append` returns, and survives a kill at any moment.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import attrs

from ...domain import (
    agent_sessions,
    claims,
    episodes,
    lent_sandboxes,
    places,
    resources_sessions,
    runtimes,
)
from ...domain.digests import RequestDigest
from .faults import Fault

Event = (
    agent_sessions.Event
    | claims.Event
    | episodes.Event
    | lent_sandboxes.Event
    | places.PlaceTaken
    | resources_sessions.Event
    | runtimes.Event
)
E = TypeVar("E")

ENDS: Final[frozenset[type]] = frozenset(
    {
        agent_sessions.SessionClosed,
        claims.ClaimReleased,
        episodes.EpisodeDone,
        resources_sessions.ResourcesClosed,
        runtimes.RuntimeInstalled,
    }
)
"""A stream whose last event is one of these is not open."""


@attrs.frozen
class Stream(Generic[E]):
    """A stream's name; the type parameter says which events it holds."""

    category: str
    key: str


def claim_stream(claim: claims.ClaimId) -> Stream[claims.Event]:
    """Return the stream of a claim."""
    return Stream("claims", claim)


def agent_session_stream(
    session: agent_sessions.AgentSessionId,
) -> Stream[agent_sessions.Event]:
    """Return the stream of an agent session and its activations."""
    return Stream("agent_sessions", session)


def resources_session_stream(
    session: resources_sessions.ResourcesSessionId,
) -> Stream[resources_sessions.Event]:
    """Return the stream of a resources session."""
    return Stream("resources_sessions", session)


def episode_stream(run: str, key: str) -> Stream[episodes.Event]:
    """Return the stream of an episode, by the run it belongs to and its key."""
    return Stream("episodes", f"{run}/{key}")


def place_stream(name: str, number: int) -> Stream[places.PlaceTaken]:
    """Return the stream of one of the places of a name."""
    return Stream("places", f"{name}/{number}")


def lent_sandbox_stream(sandbox: RequestDigest) -> Stream[lent_sandboxes.Event]:
    """Return the stream of a sandbox that was lent, by what tells it from others."""
    return Stream("lent_sandboxes", sandbox)


def runtime_stream(sandbox: str, runtime: str) -> Stream[runtimes.Event]:
    """Return the stream of one runtime in one sandbox."""
    return Stream("runtimes", f"{sandbox}/{runtime}")


@attrs.frozen
class History(Generic[E]):
    """What a stream holds from some version on."""

    events: tuple[E, ...]
    version: int
    """The number of events in the stream, from its beginning."""


@attrs.frozen
class StreamMoved(Fault):
    """Another writer was first; nothing was written."""

    kind: ClassVar[str] = "stream_moved"
    message: ClassVar[str] = (
        "Stream {category}/{key} is at version {found}, not {expected}."
    )
    can_retry: ClassVar[bool] = True

    category: str
    key: str
    expected: int
    found: int


@attrs.frozen
class JournalUnusable(Fault):
    """The journal cannot be read or written; `advice` says what to do."""

    kind: ClassVar[str] = "journal_unusable"
    message: ClassVar[str] = "The journal at {where} cannot be used: {reason}. {advice}"

    where: str
    reason: str
    advice: str


@attrs.frozen
class LeaseLost(Fault):
    """This process was taken for dead, and others go on with what it had."""

    kind: ClassVar[str] = "lease_lost"
    message: ClassVar[str] = (
        "{holder} was not heard of for longer than its lease, and others have taken over"
        " what it had: it writes nothing any more. Start it again."
    )

    holder: str


@attrs.frozen
class JournalTooNew(Fault):
    """A newer version of Livery wrote it."""

    kind: ClassVar[str] = "journal_too_new"
    message: ClassVar[str] = (
        "The journal at {where} has format {found}; this version knows formats up to"
        " {known}. Use a newer Livery, or another state folder (--state)."
    )

    where: str
    found: int
    known: int


class Journal(Protocol):
    """A durable log of domain events.

    Every method may raise `JournalUnusable`. Where processes have leases, those that
    write may raise `LeaseLost`: whoever was said to be dead (`Holders`) writes nothing
    any more, also if it was only slow.
    """

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        """Write `events`, all or none, and return the stream's new version.

        To append nothing is to ask whether the stream is at `expected_version`.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
        """
        ...

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        """Return the events behind version `after`; none for an unknown stream."""
        ...

    async def open_streams(self, category: str) -> tuple[str, ...]:
        """Return the keys of the category's streams that have not ended (`ENDS`)."""
        ...

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        """Wait until the stream is not at version `after`, and return its version.

        That is a later one; or an earlier one, which is 0 where there is no stream,
        once it was forgotten. Writers in other processes are noticed as well, within
        a second.
        """
        ...

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        """Remove the stream with all its events.

        Raises:
            StreamMoved: The stream is not at `expected_version`.
        """
        ...
