# SPDX-License-Identifier: Apache-2.0
"""The harness `oracle` puts down the task's reference solution.

It shows that tasks can be solved and that graders let right work pass. It takes any
conversation, since it reads none; a task without a solution is refused.
"""

from typing import Final

import attrs

from ...ports.required.harness import (
    Capture,
    HarnessRequest,
    Launch,
    Place,
    PlacedFile,
    Reading,
    RequestRefused,
)
from ...ports.required.sandbox_provider import Capabilities
from ...ports.required.task_source import NoSolution, Solutions
from .readings import reading_without_run

NAME: Final = "oracle"


@attrs.frozen
class OracleHarness:
    """The `Harness` that knows the answers."""

    solutions: Solutions

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
        """Files are all it needs, and every sandbox holds files."""
        return frozenset()

    def check(self, request: HarnessRequest) -> None:
        """Raise `RequestRefused` for a task without a reference solution."""
        self._solution(request)

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Put the solution's files into the workspace and run nothing."""
        return Launch(files=self._solution(request))

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Say that the solution was applied."""
        return reading_without_run(NAME, capture, "The reference solution was applied.")

    def _solution(self, request: HarnessRequest) -> tuple[PlacedFile, ...]:
        try:
            return self.solutions.solution(request.task)
        except NoSolution as missing:
            raise RequestRefused(
                harness=NAME, field="task_id", reason=str(missing)
            ) from missing
