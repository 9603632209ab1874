# SPDX-License-Identifier: Apache-2.0
"""Command lines, as a user types them, and tasks for them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from livery.adapters.journals import open_sqlite_journal
from livery.entrypoints.command_line.main import carry_out
from livery.entrypoints.command_line.shared import Shared

GRADER = 'read -r mark; echo "$mark"; test "$(cat answer 2>/dev/null)" = {answer}'
PROGRAM = "from livery.entrypoints.command_line.main import main; main()"


@attrs.frozen
class Ended:
    """How a command line ended."""

    status: int
    out: str
    err: str


Livery = Callable[..., Ended]


@attrs.frozen
class InProcess:
    """Runs command lines in this process, with a state folder of their own."""

    capsys: pytest.CaptureFixture[str]
    state: Path

    def __call__(self, *words: object) -> Ended:
        self.capsys.readouterr()
        status = carry_out([str(word) for word in words], Shared())
        said = self.capsys.readouterr()
        return Ended(status, said.out, said.err)


def started(
    *words: object, cwd: Path, within: tuple[str, ...] = (), **env: str
) -> "subprocess.Popen[str]":
    """Start a command line as a process of its own, `within` other words."""
    return subprocess.Popen(
        [*within, sys.executable, "-c", PROGRAM, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving_process(what: str, folder: Path) -> Generator["subprocess.Popen[str]"]:
    """Serve by the settings and over the state in `folder`, killed at the latest after.

    Its standard error says where.
    """
    words = ("--config", folder / "livery.toml", "--state", folder / "state")
    with started("serve", what, *words, cwd=folder) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def task(name: str, *, answer: int = 42, **data: Any) -> dict[str, Any]:
    """Return the row of a task whose answer goes into the file `answer`."""
    grader = {"command": ["/bin/sh", "-c", GRADER.format(answer=answer)]}
    return {
        "task_id": {"taskset": "numbers", "task_id": name},
        "task_input": {
            "responses_create_params": {"input": f"Write {answer} into answer."},
            "task_data": {
                "grader": grader,
                "solution": {"files": {"answer": f"{answer}\n"}},
                **data,
            },
        },
    }


def task_file(folder: Path, *rows: object) -> Path:
    """Write a file of tasks."""
    path = folder / "tasks.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the results of a run."""
    text = (folder / "results.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def rewards(folder: Path) -> dict[str, float]:
    """Return the reward of each task, which has one result."""
    graded = [row for row in rows_of(folder) if row["result"] is not None]
    found = {row["task_id"]["task_id"]: row["result"]["reward"] for row in graded}
    assert len(found) == len(graded), "a task was graded twice"
    return found


def sandboxes(state: Path) -> list[str]:
    """Return what is left of local sandboxes."""
    folder = state / "sandboxes"
    return sorted(os.listdir(folder)) if folder.exists() else []


def open_claims(state: Path) -> tuple[str, ...]:
    """Return the ids of the claims that the journal has open."""

    async def read() -> tuple[str, ...]:
        async with open_sqlite_journal(state / "journal.sqlite") as journal:
            return await journal.open_streams("claims")

    return anyio.run(read)
