# SPDX-License-Identifier: Apache-2.0
"""Each rollout counts once, and what is no measurement is no score."""

import io
import itertools
import json
import sys

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from rich.console import Console

from livery.adapters.results_folder import RunCard, SourceCard
from livery.adapters.results_folder.rows import Row, to_row
from livery.domain.rollouts import RecordKind
from livery.domain.tasks import TaskId
from livery.entrypoints.summaries import REASONS_MAX, pass_at, summarise
from livery.entrypoints.summary_texts import to_markdown, to_tables, verdict

from ..results_folder.rows import failure, result

CARD = RunCard(
    run="run-1",
    livery="0.1.0",
    created_at="2026-01-01T00:00:00Z",
    source=SourceCard(name="tasks.jsonl", taskset="set", tasks=2, digest="ab"),
    harness="oracle",
    sandbox="local",
    repeats=2,
    limit=None,
    state="/state",
    settings={},
)


def rows(*contents: object) -> list[Row]:
    return [to_row(json.loads(json.dumps(content))) for content in contents]


def test_a_rollout_counts_by_its_measured_attempt_or_its_last() -> None:
    summary = summarise(
        CARD,
        rows(
            failure("a.r0", 0),
            result("a.r0", 1, reward=1.0, task="a"),
            failure("a.r1", 0, task="a"),
            result("a.r1", 1, masked=True, reward=0.0, task="a"),
            result("b.r0", reward=0.5, task="b"),
        ),
    )

    found = summary.all
    assert (found.passed, found.failed, found.masked, found.broken) == (1, 1, 1, 0)
    assert found.pass_rate == 0.5
    assert found.mean_reward == 0.75
    assert summary.missing == 1
    assert not summary.is_complete
    assert verdict(summary).endswith("1 masked, 0 broken, 1 not run")


def test_pass_at_k_counts_tasks_with_enough_rollouts() -> None:
    summary = summarise(
        CARD,
        rows(
            result("a.r0", reward=1.0, task="a"),
            result("a.r1", reward=0.0, task="a"),
            result("b.r0", reward=0.0, task="b"),
            result("b.r1", masked=True, task="b"),
        ),
    )

    assert summary.all.pass_at == {1: 0.25, 2: 1.0}


@given(some.lists(some.booleans(), min_size=1, max_size=8), some.integers(1, 8))
def test_pass_at_k_is_the_share_of_draws_with_a_pass(ended: list[bool], k: int) -> None:
    if k > len(ended):
        return
    draws = list(itertools.combinations(ended, k))

    share = sum(any(draw) for draw in draws) / len(draws)

    assert pass_at(k, len(ended), sum(ended)) == pytest.approx(share)


def test_reasons_are_grouped_bounded_and_told_apart() -> None:
    many = [
        failure(f"x{n}", reason=f"reason {n}", task=f"x{n}")
        for n in range(REASONS_MAX + 5)
    ]
    same = [failure(f"s{n}", reason="the\n same " + "x" * 300) for n in range(4)]

    summary = summarise(CARD, rows(*many, *same, result("m", masked=True)))

    first = summary.reasons[0]
    assert (first.kind, first.count) == (RecordKind.BROKEN, 4)
    assert first.examples == ("s0", "s1", "s2")
    assert first.reason.startswith("the same x")
    assert len(first.reason) == 200
    assert len(summary.reasons) == REASONS_MAX
    assert summary.reasons_left_out == 7


def test_durations_are_told_by_stage() -> None:
    timed = [
        result(f"t{n}", seconds={"seed": n / 10, "act": 1, "odd": "x"})
        for n in range(1, 11)
    ]

    seed, act = summarise(CARD, rows(*timed)).durations

    assert (seed.stage, seed.episodes) == ("seed", 10)
    assert (seed.median, seed.p90, seed.longest) == (0.55, 0.9, 1.0)
    assert act.total == 10


def test_the_programs_of_a_run_are_told_with_how_they_came() -> None:
    mounted: dict[str, object] = {
        "name": "claude_code",
        "version": "1.2.3",
        "platform": "linux-x86_64-glibc",
        "sha256": "ab" * 32,
        "path": "/opt/claude",
        "came": "mounted",
    }
    sent = {**mounted, "came": "transferred", "path": None}

    summary = summarise(
        CARD,
        rows(
            *(result(f"t.r{i}", runtime=json.loads(json.dumps(mounted))) for i in "01"),
            result("t.r2", runtime=json.loads(json.dumps(sent))),
            result("t.r3"),
        ),
    )

    assert [(one.came, one.path, one.episodes) for one in summary.runtimes] == [
        ("mounted", "/opt/claude", 2),
        ("transferred", "", 1),
    ]
    assert summary.runtimes[0].sha256 == "ab" * 32
    assert "claude\\_code | 1.2.3 | linux-x86\\_64-glibc" in to_markdown(summary)
    assert (
        json.loads(json.dumps(summary.written()))["runtimes"][0]["version"] == "1.2.3"
    )


