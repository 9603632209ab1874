# SPDX-License-Identifier: Apache-2.0
"""Play the simulation.

    python -m tests.simulation SEED…              what happened in each of these
    python -m tests.simulation --seeds 0-9999     all of these, on all cores
    python -m tests.simulation --minutes 10       as many as that takes, from a fresh one

Seeds that once broke a rule are played first. One that breaks a rule is shrunk, told,
and kept; then the exit status is 1.
"""

import argparse
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from .kept_seeds import keep_seed, kept_seeds
from .playing import Tally, play_on_all_cores
from .shrinking import shrunk
from .simulation import simulate

FRESH_MIN: Final = 10**6
FRESH_MAX: Final = 10**12
TOLD_MAX: Final = 3
"""How many broken seeds are shrunk and told."""


def main(words: Sequence[str]) -> int:
    """Play what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("stories", nargs="*", type=int, metavar="SEED")
    parser.add_argument("--seeds", metavar="FIRST-LAST")
    parser.add_argument("--minutes", type=float)
    parser.add_argument(
        "--tell-every", type=int, metavar="SEEDS", help="tell how it stands meanwhile"
    )
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(words)
    for seed in asked.stories:
        print(simulate(seed).told)
    if asked.seeds is None and asked.minutes is None:
        return 0
    begun = time.monotonic()
    until = None if asked.minutes is None else begun + 60 * asked.minutes
    seeds = itertools.chain(kept_seeds(), _seeds(asked.seeds))
    tally = play_on_all_cores(
        seeds, cores=asked.cores, until=until, told=_Progress(asked.tell_every).tell
    )
    print(tally)
    print(f"{time.monotonic() - begun:.0f} s on {asked.cores} cores")
    return _told(tally)


@attrs.define
class _Progress:
    """Tells how it stands each time that so many more seeds were played."""

    every: int | None
    _next: int = 0

    def tell(self, tally: Tally) -> None:
        if self.every is None or tally.seeds < self._next + self.every:
            return
        self._next = tally.seeds // self.every * self.every
        print(f"{time.strftime('%H:%M:%S')}\n{tally}", flush=True)
        for seed, fault in tally.broken:
            print(f"seed {seed}: {fault}", flush=True)


def _seeds(words: str | None) -> Iterator[int]:
    if words is None:
        first = FRESH_MIN + secrets.randbelow(FRESH_MAX)
        print(f"From seed {first} on")
        yield from itertools.count(first)
        return
    begin, _, end = words.partition("-")
    yield from range(int(begin), int(end or begin) + 1)


def _told(tally: Tally) -> int:
    for seed, fault in tally.broken[:TOLD_MAX]:
        keep_seed(seed, fault)
        print(f"\n{shrunk(seed).told}")
    for seed, fault in tally.broken[TOLD_MAX:]:
        print(f"seed {seed}: {fault}")
    broken = len(tally.broken)
    print(f"{broken} seeds broke a rule" if broken else "No rule was broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
