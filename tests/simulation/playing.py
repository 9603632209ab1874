# SPDX-License-Identifier: Apache-2.0
"""Play many seeds on all cores, and count what went wrong in them."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Final

import attrs

from .simulation import simulate

BATCH: Final = 50
"""How many seeds a process plays at a time."""


@attrs.define
class Tally:
    """What came of some seeds."""

    seeds: int = 0
    episodes: int = 0
    by_routes: int = 0
    """How many of them went through the routes of a server."""
    seconds: float = 0.0
    """Of a core."""
    mishaps: Counter[str] = attrs.field(factory=Counter[str])
    broken: list[tuple[int, str]] = attrs.field(factory=list[tuple[int, str]])
    """Each seed that broke a rule, with the first one."""

    def add(self, other: "Tally") -> None:
        """Count what another one counted as well."""
        self.seeds += other.seeds
        self.episodes += other.episodes
        self.by_routes += other.by_routes
        self.seconds += other.seconds
        self.mishaps.update(other.mishaps)
        self.broken += other.broken

    def __str__(self) -> str:
        rate = self.episodes / self.seconds if self.seconds else 0.0
        share = self.mishaps.total() / max(self.episodes, 1)
        return "\n".join(
            (
                f"{self.seeds:,} seeds, {self.episodes:,} episodes"
                f" ({self.by_routes:,} by the routes),"
                f" {rate:.0f} episodes a second and core,"
                f" {share:.2f} mishaps an episode",
                *(
                    f"{number:12,}  {kind}"
                    for kind, number in self.mishaps.most_common()
                ),
            )
        )


def play(seeds: Iterable[int]) -> Tally:
    """Play seeds one after the other."""
    logging.disable(logging.CRITICAL)
    tally = Tally()
    begun = time.process_time()
    try:
        for seed in seeds:
            story = simulate(seed)
            tally.seeds += 1
            tally.episodes += story.episodes
            tally.by_routes += story.episodes if story.by_routes else 0
            tally.mishaps.update(kind for kind, _ in story.mishaps)
            if story.faults:
                tally.broken.append((seed, story.faults[0]))
    finally:
        logging.disable(logging.NOTSET)
    tally.seconds = time.process_time() - begun
    return tally


def play_on_all_cores(
    seeds: Iterator[int],
    *,
    cores: int,
    until: float | None = None,
    told: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Play seeds until there are none, or until that moment of `time.monotonic`.

    `told` is told the tally each time that it has grown.
    """
    tally = Tally()
    with ProcessPoolExecutor(cores) as pool:
        playing: set[Future[Tally]] = set()
        while True:
            while len(playing) < 2 * cores:
                batch = [seed for _, seed in zip(range(BATCH), seeds, strict=False)]
                if not batch or (until is not None and time.monotonic() > until):
                    break
                playing.add(pool.submit(play, batch))
            if not playing:
                return tally
            done, playing = wait(playing, return_when=FIRST_COMPLETED)
            for future in done:
                tally.add(future.result())
            told(tally)
