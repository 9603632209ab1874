# SPDX-License-Identifier: Apache-2.0
"""The page of `/metrics`: each number with its name, in Prometheus' text form.

Counters and times are of one process since its start, the part that it has in the page.
What stands open is read from the journal when somebody asks, so it is the same whichever
server on the journal tells it. docs/metrics.md has the meaning and the unit of each; a
test holds the two together.
"""

from collections.abc import Iterable, Iterator, Mapping
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
from prometheus_client.parser import text_string_to_metric_families
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


WORKER: Final = "worker"
"""The label of what is one worker's of several."""


def written(census: Census | None) -> bytes:
    """Return what stands open; without a `census`, that the journal cannot be read."""
    return _text(_open(census))


def written_part(measures: Measures) -> bytes:
    """Return the part of this process."""
    return _text([*_counted(measures), *_timed(measures)])


def put_together(parts: Mapping[str, bytes | None]) -> bytes:
    """Return one text of the parts of workers, each number with its worker's name.

    Numbers are not added up: the counters of a worker that ends begin again, and only
    under a name of their own is that seen for what it is. A worker without a part is
    told as silent.
    """
    up = GaugeMetricFamily(
        "livery_worker_up",
        "Whether a worker behind this address told its part: 1 or 0.",
        labels=[WORKER],
    )
    families: dict[str, Metric] = {up.name: up}
    for worker, part in parts.items():
        up.add_metric([worker], float(part is not None))
        for family in text_string_to_metric_families((part or b"").decode()):
            found = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            found.samples += [
                sample._replace(labels={**sample.labels, WORKER: worker})
                for sample in family.samples
            ]
    return _text(families.values())


@attrs.frozen(eq=False)
class _Page(Collector):
    families: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        """Tell each family once."""
        return self.families


def _text(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(families))
    return generate_latest(registry)


def _open(census: Census | None) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "livery_journal_up",
        "Whether the journal could be read: 1 or 0.",
        value=float(census is not None),
    )
    if census is None:
        return
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
