# SPDX-License-Identifier: Apache-2.0
"""What a soak came to, as text, and which promises were broken."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from .chances import Chances, FaultKind
from .clients import GRADED, Answers
from .figures import (
    DESCRIPTORS_PER_HOUR_MAX,
    JUDGED_SECONDS,
    MIB_PER_HOUR_MAX,
    Series,
    not_at_rest,
)
from .workload import started_again

REASONS_TOLD: Final = 12
LINES_TOLD: Final = 8
GRAVE: Final = ("ERROR", "CRITICAL", "Traceback")

Start = tuple[str, str, str]


@attrs.define(kw_only=True)
class Report:
    """What is known at the end."""

    minutes: float
    rate: float
    share: float
    seed: int
    hops: tuple[Chances, ...]
    answers: Answers
    arrivals: int = 0
    seconds: float = 0.0
    """Until the last client was answered."""
    rest_seconds: float = 0.0
    """From then on, until all was given back."""
    series: list[Series] = attrs.field(factory=list[Series])
    gauges: Mapping[str, dict[str, float]] = attrs.field(
        factory=dict[str, dict[str, float]]
    )
    left: tuple[str, ...] = ()
    """What Docker has under our owner's label."""
    starts: list[Start] = attrs.field(factory=list[Start])
    died: list[str] = attrs.field(factory=list[str])
    ends: dict[str, int] = attrs.field(factory=dict[str, int])
    """The status of each server that was told to end."""
    logs: Mapping[str, list[str]] = attrs.field(factory=dict[str, list[str]])

    def broken(self) -> list[str]:
        """Return each promise that was broken."""
        found = list(self.answers.broken)
        answered = sum(self.answers.outcomes.values())
        if answered != self.arrivals:
            found.append(f"{self.arrivals} clients came and {answered} were answered")
        found += started_again(self.starts)
        ran = {episode for episode, _, _ in self.starts}
        found += [f"{one} is graded and never ran" for one in self.answers.graded - ran]
        if not self.gauges:
            found.append("no gauges could be read at the end")
        for name, told in self.gauges.items():
            for gauge, value in not_at_rest(told).items():
                found.append(f"{name}: {gauge} is {value:g} at the end")
        found += [f"Docker has {one}" for one in self.left]
        found += [f"a server died: {one}" for one in self.died]
        found += [
            f"the {name} server ended with status {status}"
            for name, status in self.ends.items()
            if status != 0
        ]
        return found + list(self._growth())

    @property
    def judges_growth(self) -> bool:
        """Whether it was long enough for a slope to say something."""
        return self.seconds >= JUDGED_SECONDS

    def _growth(self) -> Iterator[str]:
        if not self.judges_growth:
            return
        for one in self.series:
            if one.mib_per_hour > MIB_PER_HOUR_MAX:
                yield (
                    f"{one.name}: memory grows by {one.mib_per_hour:.1f} MiB per hour,"
                    f" at most {MIB_PER_HOUR_MAX:g}"
                )
            if one.descriptors_per_hour > DESCRIPTORS_PER_HOUR_MAX:
                yield (
                    f"{one.name}: descriptors grow by {one.descriptors_per_hour:.1f} per"
                    f" hour, at most {DESCRIPTORS_PER_HOUR_MAX:g}"
                )

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield (
            f"{self.minutes:g} minutes, {self.arrivals} arrivals at {self.rate:g} per"
            f" second, {self.share:.1%} faults, seed {self.seed}"
        )
        yield (
            f"answered after {self.seconds:.0f} s, at rest {self.rest_seconds:.0f} s"
            " later"
        )
        yield ""
        yield "episodes by outcome"
        yield from _counts(self.answers.outcomes)
        yield "answers that were no grade, by what they said"
        yield from _counts(self.answers.failures)
        yield "why clients asked again"
        yield from _counts(self.answers.retries)
        yield ""
        yield "faults by hop and kind"
        yield from self._faults()
        yield ""
        yield from self._counted_outside()
        yield ""
        yield "processes            CPU s  MiB first  at last   MiB/h  descriptors      /h"
        for one in self.series:
            if one.samples:
                first, last = one.samples[0], one.samples[-1]
                yield (
                    f"  {one.name:16} {last.cpu - first.cpu:7.1f} {first.mib:10.1f} {last.mib:8.1f}"
                    f" {one.mib_per_hour:7.1f} {first.descriptors:5} {last.descriptors:5}"
                    f" {one.descriptors_per_hour:7.1f}"
                )
        judged = "judged" if self.judges_growth else "not judged, too short"
        yield (
            f"  slopes after the first third: {judged}; bounds {MIB_PER_HOUR_MAX:g}"
            f" MiB and {DESCRIPTORS_PER_HOUR_MAX:g} descriptors per hour"
        )
        yield ""
        if self.answers.reasons:
            yield "reasons, the most frequent"
            for reason, count in self.answers.reasons.most_common(REASONS_TOLD):
                yield f"  {count:5}  {reason}"
        for name, said in self.logs.items():
            grave = [line for line in said if any(word in line for word in GRAVE)]
            yield f"grave lines of the {name} server: {len(grave)}"
            yield from (f"    {line[:200]}" for line in grave[:LINES_TOLD])
        yield ""
        broken = self.broken()
        yield f"BROKEN: {len(broken)}" if broken else "every promise was kept"
        yield from (f"  {one}" for one in broken)

    def _faults(self) -> Iterator[str]:
        total = Counter[FaultKind]()
        yield f"  {'':26} {'messages':>8} " + " ".join(f"{k:>11}" for k in FaultKind)
        for hop in self.hops:
            total += hop.counted
            counts = " ".join(f"{hop.counted[kind]:11}" for kind in FaultKind)
            yield f"  {hop.hop:26} {hop.messages:8} {counts}"
        messages = sum(hop.messages for hop in self.hops)
        counts = " ".join(f"{total[kind]:11}" for kind in FaultKind)
        yield f"  {f'{sum(total.values())} in all':26} {messages:8} {counts}"

    def _counted_outside(self) -> Iterator[str]:
        sessions = {run for _, run, _ in self.starts}
        again = started_again(self.starts)
        yield (
            f"starts counted outside: {len(self.starts)}, in {len(sessions)} sessions,"
            f" {len(again)} of them more than once"
        )
        graded = self.answers.outcomes[GRADED]
        yield f"graded: {graded}, each with the reward that is known outside"
        rests = {name: not_at_rest(told) for name, told in self.gauges.items()}
        open_ = {name: told for name, told in rests.items() if told}
        yield f"gauges that are not back: {open_ or 'none'}"
        yield f"left on Docker: {', '.join(self.left) or 'nothing'}"


def _counts(counted: Counter[str]) -> Iterator[str]:
    for what, count in counted.most_common():
        yield f"  {count:5}  {what}"
    if not counted:
        yield "      0"
