# SPDX-License-Identifier: Apache-2.0
"""Apps: what a task's world offers to be called, and what the calls leave behind.

An `AppWorld` has apps beside, or instead of, a workspace. They are built from the
task's data into a folder, opened from there as often as need be, called one whole
call at a time, and judged by the state that they end in. How an agent reaches them
is no concern of theirs.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Protocol, TypeGuard

import attrs

from ...domain.digests import Json
from ...domain.scores import GraderEvidence
from ...domain.tasks import Task
from .faults import Fault
from .participants import TaskState
from .world import World


class Reach(StrEnum):
    """How the agent reaches a task's apps."""

    MCP = "mcp"
    """Tools of a server of the Model Context Protocol."""
    COMMANDS = "commands"
    """A command for each app, in the sandbox's shell."""
    ENDPOINTS = "endpoints"
    """HTTP endpoints, which the model looks up with a documentation command."""


@attrs.frozen(kw_only=True)
class Reaching:
    """How one task's apps are reached."""

    way: Reach = Reach.MCP
    documentation: str = "docs"
    """The command that tells of the endpoints, where they are the way."""


class BuildWhere(StrEnum):
    """Where the building of a world runs."""

    LOOP = "loop"
    """In the event loop: for what takes a few milliseconds."""
    THREAD = "thread"
    """For what waits, or leaves the interpreter free."""
    PROCESS = "process"
    """For what computes for long: an interpreter is started for each, and world and task
    are pickled."""


@attrs.frozen(kw_only=True)
class Tool:
    """One thing that an app can be asked to do."""

    app: str
    """A lower-case word; the name of the app's command."""
    action: str
    """Lower-case words, joined by hyphens."""
    description: str
    parameters: Mapping[str, Json]
    """The JSON Schema of an object, with a type for each property."""
    attached: frozenset[str] = frozenset()
    """Parameters whose text, or list of texts, names files of the workspace."""

    @property
    def name(self) -> str:
        """The name in one word."""
        words = f"{self.app}_{self.action}" if self.action else self.app
        return words.replace("-", "_")


@attrs.frozen(kw_only=True)
class SavedFile:
    """A file that a call's result is, or has with it."""

    name: str
    """A relative path below the workspace."""
    content: bytes


@attrs.frozen(kw_only=True)
class ToolCall:
    """One call of one tool."""

    tool: str
    """The tool's name in one word."""
    arguments: Mapping[str, Json]
    files: Mapping[str, bytes] = attrs.field(factory=dict[str, bytes])
    """What the workspace holds under each path that an argument names."""


@attrs.frozen(kw_only=True)
class ToolResult:
    """What a call came to."""

    told: Json
    files: tuple[SavedFile, ...] = ()
    """Saved in the workspace; the agent is told the paths."""


@attrs.frozen
class ToolRefused(Fault):
    """An app cannot do what it was asked; the words are for the model."""

    kind: ClassVar[str] = "call_refused"
    message: ClassVar[str] = "{reason}"

    reason: str


class Apps(Protocol):
    """The apps of one episode, opened. Nothing is called at the same time."""

    async def call(self, call: ToolCall) -> ToolResult:
        """Carry out a call: all of it, or nothing.

        Raises:
            ToolRefused: The model's mistake, in words for it.
        """
        ...

    async def state(self) -> TaskState:
        """Tell how far the task is."""
        ...

    async def evidence(self) -> GraderEvidence:
        """Judge the state that the apps are in."""
        ...

    async def close(self) -> None:
        """Let go of what is open; what stands in the folder stays."""
        ...


class AppWorld(World, Protocol):
    """A world whose tasks have apps."""

    @property
    def server_name(self) -> str:
        """What the server of its tools is called; models see it."""
        ...

    @property
    def builds(self) -> BuildWhere:
        """Where `build` runs."""
        ...

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """Return what the task's apps can be asked."""
        ...

    def reaching(self, task: Task) -> Reaching:
        """Return how the task wants its apps reached."""
        ...

    def build(self, task: Task, folder: str) -> None:
        """Build the apps' beginning into the host's `folder`, which is there and empty."""
        ...

    async def open(self, task: Task, folder: str) -> Apps:
        """Open the apps as they stand in `folder`."""
        ...


def has_apps(world: World) -> TypeGuard[AppWorld]:
    """Tell whether a world's tasks have apps."""
    return all(hasattr(world, name) for name in ("builds", "tools", "build", "open"))
