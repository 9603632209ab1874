# SPDX-License-Identifier: Apache-2.0
"""What an episode costs when many are in flight, in simulated time.

    python -m tests.simulation.growth [FEW [MANY]]

Prints the seconds of a core for an episode with FEW and with MANY in flight at once, and
their ratio; exit status 1 when that is above `RATIO_MAX`. What an episode does is the
same (`test_growth.py` counts it); what it costs also depends on where its memory lies.
docs/SCALE.md tells with which settings a large process is to be started, and so this.
"""

import cProfile
import gc
import logging
import pstats
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

import anyio

from livery.adapters.virtual_clock import leaping_loop
from livery.domain.rollouts import owed
from livery.domain.tasks import Task
from livery.entrypoints.collector import collected_rarely

from .chance import Chance
from .outside import Outside, Process
from .players import some_task
from .simulation import OWNER, wired_run

FEW: Final = 1_000
MANY: Final = 100_000
RATIO_MAX: Final = 1.2
ROUNDS: Final = 5
"""How often few are played, before and after; what is in the middle counts."""
BOXES_SHARE: Final = 0.8
"""Of all sandboxes, how many stand at one moment: a harness can be over quickly."""
LIFETIME_SECONDS: Final = 36_000.0


def seconds_of_an_episode(in_flight: int, seed: int = 0) -> float:
    """Play so many episodes at once; return what one of them costs a core."""
    return played(in_flight, seed)[0] / in_flight


def calls_of_an_episode(in_flight: int) -> dict[str, float]:
    """Play so many; return how often each function of Livery is called for one."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        played(in_flight, 0)
    finally:
        profile.disable()
    # Its entries are as `cProfile` has them: (path, line, name) and numbers.
    found: dict[tuple[str, int, str], tuple[int, int, float, float, object]]
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return {
        f"{path.partition('/livery/')[2]} {name}": numbers[1] / in_flight
        for (path, _, name), numbers in found.items()
        if "/livery/" in path
    }


def played(in_flight: int, seed: int) -> tuple[float, Outside]:
    """Play so many episodes at once; return the seconds of a core, and the outside."""
    chance = Chance(seed)
    outside = Outside(chance, 0.0, LIFETIME_SECONDS)
    tasks = {task.task_id: task for task in _tasks(in_flight, chance)}
    process = Process(outside, "process", OWNER, None, calm=True)
    collect, _ = wired_run(process, tasks, concurrency=in_flight)
    plan = owed(list(tasks), 1, ())
    loop = {"loop_factory": leaping_loop(outside.clock)}
    gc.collect()
    with collected_rarely():  # As in `livery run` and `livery serve`.
        begun = time.process_time()
        anyio.run(collect, plan, backend_options=loop)
        seconds = time.process_time() - begun
    assert len(outside.results.kept) == in_flight, "some have no row"
    assert outside.most_boxes > BOXES_SHARE * in_flight, "they were not there at once"
    assert not outside.faults, outside.faults[0]
    return seconds, outside


def _tasks(count: int, chance: Chance) -> list[Task]:
    return [some_task(number, chance) for number in range(count)]


def main(words: Sequence[str]) -> int:
    """Measure and print; return the exit status."""
    logging.disable(logging.CRITICAL)
    few = int(words[0]) if words else FEW
    many = int(words[1]) if len(words) > 1 else MANY
    # Before and after: who else uses the machine may be another by then.
    rounds = [seconds_of_an_episode(few, seed) for seed in range(ROUNDS)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    of_many = seconds_of_an_episode(many)
    each = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / many
    rounds += [seconds_of_an_episode(few, seed) for seed in range(ROUNDS)]
    of_few = statistics.median(rounds)
    ratio = of_many / of_few
    low, high = 1000 * min(rounds), 1000 * max(rounds)
    print(
        f"{few:9,} in flight: {1000 * of_few:.2f} ms of a core an episode"
        f" ({low:.2f} to {high:.2f} in {len(rounds)} rounds)"
    )
    print(
        f"{many:9,} in flight: {1000 * of_many:.2f} ms of a core an episode,"
        f" {each:.0f} KiB of memory each"
    )
    print(f"ratio {ratio:.2f}, at most {RATIO_MAX}")
    return 0 if ratio <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