def test_the_texts_show_every_number_and_no_markup_of_others() -> None:
    nasty = "[bold]a|b*c[/bold]"
    contents = rows(
        result("a.r0", task="a", seconds={"seed": 1.0}),
        failure("b.r0", reason=nasty, task="b"),
    )
    contents.append(
        attrs.evolve(contents[0], task=attrs.evolve(contents[0].task, taskset="other"))
    )
    contents[-1] = attrs.evolve(
        contents[-1],
        record=attrs.evolve(
            contents[-1].record,
            episode=attrs.evolve(contents[-1].record.episode, rollout_id="c.r0"),
        ),
    )
    summary = summarise(CARD, contents)

    markdown = to_markdown(summary)
    shown = io.StringIO()
    Console(file=shown, width=200).print(to_tables(summary))

    assert "| set | 2 | 1 | 0 | 0 | 1 | 100.0 % | 1.000 | 100.0 % |" in markdown
    assert "| all | 3 |" in markdown
    assert r"\[bold\]a\|b\*c\[/bold\]" in markdown
    assert nasty in shown.getvalue()
    assert "1 rollouts have not been run" in markdown
    assert "pass@1" in shown.getvalue()
    assert json.dumps(summary.written())


@given(some.lists(some.floats(allow_nan=False, allow_infinity=False), min_size=1))
@example([1.7e308, 1.7e308])
@example([sys.float_info.max] * 3)
@example([-sys.float_info.max] * 7)
def test_any_rewards_have_a_mean_between_them(rewards: list[float]) -> None:
    told = [result(f"t{n}", reward=one, task=f"t{n}") for n, one in enumerate(rewards)]

    summary = summarise(CARD, rows(*told))

    mean = summary.all.mean_reward
    assert mean is not None
    # Rounding may carry it past either by a hair.
    assert min(rewards) <= mean <= max(rewards) or mean == pytest.approx(rewards[0])
    assert json.dumps(summary.written(), allow_nan=False)
    assert max(map(len, to_markdown(summary).splitlines())) < 200


@pytest.mark.parametrize("odd", [1e308, 5e9, -1.0])
def test_times_that_cannot_be_leave_the_others_their_table(odd: float) -> None:
    timed = [result(f"t{n}", seconds={"seed": odd}) for n in range(3)]

    (seed,) = summarise(
        CARD, rows(*timed, result("t3", seconds={"seed": 2.0}))
    ).durations

    assert (seed.episodes, seed.median, seed.total) == (1, 2.0, 2.0)


STEERING = "a\nb\r\t\x1b[2J\x1b]0;title\x07\x9b31m\u2028c"


def test_no_text_of_others_steers_a_terminal_or_leaves_its_cell() -> None:
    (named,) = rows(result("a.r0"))
    named = attrs.evolve(named, task=TaskId(STEERING, STEERING))
    broken = failure("b.r0", reason=STEERING, kind=STEERING, stage=STEERING)
    card = attrs.evolve(CARD, source=attrs.evolve(CARD.source, taskset=STEERING))

    summary = summarise(card, [named, *rows(broken)])

    shown = io.StringIO()
    Console(file=shown, width=400).print(to_tables(summary))
    for text in (shown.getvalue(), to_markdown(summary)):
        assert not set(text) & {*STEERING} - {*"ab\n[2J]0;title31mc"}
    scores = to_markdown(summary).split("##")[1].strip().splitlines()
    assert len(scores) == 2 + 2 + 3, "a title, an empty line, two of head, three sets"


@pytest.mark.parametrize(
    ("passed", "of", "told"),
    [
        (3000, 3000, "100.0 %"),
        (2999, 3000, ">99.9 %"),
        (2997, 3000, "99.9 %"),
        (1, 3000, "<0.1 %"),
        (3, 3000, "0.1 %"),
        (0, 3000, "0.0 %"),
    ],
)
def test_all_and_none_are_said_of_nothing_less(passed: int, of: int, told: str) -> None:
    ended = rows(
        *(result(f"t{n}", reward=float(n < passed), task=f"t{n}") for n in range(of))
    )

    markdown = to_markdown(summarise(CARD, ended))

    (line,) = [each for each in markdown.splitlines() if each.startswith("| set |")]
    cells = [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")]
    assert (cells[-3], cells[-1]) == (told, told)


def test_nothing_run_is_a_summary_too() -> None:
    summary = summarise(CARD, [])

    assert summary.missing == 4
    assert "0 of 4 passed" in to_markdown(summary)
    assert summary.all.pass_rate is None
