# SPDX-License-Identifier: Apache-2.0
"""The world `till`: an app that keeps a sum, and tasks that want a certain one."""

from pathlib import Path

import attrs

from livery.domain.scores import GraderEnd, GraderEvidence
from livery.domain.tasks import Task
from livery.entrypoints.plug_ins import WorldPlugIn
from livery.ports.required.apps import (
    BuildWhere,
    Reach,
    Reaching,
    Tool,
    ToolCall,
    ToolRefused,
    ToolResult,
)
from livery.ports.required.harness import PlacedFile
from livery.ports.required.participants import TaskState
from livery.ports.required.sandbox_provider import SandboxSpec
from livery.ports.required.world import GraderPlan, GraderRun, TaskRefused

ADD = Tool(
    app="till",
    action="add",
    description="Adds to the sum.",
    parameters={
        "type": "object",
        "properties": {"amount": {"type": "integer", "description": "how much"}},
        "required": ["amount"],
    },
)


@attrs.frozen
class TillApps:
    """One till, which is a file with its calls."""

    folder: Path
    wanted: int

    async def call(self, call: ToolCall) -> ToolResult:
        """Add an amount."""
        amount = call.arguments["amount"]
        if not isinstance(amount, int) or amount < 1:
            raise ToolRefused("Amounts are 1 or more.")
        with (self.folder / "till").open("a") as till:
            till.write(f"{amount}\n")
        return ToolResult(told={"sum": sum(self._amounts)})

    async def state(self) -> TaskState:
        """Tell whether the sum is the wanted one."""
        amounts = self._amounts
        return TaskState(complete=sum(amounts) == self.wanted, revision=len(amounts))

    async def evidence(self) -> GraderEvidence:
        """Judge the sum."""
        reward = float(sum(self._amounts) == self.wanted)
        return GraderEvidence(end=GraderEnd.ENDED, marked=True, reward=reward)

    async def close(self) -> None:
        """Let go of nothing."""

    @property
    def _amounts(self) -> list[int]:
        return [int(line) for line in (self.folder / "till").read_text().split()]


@attrs.frozen
class TillWorld:
    """Tasks with one key, `sum`."""

    name: str = "till"
    server_name: str = "shop"
    builds: BuildWhere = BuildWhere.LOOP

    def check(self, task: Task) -> None:
        """Refuse a task without a sum."""
        if not isinstance(task.task_data.get("sum"), int):
            told = "task_data.sum: must be a whole number"
            raise TaskRefused(task_id=task.task_id.task_id, mistakes=told)

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        """Need none."""
        return None

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        """Bring none."""
        return ()

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        """Run none."""
        return None

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        """Judge nothing without the till."""
        return GraderEvidence(end=GraderEnd.NOT_STARTED)

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """Add, and no more."""
        return (ADD,)

    def reaching(self, task: Task) -> Reaching:
        """Be reached over MCP."""
        return Reaching(way=Reach.MCP)

    def build(self, task: Task, folder: str) -> None:
        """Begin with nothing in it."""
        (Path(folder) / "till").write_text("")

    async def open(self, task: Task, folder: str) -> TillApps:
        """Open the till as it stands."""
        wanted = task.task_data["sum"]
        assert isinstance(wanted, int), "the task was checked"
        return TillApps(Path(folder), wanted)


PLUG_IN = WorldPlugIn(make=lambda surroundings: TillWorld())
