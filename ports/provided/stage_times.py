# SPDX-License-Identifier: Apache-2.0
"""How long the stages of an episode took."""

from typing import Final

import attrs

from ...domain.episodes import Episode
from ..required.clock import Clock
from ..required.participants import Turn

ACT: Final = "act"


@attrs.define(kw_only=True)
class StageTimed:
    """Adds the time spent inside the block to a stage, by this process's clock."""

    clock: Clock
    seconds: dict[str, float]
    stage: str
    _since: float = attrs.field(default=0.0, init=False)

    def __enter__(self) -> None:
        """Begin."""
        self._since = self.clock.monotonic()

    def __exit__(self, *_: object) -> None:
        """Count what was spent, also when it failed."""
        spent = self.clock.monotonic() - self._since
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + spent


def count_whole_turn(seconds: dict[str, float], episode: Episode, turn: Turn) -> None:
    """Count what a turn took before this process had it in hand, too.

    What its supervisor told counts, where it told; the journal's times have in them
    how long nobody was there.
    """
    taken, since, ended = turn.seconds, episode.turn_started, episode.turn_ended
    if not taken and since is not None and ended is not None:
        taken = ended - since
    seconds[ACT] = max(seconds.get(ACT, 0.0), taken)
