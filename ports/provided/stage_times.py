# SPDX-License-Identifier: Apache-2.0
"""How long the stages of an episode took, by this process's clock."""

import attrs

from ..required.clock import Clock


@attrs.define(kw_only=True)
class StageTimed:
    """Adds the time spent inside the block to a stage of `seconds`."""

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
