# SPDX-License-Identifier: Apache-2.0
"""The world `desk`: apps over one SQLite file, graded by the state that it ends in.

An office is a file, and so is its beginning beside it. Each call is one transaction:
all of it, or nothing. Nothing is kept open between calls, so an office that nobody
calls costs no memory.
"""

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import attrs

from ....domain.scores import GraderEnd, GraderEvidence
from ....domain.tasks import Task
from ....ports.required.apps import (
    BuildWhere,
    Reaching,
    Tool,
    ToolCall,
    ToolRefused,
    ToolResult,
)
from ....ports.required.harness import PlacedFile
from ....ports.required.participants import TaskState
from ....ports.required.sandbox_provider import SandboxSpec
from ....ports.required.world import GraderPlan, GraderRun, TaskRefused
from ..strict import Mistaken
from . import drive, mail, planning
from .actions import Action, Desk
from .desk_task import Change, DeskTask, to_desk_task
from .grading import differences, faults
from .tables import all_rows, create, insert

NAME: Final = "desk"
SERVER: Final = "office"
OFFICE: Final = "office.sqlite"
BEGINNING: Final = "beginning.sqlite"
ACTIONS: Final[dict[str, Action]] = {
    action.tool.name: action
    for action in (*mail.ACTIONS, *drive.ACTIONS, *planning.ACTIONS)
}


@attrs.frozen
class DeskWorld:
    """The `AppWorld` of a small office."""

    builds: BuildWhere = BuildWhere.LOOP

    @property
    def name(self) -> str:
        """The short word in tasks and configuration."""
        return NAME

    @property
    def server_name(self) -> str:
        """What models see as the name of the tools' server."""
        return SERVER

    def check(self, task: Task) -> None:
        """Raise `TaskRefused`, with every mistake, for a task it cannot build."""
        _read(task)

    def sandbox(self, task: Task, configured: SandboxSpec) -> SandboxSpec | None:
        """Return the configured sandbox: a workspace for files."""
        return configured

    def files(self, task: Task) -> tuple[PlacedFile, ...]:
        """Return what the workspace holds when the agent starts."""
        return tuple(
            PlacedFile(path=path, content=text.encode())
            for path, text in _read(task).files.items()
        )

    def grader(self, task: Task, mark: str) -> GraderPlan | None:
        """Return no plan: the apps are judged, and no command is run."""
        return None

    def evidence(self, task: Task, run: GraderRun | None) -> GraderEvidence:
        """Return that there is nothing to judge without the apps."""
        return GraderEvidence(
            end=GraderEnd.NOT_STARTED, reason="the office's apps were not built"
        )

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """Return what every office has."""
        return tuple(action.tool for action in ACTIONS.values())

    def reaching(self, task: Task) -> Reaching:
        """Return the task's way."""
        read = _read(task)
        return Reaching(way=read.reach, documentation=read.documentation)

    def build(self, task: Task, folder: str) -> None:
        """Write the office into `folder`, and its beginning beside it."""
        office = _read(task).office
        place = Path(folder)
        with closing(sqlite3.connect(place / OFFICE, isolation_level=None)) as made:
            made.execute("PRAGMA synchronous = OFF")
            create(made)
            made.execute("BEGIN")
            made.execute("INSERT INTO office VALUES (?, ?)", (office.me, office.now))
            for table, rows in office.rows.items():
                for number, row in enumerate(rows, 1):
                    insert(made, table, row, number)
            made.execute("COMMIT")
        shutil.copyfile(place / OFFICE, place / BEGINNING)

    async def open(self, task: Task, folder: str) -> "DeskApps":
        """Open the office as it stands."""
        return DeskApps(folder=Path(folder), changes=_read(task).changes)


@attrs.frozen(kw_only=True)
class DeskApps:
    """The apps of one office."""

    folder: Path
    changes: tuple[Change, ...]
    """What is to be different in the end."""

    async def call(self, call: ToolCall) -> ToolResult:
        """Carry out a call in one transaction; raises `ToolRefused`."""
        action = ACTIONS.get(call.tool)
        if action is None:
            raise ToolRefused(f"There is no {call.tool}.")
        with self._open(OFFICE) as office:
            office.execute("BEGIN IMMEDIATE")
            try:
                me, now = office.execute("SELECT me, now FROM office").fetchone()
                desk = Desk(connection=office, me=me, now=now, files=call.files)
                result = action.act(desk, call.arguments)
            except BaseException:
                office.execute("ROLLBACK")
                raise
            revision = _revision(office) + 1
            office.execute(f"PRAGMA user_version = {revision}")
            office.execute("COMMIT")
            return result

    async def state(self) -> TaskState:
        """Tell whether the office is as it is wanted, and how many calls finished."""
        with self._open(OFFICE) as office:
            revision = _revision(office)
        return TaskState(
            complete=bool(self.changes) and not self._faults(), revision=revision
        )

    async def evidence(self) -> GraderEvidence:
        """Judge the office: 1 when it is as it is wanted and nothing else changed."""
        found = self._faults()
        return GraderEvidence(
            end=GraderEnd.ENDED,
            marked=True,
            reward=0.0 if found else 1.0,
            details={"faults": list(found)} if found else {},
        )

    async def close(self) -> None:
        """Let go of nothing: nothing is kept open."""

    def _faults(self) -> tuple[str, ...]:
        with self._open(BEGINNING) as office:
            before = all_rows(office)
        with self._open(OFFICE) as office:
            after = all_rows(office)
            me, now = office.execute("SELECT me, now FROM office").fetchone()
        return faults(differences(before, after), self.changes, me=me, now=now)

    @contextmanager
    def _open(self, name: str) -> Generator[sqlite3.Connection]:
        path = self.folder / name
        # A file that is not there must not be made by looking at it.
        uri = f"{path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, isolation_level=None, uri=True)) as opened:
            opened.execute("PRAGMA synchronous = OFF")
            opened.execute("PRAGMA journal_mode = MEMORY")
            yield opened


def _revision(office: sqlite3.Connection) -> int:
    (revision,) = office.execute("PRAGMA user_version").fetchone()
    return int(revision)


def _read(task: Task) -> DeskTask:
    try:
        return to_desk_task(task.task_data)
    except Mistaken as mistaken:
        lines = "\n".join(f"{path}: {text}" for path, text in mistaken.found)
        raise TaskRefused(task_id=task.task_id.task_id, mistakes=lines) from mistaken
