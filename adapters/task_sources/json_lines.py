# SPDX-License-Identifier: Apache-2.0
"""Tasks as JSON Lines: NeMo Gym's materialised rows, one a line.

A row is `{"task_id": {"taskset", "task_id"}, "task_input": {"responses_create_params",
"task_data"}}`. Keys beside those two inside `task_input` merge into `task_data`. The
whole file is checked before the first task is told, and its mistakes are told
together. No more than one line and the ids are held in memory.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

import attrs

from ...domain.tasks import Task, TaskId
from ...ports.required.harness import PlacedFile
from ...ports.required.task_source import NoSolution, TasksRefused
from ...ports.required.world import SolvedWorld, TaskRefused, World
from .json_rows import Row, RowRefused, to_row

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
MISTAKES_TOLD_MAX: Final = 20

Version = tuple[int, int, int, int]
"""What tells one state of a file from another."""


@attrs.frozen(kw_only=True)
class _Line:
    number: int
    offset: int
    """Where it begins, in bytes."""
    content: bytes


@attrs.frozen(kw_only=True)
class _Checked:
    version: Version
    places: dict[TaskId, tuple[int, int]]
    """Number and offset of the line of each task."""


@attrs.define
class JsonLinesTasks:
    """The tasks of one file as a `TaskSource`, with their `Solutions`."""

    path: Path
    world: World
    """Which knows what a task may hold, and perhaps what in it is the solution."""
    _checked: _Checked | None = attrs.field(default=None, init=False)

    @property
    def name(self) -> str:
        """What the set is called in results: the file's name without its ending."""
        return self.path.stem

    def tasks(self) -> Iterator[Task]:
        """Tell the tasks in the order of the lines.

        Raises:
            TasksRefused: With the mistakes of the whole file.
        """
        return self._told(self._check())

    def solution(self, task: TaskId) -> tuple[PlacedFile, ...]:
        """Return the files that solve the task.

        Raises:
            NoSolution: There is no such task, or it carries none.
            TasksRefused: With the mistakes of the whole file.
        """
        checked = self._check()
        place = checked.places.get(task)
        if place is None or not hasattr(self.world, "solution"):
            raise NoSolution(taskset=task.taskset, task_id=task.task_id)
        number, offset = place
        with self._open() as file:
            file.seek(offset)
            content = file.readline(LINE_BYTES_MAX + 1)
        line = _Line(number=number, offset=offset, content=content)
        # An extra ability, which the protocols keep apart.
        return cast("SolvedWorld", self.world).solution(self._task(line, checked))

    def place(self, task: TaskId) -> str:
        """Return the line of a task; empty for one that is not there.

        Raises:
            TasksRefused: With the mistakes of the whole file.
        """
        found = self._check().places.get(task)
        return "" if found is None else f"line {found[0]}"

    def _told(self, checked: _Checked) -> Iterator[Task]:
        left = len(checked.places)
        with self._open() as file:
            for line in _lines(file):
                if line.content.strip():
                    yield self._task(line, checked)
                    left -= 1
        if left:
            # It was cut off since; a run of fewer tasks would look whole.
            told = f"the file was changed while it was read: {left} tasks are gone"
            raise TasksRefused(where=str(self.path), mistakes=told)

    def _task(self, line: _Line, checked: _Checked) -> Task:
        """Read a line that was checked; the file may have changed since."""
        try:
            row = to_row(line.content)
        except RowRefused as refused:
            raise self._changed(line) from refused
        if checked.places.get(row.task.task_id) != (line.number, line.offset):
            raise self._changed(line)
        return row.task

    def _changed(self, line: _Line) -> TasksRefused:
        mistakes = f"line {line.number}: the file was changed while it was read"
        return TasksRefused(where=str(self.path), mistakes=mistakes)

    def _check(self) -> _Checked:
        with self._open() as file:
            version = _version(file)
            if self._checked is None or self._checked.version != version:
                places = self._places(file)
                self._checked = _Checked(version=version, places=places)
        return self._checked

    def _places(self, file: BinaryIO) -> dict[TaskId, tuple[int, int]]:
        mistakes = _Mistakes()
        places: dict[TaskId, tuple[int, int]] = {}
        blank: int | None = None
        for line in _lines(file):
            if not line.content.strip():
                blank = blank or line.number
                continue
            if blank is not None:
                mistakes.add(blank, ["is blank, must be a JSON object"])
                blank = None
            if len(line.content) > LINE_BYTES_MAX:
                mistakes.add(line.number, [f"has more than {LINE_BYTES_MAX} bytes"])
                continue
            try:
                row = to_row(line.content)
            except RowRefused as refused:
                mistakes.add(line.number, self._all_of(refused))
                continue
            found = self._of_task(row)
            if (before := places.get(row.task.task_id)) is not None:
                found.append(f"task_id: is that of line {before[0]} too, must be new")
            else:
                places[row.task.task_id] = (line.number, line.offset)
            mistakes.add(line.number, found)
        if not places and not mistakes.count:
            mistakes.add(1, ["holds no task, must hold one JSON object a line"])
        if mistakes.count:
            raise TasksRefused(where=str(self.path), mistakes=mistakes.text())
        return places

    def _all_of(self, refused: RowRefused) -> list[str]:
        """Tell what is wrong with the row, and with its task where it has one."""
        told = [f"{path}: {text}" if path else text for path, text in refused.mistakes]
        if refused.row is None:
            return told
        paths = {path for path, _ in refused.mistakes}
        beyond = self._of_task(refused.row)
        return told + [text for text in beyond if text.partition(": ")[0] not in paths]

    def _of_task(self, row: Row) -> list[str]:
        try:
            self.world.check(row.task)
        except TaskRefused as refused:
            return [row.placed(mistake) for mistake in refused.mistakes.splitlines()]
        return []

    def _open(self) -> BinaryIO:
        try:
            # A pipe that nobody writes to must not be waited for.
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            reason = error.strerror or str(error)
            mistakes = f"cannot be read: {reason}; must be a file of JSON Lines"
            raise TasksRefused(where=str(self.path), mistakes=mistakes) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            mistakes = "is no regular file, must be a file of JSON Lines"
            raise TasksRefused(where=str(self.path), mistakes=mistakes)
        return os.fdopen(fd, "rb")


@attrs.define
class _Mistakes:
    """Mistakes with their lines; the first ones are kept, all are counted."""

    count: int = 0
    _told: list[str] = attrs.field(factory=list[str], init=False)

    def add(self, line: int, mistakes: list[str]) -> None:
        self.count += len(mistakes)
        room = max(0, MISTAKES_TOLD_MAX - len(self._told))
        self._told += [f"line {line}: {mistake}" for mistake in mistakes[:room]]

    def text(self) -> str:
        more = self.count - len(self._told)
        return "\n".join([*self._told, *([f"and {more} more"] if more else [])])


def _lines(file: BinaryIO) -> Iterator[_Line]:
    """Read line by line; a line that is too long is cut, and read to its end."""
    number, offset = 0, 0
    while content := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        yield _Line(number=number, offset=offset, content=content)
        offset += len(content)
        while not content.endswith(b"\n") and content:
            content = file.readline(LINE_BYTES_MAX)
            offset += len(content)


def _version(file: BinaryIO) -> Version:
    found = os.fstat(file.fileno())
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
