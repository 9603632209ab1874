# SPDX-License-Identifier: Apache-2.0
"""The page of `/metrics`: each number with its name, in Prometheus' text form.

Counters and times are of this process since its start. What stands open is read from the
journal when somebody asks, so it is the same whichever server on the journal tells it.
docs/metrics.md has the meaning and the unit of each; a test holds the two together.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ..domain import activations, agent_sessions, claims, resources_sessions
from ..ports.provided.measures import Measures, Times, TimesBy
from ..ports.provided.reap_claims import Finding
from ..ports.provided.sweep_claims import SweepEnd
from ..ports.provided.take_census import Census

_CLAIM_EVENTS: Final[Mapping[str, tuple[type, str]]] = {
    "livery_claims_requested": (claims.ClaimRequested, "Claims that were begun."),
    "livery_claims_made": (claims.ClaimHeld, "Sandboxes that were made or adopted."),
    "livery_claims_lost": (claims.ClaimLost, "Sandboxes that ended before we did."),
    "livery_claims_expired": (claims.ClaimExpired, "Sandboxes whose time was over."),
    "livery_claims_released": (claims.ClaimReleased, "Sandboxes that were seen gone."),
    "livery_claims_release_failures": (
        claims.ReleaseFailed,
        "Releases after which the sandbox was not seen gone.",
    ),
    "livery_activations_started": (
        activations.ActivationStarted,
        "Runs of a harness that were begun.",
    ),
}
_SESSION_EVENTS: Final[Mapping[str, tuple[type, type, str]]] = {
    "livery_sessions_begun": (
        agent_sessions.SeedStarted,
        resources_sessions.BuildStarted,
        "Sessions that were begun.",
    ),
    "livery_sessions_closed": (
        agent_sessions.SessionClosed,
        resources_sessions.ResourcesClosed,
        "Sessions that were closed.",
    ),
}


def written(measures: Measures, census: Census | None) -> bytes:
    """Return the page; without a `census` it says that the journal cannot be read."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(measures, census))
    return generate_latest(registry)


@attrs.frozen(eq=False)
class _Page(Collector):
    """The families of one page."""

    measures: Measures
    census: Census | None

    def collect(self) -> Iterator[Metric]:
        """Tell each family once."""
        yield GaugeMetricFamily(
            "livery_journal_up",
            "Whether the journal could be read: 1 or 0.",
            value=float(self.census is not None),
        )
        if self.census is not None:
            yield from _open(self.census)
        yield from _counted(self.measures)
        yield from _timed(self.measures)


def _open(census: Census) -> Iterator[Metric]:
    yield _gauge(
        "livery_claims",
        "Claims that are not released.",
        "state",
        {str(phase): count for phase, count in census.claims.items()},
    )
    yield GaugeMetricFamily(
        "livery_claims_oldest_unreleased_seconds",
        "How long ago the oldest claim that is not released was requested.",
        value=census.oldest_seconds,
    )
    yield _gauge(
        "livery_sessions",
        "Sessions that are not closed.",
        "participant",
        {
            "agent": census.open["agent_sessions"],
            "resources": census.open["resources_sessions"],
        },
    )
    yield GaugeMetricFamily(
        "livery_episodes",
        "Episodes that have no result and no failure yet.",
        value=census.open["episodes"],
    )


def _counted(measures: Measures) -> Iterator[Metric]:
    for name, (event, told) in _CLAIM_EVENTS.items():
        yield CounterMetricFamily(name, told, value=measures.events[event])
    for name, (agent, resources, told) in _SESSION_EVENTS.items():
        by = {"agent": measures.events[agent], "resources": measures.events[resources]}
        yield _counter(name, told, "participant", by)
    yield _counter(
        "livery_activations_ended",
        "Runs of a harness that ended.",
        "outcome",
        {str(one): measures.outcomes[one] for one in activations.Outcome},
    )
    yield CounterMetricFamily(
        "livery_claims_reaped",
        "Claims that the reaper gave back.",
        value=measures.reaped[Finding.RELEASED],
    )
    yield CounterMetricFamily(
        "livery_claims_reap_failures",
        "Claims that the reaper could not give back, once for each try.",
        value=measures.reaped[Finding.FAILED],
    )
    yield _counter(
        "livery_reaper_sweeps",
        "Sweeps of the reaper.",
        "end",
        {str(end): measures.sweeps[end] for end in SweepEnd},
    )
    yield GaugeMetricFamily(
        "livery_reaper_unknown_sandboxes",
        "Sandboxes of ours that the last sweep saw and that are in no journal.",
        value=measures.unknown,
    )
    yield _gauge(
        "livery_queue_length",
        "How many wait to be admitted.",
        "queue",
        {name: length() for name, length in measures.queues.items()},
    )
    yield _counter(
        "livery_sandbox_create_failures",
        "Creations of a sandbox that failed or were cancelled.",
        "provider",
        measures.failures,
    )


def _timed(measures: Measures) -> Iterator[Metric]:
    for name, told, label, times in (
        (
            "livery_queue_wait_seconds",
            "How long those waited that were admitted.",
            "queue",
            measures.waits,
        ),
        (
            "livery_sandbox_create_seconds",
            "How long sandboxes took to be made ready.",
            "provider",
            measures.creations,
        ),
        (
            "livery_sandbox_exec_seconds",
            "How long commands in sandboxes ran, with the way there and back.",
            "provider",
            measures.execs,
        ),
        (
            "livery_journal_append_seconds",
            "How long it took until what was written was on disk.",
            "category",
            measures.appends,
        ),
        (
            "livery_journal_read_seconds",
            "How long reading a stream took.",
            "category",
            measures.reads,
        ),
    ):
        yield _histogram(name, told, label, times)
    lag = HistogramMetricFamily(
        "livery_event_loop_lag_seconds",
        "How much later than asked for the event loop went on.",
    )
    lag.add_metric([], *_buckets(measures.lag))
    yield lag


def _gauge(name: str, told: str, label: str, by: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, told, labels=[label])
    for kind, count in by.items():
        family.add_metric([kind], count)
    return family


def _counter(name: str, told: str, label: str, by: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, told, labels=[label])
    for kind, count in by.items():
        family.add_metric([kind], count)
    return family


def _histogram(name: str, told: str, label: str, times: TimesBy) -> Metric:
    family = HistogramMetricFamily(name, told, labels=[label])
    for kind, one in times.of.items():
        family.add_metric([kind], *_buckets(one))
    return family


def _buckets(times: Times) -> tuple[list[tuple[str, float]], float]:
    bounds = [*map(str, times.bounds), "+Inf"]
    found = zip(bounds, map(float, accumulate(times.counts)), strict=True)
    return list(found), times.total
