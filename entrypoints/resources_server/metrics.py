# SPDX-License-Identifier: Apache-2.0
"""Sums of results as NeMo Gym's collector has them: by task, by repeat, and in all.

Every number at the top of a row is summed up under its own name, with a truth value as
1 or 0, and so is every number of its response's usage. A masked row counts for coverage
and for nothing else: its reward measures nothing.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from ...domain.digests import Json

Row = Mapping[str, Json]
Told = dict[str, Json]

TASK: Final = "_ng_task_index"
REPEAT: Final = "_ng_rollout_index"
RESERVED: Final = "_ng_"
KEY: Final = "reward"
MASK: Final = "mask_sample"
CONFIDENCE: Final = 0.95
SERIES_MAX: Final = 64
"""So many names are summed up; a row that makes up names must not multiply them."""
DROPPED: Final = "livery/dropped_series"
FREEDOM_LARGE: Final = 1000
"""Of more values than this the distribution is told by its limit."""
_HALVINGS: Final = 200
_T_MAX: Final = 1e6


def aggregate(rows: Sequence[Row]) -> Told:
    """Return the metrics of finished episodes."""
    measured = [_flat(row) for row in rows if row.get(MASK) is not True]
    known = _names(measured)
    names = known[:SERIES_MAX]
    by_task, by_repeat = _by(measured, TASK), _by(measured, REPEAT)
    coverage = _coverage(rows, measured)
    in_all: Told = {}
    for name in names:
        in_all |= _spread(_values(measured, name), name)
    for name in names:
        means = [
            statistics.fmean(values)
            for group in by_repeat.values()
            if (values := _values(group, name))
        ]
        in_all |= _across(means, name)
    keys: Told = {f"mean/{KEY}": in_all[f"mean/{KEY}"]} if KEY in names else {}
    repeats = len(by_repeat)
    counted: Told = {"num_repeats": repeats} if repeats else {}
    if len(known) > len(names):
        counted[DROPPED] = len(known) - len(names)
    return {
        "group_level_metrics": [
            _group(task, group, names, repeats) for task, group in by_task.items()
        ],
        "agent_metrics": {**in_all, **coverage, **counted},
        "key_metrics": {**keys, **coverage},
        "perf_summary": None,
        "repeat_level_metrics": [
            _repeat(repeat, group, names, len(by_task))
            for repeat, group in by_repeat.items()
        ],
    }


def usage_of(row: Row) -> Row:
    """Return what a row's response says that it took."""
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    return usage if isinstance(usage, Mapping) else {}


def _flat(row: Row) -> Row:
    """Return a row with all that is summed up at its top, as numbers.

    The usage is the agent's word, so nothing of it goes before what was graded.
    """
    told = {name: value for name, value in row.items() if name != MASK}
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in {**usage_of(row), **told}.items()
    }


def _names(rows: Sequence[Row]) -> list[str]:
    """Return what is summed up: the reward, then the others as they come."""
    found = dict.fromkeys(
        name
        for row in rows
        for name, value in row.items()
        if not name.startswith(RESERVED) and isinstance(value, int | float)
    )
    return sorted(found, key=lambda name: name != KEY)


def _values(rows: Sequence[Row], name: str) -> list[float]:
    found = (row.get(name) for row in rows)
    return [float(value) for value in found if isinstance(value, int | float)]


def _by(rows: Sequence[Row], name: str) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        number = row.get(name)
        groups.setdefault(number if isinstance(number, int) else 0, []).append(row)
    return dict(sorted(groups.items()))


def _coverage(rows: Sequence[Row], measured: Sequence[Row]) -> Told:
    if len(rows) == len(measured):
        return {}
    tasks, seen = _by(rows, TASK), _by(measured, TASK)
    return {
        "coverage/measured_rollouts": len(measured),
        "coverage/masked_rollouts": len(rows) - len(measured),
        "coverage/measured_tasks": len(seen),
        "coverage/fully_masked_tasks": len(tasks) - len(seen),
    }


def _spread(values: Sequence[float], name: str) -> Told:
    return {
        f"mean/{name}": statistics.fmean(values),
        f"max/{name}": max(values),
        f"min/{name}": min(values),
        f"median/{name}": statistics.median(values),
        f"std/{name}": _deviation(values),
    }


def _across(means: Sequence[float], name: str) -> Told:
    mean, deviation = statistics.fmean(means), _deviation(means)
    error, margin = _error(means), _margin(means)
    told = {
        "mean": mean,
        "median": statistics.median(means),
        "std": deviation,
        "min": min(means),
        "max": max(means),
        "se": error,
        "ci_low_95": mean - margin,
        "ci_high_95": mean + margin,
    }
    return {f"{word}_across_repeats/mean/{name}": v for word, v in told.items()}


def _group(task: int, rows: Sequence[Row], names: Sequence[str], repeats: int) -> Told:
    told: Told = {TASK: task}
    for name in names:
        if values := _values(rows, name):
            told |= _spread(values, name)
    agent = rows[0].get("agent_ref")
    infos: list[Json] = [
        {
            "rollout_id": f"{task}:{row.get(REPEAT, 0)}",
            TASK: task,
            REPEAT: row.get(REPEAT, 0),
            **{name: row[name] for name in names if name in row},
        }
        for row in rows
    ]
    return {
        **told,
        "sample": {"agent_ref": {"name": "agent"} if agent is None else agent},
        "num_rollouts": len(rows),
        "expected_num_rollouts": repeats,
        "missing_num_rollouts": max(repeats - len(rows), 0),
        "reward_profile_completion_pct": 100.0 * min(len(rows) / repeats, 1.0),
        "rollout_infos": infos,
    }


def _repeat(repeat: int, rows: Sequence[Row], names: Sequence[str], tasks: int) -> Told:
    told: Told = {
        REPEAT: repeat,
        "sample_count": len(rows),
        "missing_count": max(tasks - len(rows), 0),
    }
    for name in names:
        values = sorted(_values(rows, name))
        if not values:
            continue
        mean, margin = statistics.fmean(values), _margin(values)
        told |= {
            f"mean/{name}": mean,
            f"median/{name}": statistics.median(values),
            f"std/{name}": _deviation(values),
            f"sem/{name}": _error(values),
            f"min/{name}": values[0],
            f"max/{name}": values[-1],
            f"p25/{name}": _percentile(values, 0.25),
            f"p75/{name}": _percentile(values, 0.75),
        }
        if len(values) > 1:
            told[f"ci_low_95/{name}"] = mean - margin
            told[f"ci_high_95/{name}"] = mean + margin
    return told


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _error(values: Sequence[float]) -> float:
    return _deviation(values) / math.sqrt(len(values))


def _margin(values: Sequence[float]) -> float:
    """Return how far from their mean the true one may be, at `CONFIDENCE`."""
    if len(values) < 2:
        return 0.0
    return _error(values) * _student_t(len(values) - 1)


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@lru_cache(FREEDOM_LARGE)
def _student_t(freedom: int) -> float:
    """Return where Student's distribution holds `CONFIDENCE` around its middle."""
    if freedom > FREEDOM_LARGE:
        # Near the normal one: Abramowitz and Stegun 26.7.5.
        z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        return z + (z**3 + z) / (4 * freedom) + second
    low, high = 0.0, _T_MAX
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _within(t: float, freedom: int) -> float:
    """Return how much lies between -t and t: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * power / (power + 1)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
