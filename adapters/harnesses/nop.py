# SPDX-License-Identifier: Apache-2.0
"""The harness `nop` does nothing: what a task is worth when nobody works on it.

It takes any request, since it reads none.
"""

from typing import Final

import attrs

from ...ports.required.harness import Capture, HarnessRequest, Launch, Place, Reading
from ...ports.required.sandbox_provider import Capabilities
from .readings import reading_without_run

NAME: Final = "nop"


@attrs.frozen
class NopHarness:
    """The `Harness` that does nothing."""

    @property
    def name(self) -> str:
        """The short word in configuration, results and messages."""
        return NAME

    @property
    def stepwise(self) -> bool:
        """One activation is all there is."""
        return False

    @property
    def needs(self) -> Capabilities:
        """It needs nothing."""
        return frozenset()

    def check(self, request: HarnessRequest) -> None:
        """Accept every request."""

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Put nothing down and run nothing."""
        return Launch()

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Say that nothing was done."""
        return reading_without_run(NAME, capture, "Nothing was done.")
