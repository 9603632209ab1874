# SPDX-License-Identifier: Apache-2.0
"""Measures: plain numbers of what a process has done, for whoever shows them.

Counting is an addition on the event loop's thread: no lock, no text. Names and units of
what is shown are its showers'; all times are in seconds.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from ...domain import activations, agent_sessions, claims, resources_sessions
from ..required.journal import Event
from .reap_claims import Finding, ReapReport
from .sweep_claims import SweepEnd

SHORT: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Bounds for what should take milliseconds."""
LONG: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""Bounds for what may take minutes."""


@attrs.define(eq=False)
class Times:
    """How often something took how long."""

    bounds: tuple[float, ...]
    counts: list[int] = attrs.field(init=False)
    """One for each bound, and one for what took longer than all."""
    total: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with none."""
        self.counts = [0] * (len(self.bounds) + 1)

    def note(self, seconds: float) -> None:
        """Count one that took so long."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


@attrs.define(eq=False)
class TimesBy:
    """Times of each kind of something; the kinds are few and known."""

    bounds: tuple[float, ...]
    of: dict[str, Times] = attrs.field(factory=dict[str, Times], init=False)

    def note(self, kind: str, seconds: float) -> None:
        """Count one of a kind that took so long."""
        times = self.of.get(kind)
        if times is None:
            times = self.of[kind] = Times(self.bounds)
        times.note(seconds)


def _short() -> TimesBy:
    return TimesBy(SHORT)


def _long() -> TimesBy:
    return TimesBy(LONG)


@attrs.define(kw_only=True, eq=False)
class Measures:
    """What this process has done since its start."""

    events: Counter[type] = attrs.field(factory=Counter[type])
    """How many of each kind of event it wrote, of those in `COUNTED`."""
    outcomes: Counter[str] = attrs.field(factory=Counter[str])
    """How many activations ended, by outcome."""
    failures: Counter[str] = attrs.field(factory=Counter[str])
    """How many creations failed, by provider."""
    reaped: Counter[Finding] = attrs.field(factory=Counter[Finding])
    sweeps: Counter[SweepEnd] = attrs.field(factory=Counter[SweepEnd])
    unknown: int = 0
    """How many sandboxes of ours the last sweep saw that are in no journal."""
    appends: TimesBy = attrs.field(factory=_short)
    reads: TimesBy = attrs.field(factory=_short)
    """Both by category of stream."""
    creations: TimesBy = attrs.field(factory=_long)
    execs: TimesBy = attrs.field(factory=_long)
    """Both by provider."""
    waits: TimesBy = attrs.field(factory=_long)
    """How long those waited that were admitted, by queue."""
    queues: dict[str, Callable[[], int]] = attrs.field(
        factory=dict[str, Callable[[], int]]
    )
    """What tells how many wait, by queue."""
    lag: Times = attrs.field(factory=lambda: Times(SHORT))
    """How much later than asked for the event loop went on."""

    def note_events(self, events: Iterable[Event]) -> None:
        """Count what was written."""
        for event in events:
            kind = type(event)
            if kind in COUNTED:
                self.events[kind] += 1
                if isinstance(event, activations.ActivationEnded):
                    self.outcomes[event.ending.outcome] += 1

    def note_sweep(self, end: SweepEnd, report: ReapReport | None) -> None:
        """Count what a sweep did."""
        self.sweeps[end] += 1
        if report is not None:
            self.reaped.update(one.finding for one in report.reaped)
            self.unknown = sum(1 for one in report.reaped if one.is_unknown)


COUNTED: Final = frozenset(
    {
        claims.ClaimRequested,
        claims.ClaimHeld,
        claims.ClaimLost,
        claims.ClaimExpired,
        claims.ReleaseFailed,
        claims.ClaimReleased,
        agent_sessions.SeedStarted,
        agent_sessions.SessionClosed,
        resources_sessions.BuildStarted,
        resources_sessions.ResourcesClosed,
        activations.ActivationStarted,
        activations.ActivationEnded,
    }
)
