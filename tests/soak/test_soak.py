# SPDX-License-Identifier: Apache-2.0
"""The soak itself, short and with more faults; and that a broken promise is told."""

from pathlib import Path

import attrs
import pytest

from .chances import Chances, Fault, FaultKind
from .clients import GRADED, Answers, moments
from .figures import (
    DESCRIPTORS_PER_HOUR_MAX,
    HOUR,
    JUDGED_SECONDS,
    MIB_PER_HOUR_MAX,
    Sample,
    Series,
    gauges,
    slope,
)
from .report import Report
from .soak import HOPS, Plan, soak
from .workload import RIGHT, WRONG, Episode, says, started_again

REST = {"livery_journal_up": 1.0, "livery_episodes": 0.0}
PAGE = """\
# TYPE livery_journal_up gauge
livery_journal_up 1.0
# TYPE livery_claims gauge
livery_claims{state="held"} 2.0
# TYPE livery_claims_made counter
livery_claims_made_total 7.0
"""


@pytest.mark.anyio
@pytest.mark.peer("docker")
async def test_faults_on_every_hop_break_no_promise(tmp_path: Path) -> None:
    plan = Plan(minutes=0.1, rate=0.7, faults=0.08, seed=23, folder=tmp_path, pace=0.2)

    report = await soak(plan)

    told = "\n".join(report.lines())
    assert report.broken() == [], told
    assert sum(sum(hop.counted.values()) for hop in report.hops) > 0, told
    assert {hop.hop for hop in report.hops if hop.messages} == set(HOPS), told
    assert report.answers.outcomes[GRADED] > 0, told
    assert set(report.ends) == {"environment", "resources", "agent"}


def a_report(**more: object) -> Report:
    """Return the report of a soak in which all went well, but for what is given."""
    chances = Chances("hop", 0.05, 1)
    chances.note(Fault(FaultKind.SLOW))
    answers = Answers(graded={"soak-1"})
    answers.outcomes[GRADED] += 1
    found = Report(
        minutes=20,
        rate=1.0,
        share=0.05,
        seed=1,
        hops=(chances,),
        answers=answers,
        arrivals=1,
        seconds=JUDGED_SECONDS,
        starts=[("soak-1", "run-1", "box-1")],
        gauges={"agent": REST},
        ends={"agent": 0},
        series=[series(0.0, 0.0)],
        logs={"agent": ["ERROR it went wrong", "all is well"]},
    )
    return attrs.evolve(found, **more)


def series(mib_per_hour: float, descriptors_per_hour: float) -> Series:
    """Return a process that grows so fast."""
    times = range(0, int(HOUR), 60)
    return Series(
        "agent",
        [
            Sample(
                t, 70 + mib_per_hour * t / HOUR, int(descriptors_per_hour * t / HOUR)
            )
            for t in times
        ],
    )


def test_a_soak_in_which_all_went_well_says_so() -> None:
    report = a_report()
    told = "\n".join(report.lines())

    assert report.broken() == []
    assert "every promise was kept" in told
    assert "1 in all" in told
    assert "ERROR it went wrong" in told


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"arrivals": 2}, "2 clients came and 1 were answered"),
        ({"starts": []}, "soak-1 is graded and never ran"),
        ({"starts": [("soak-1", "run-1", "b"), ("soak-1", "run-1", "c")]}, "2 starts"),
        ({"gauges": {}}, "no gauges"),
        (
            {"gauges": {"agent": {**REST, "livery_episodes": 3.0}}},
            "livery_episodes is 3",
        ),
        ({"gauges": {"agent": {**REST, "livery_journal_up": 0.0}}}, "journal_up is 0"),
        ({"left": ("container livery-x running",)}, "Docker has container livery-x"),
        ({"died": ["agent: status -9"]}, "a server died"),
        ({"ends": {"agent": 1}}, "ended with status 1"),
        ({"series": [series(MIB_PER_HOUR_MAX * 1.1, 0.0)]}, "memory grows"),
        ({"series": [series(0.0, DESCRIPTORS_PER_HOUR_MAX * 1.5)]}, "descriptors grow"),
        ({"answers": Answers(outcomes=Answers().outcomes, broken=["soak-1 x"])}, "x"),
    ],
)
def test_a_broken_promise_is_named(more: dict[str, object], words: str) -> None:
    report = a_report(**more)

    assert any(words in one for one in report.broken()), report.broken()
    assert "BROKEN" in "\n".join(report.lines())


def test_the_slope_of_a_short_run_is_told_and_not_judged() -> None:
    report = a_report(series=[series(1000.0, 0.0)], seconds=60.0)

    assert report.broken() == []
    assert "not judged" in "\n".join(report.lines())


def test_the_slope_is_that_of_the_least_squares() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)]) == pytest.approx(0.0)
    assert slope([]) == slope([(1.0, 5.0)]) == slope([(1.0, 5.0), (1.0, 6.0)]) == 0.0
    assert series(36.0, 0.0).mib_per_hour == pytest.approx(36.0)
    assert Series("none").mib_per_hour == 0.0


def test_gauges_are_read_off_the_page_and_counters_are_not() -> None:
    assert gauges(PAGE) == {"livery_journal_up": 1.0, "livery_claims{state=held}": 2.0}


def test_clients_come_at_the_rate_and_from_a_seed() -> None:
    found = moments(0.5, 10_000.0, 3)

    assert found == moments(0.5, 10_000.0, 3) != moments(0.5, 10_000.0, 4)
    assert 4_700 < len(found) < 5_300
    assert moments(0.001, 0.1, 3) == [0.0]


def test_everybody_outside_knows_what_an_episode_is_worth() -> None:
    assert [Episode(n).reward for n in (1, 2, 3)] == [RIGHT, RIGHT, WRONG]
    asked = {"messages": [{"role": "user", "content": "soak-3\n"}]}
    assert says(asked) == "wrong 3"
    once = [("e", "run-1", "box-1"), ("e", "run-2", "box-2")]
    assert started_again(once) == []
    assert started_again([*once, ("f", "run-3", "box-2")]) == [
        "sandbox box-2: 2 starts"
    ]
