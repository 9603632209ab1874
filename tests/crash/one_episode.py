# SPDX-License-Identifier: Apache-2.0
"""One episode by `livery run` on a real engine, to be cut off and begun again.

The harness's command counts its own starts in a mounted file, which no code of ours
writes. What came of the whole is an `End`, equal for all courses that ended well.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from livery.adapters.docker_engine.container_config import OWNER
from livery.adapters.journals import open_sqlite_journal
from livery.ports.required.journal import Journal

from ..docker_engine.raw_engine import labelled
from ..journals.open_streams import still_open
from .doomed_livery import EACH
from .forks import LIFE_SECONDS_MAX, ROOT, Forks

GRADER: Final = (
    'read -r mark; test "$(cat answer.txt)" = 42; status=$?; echo "$mark"; exit $status'
)
SOLVE: Final = (
    'echo "$LIVERY_EPISODE" >> /shared/starts; printf 42 > answer.txt; echo done'
)
TASK: Final[Mapping[str, Any]] = {
    "task_id": {"taskset": "crash", "task_id": "0"},
    "task_input": {
        "responses_create_params": {"input": "Write 42 into answer.txt."},
        "task_data": {
            "files": {"answer.txt": "?"},
            "grader": {"files": {}, "command": ["sh", "-c", GRADER]},
        },
    },
}

Fates = Mapping[str, Sequence[str]]
"""What happens at which points."""
NO_FATES: Final[Fates] = {}
OpenJournal = Callable[[], AbstractAsyncContextManager[Journal]]


@attrs.frozen(kw_only=True)
class End:
    """What is the same however a run came to its end."""

    graded: tuple[tuple[object, ...], ...]
    """Each task with a result, and what counts of it."""
    starts_of_one: tuple[int, ...]
    """How often each activation started that started at all."""
    on_engine: tuple[str, ...]
    """What the engine has with our owner's label."""
    still_open: tuple[str, ...]
    """The journal's streams that have not ended."""


@attrs.frozen(kw_only=True)
class Ended:
    """How a process ended, and what it said."""

    status: int
    said: str


@attrs.frozen(kw_only=True)
class OneEpisode:
    """The folders of a run of one task."""

    folder: Path
    image: str
    settings: tuple[str, ...] = ()
    """Words that name a settings file, where there is one."""
    journal: OpenJournal | None = None
    """Opens a journal that is no file of the state folder."""
    forks: Forks | None = None
    """What begins its processes quicker, where there are many."""
    disk: Path | None = None
    """Where the state folder is, when it is apart."""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def state(self) -> Path:
        return (self.disk or self.folder) / "state"

    @property
    def notes(self) -> list[str]:
        """The points that the last process passed, or all that were struck in turn."""
        return lines_of(self.folder / "notes")

    @property
    def starts(self) -> list[str]:
        """A line with the episode's key for each start of the harness."""
        return lines_of(self.folder / "shared" / "starts")

    def prepare(self) -> None:
        """Write the task down, and make the folder that is mounted."""
        (self.folder / "shared").mkdir(parents=True)
        (self.folder / "tasks.jsonl").write_text(f"{json.dumps(TASK)}\n")

    def begin(self, fates: Fates = NO_FATES) -> Ended:
        """Run it to its end, or to what happens at some points."""
        mount = f"{self.folder / 'shared'}:/shared:rw"
        return self._livery(
            fates,
            *("run", str(self.folder / "tasks.jsonl"), "--out", str(self.out)),
            *("--harness", "command", "--command", SOLVE),
            *("--sandbox", "docker", "--image", self.image, "--mount", mount),
            *self.settings,
        )

    def again(self, fates: Fates = NO_FATES, *more: str) -> Ended:
        """Do what a user does next: go on with the run, or begin it when it had not."""
        if not (self.out / "run.json").exists():
            return self.begin(fates)
        return self._livery(fates, "run", "--resume", str(self.out), *more)

    def reap(self) -> Ended:
        """Give back what nobody uses."""
        return self._livery(NO_FATES, "claims", "reap", *self.settings)

    def end(self) -> End:
        """Look at what came of it."""
        graded = [row for row in self.rows() if row["result"] is not None]
        return End(
            graded=tuple(sorted(_counted(row) for row in graded)),
            starts_of_one=tuple(sorted(set(Counter(self.starts).values()))),
            on_engine=self.on_engine(),
            still_open=anyio.run(self._still_open),
        )

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in lines_of(self.out / "results.jsonl")]

    def on_engine(self) -> tuple[str, ...]:
        """Return what the engine has of ours."""
        owner = self.state / "owner"
        if not owner.exists():
            return ()  # Nothing can have been made in its name.
        return labelled(f"{OWNER}={owner.read_text().strip()}")

    async def _still_open(self) -> tuple[str, ...]:
        opened = self.journal or (
            lambda: open_sqlite_journal(self.state / "journal.sqlite")
        )
        async with opened() as journal:
            return await still_open(journal)

    def _livery(self, fates: Fates, *words: str) -> Ended:
        if EACH not in fates:
            (self.folder / "notes").unlink(missing_ok=True)
        all_words = [
            *(str(self.folder / "notes"), json.dumps(fates)),
            *(str(self.out), str(self.state)),
            *("--", *words, "--state", str(self.state)),
        ]
        log = self.folder / "log"
        if self.forks is not None:
            status = self.forks.run(all_words, log)
        else:
            with log.open("w") as said:
                status = subprocess.run(
                    [sys.executable, "-m", "tests.crash.doomed_livery", *all_words],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                    timeout=LIFE_SECONDS_MAX,
                    check=False,
                ).returncode
        return Ended(status=status, said=log.read_text())


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; none where it has not been written yet."""
    return path.read_text().splitlines() if path.exists() else []


def _counted(row: dict[str, Any]) -> tuple[object, ...]:
    result = row["result"]
    texts = [
        part.get("text", "")
        for item in result["response"]["output"]
        for part in item.get("content") or ()
    ]
    return (
        row["task_id"]["task_id"],
        result["reward"],
        result["mask_sample"],
        result["failure_kind"],
        result["response"]["status"],
        tuple(texts),
    )
