# SPDX-License-Identifier: Apache-2.0
"""The apps of sessions: built in their turn, opened again after a restart, removed.

Each session has a folder of its own, named by a digest of its id: the apps' state,
and the task that they were built from. A folder that a kill left half-built is built
anew; whether it was built is the journal's to say.
"""

import hashlib
import json
import logging
import pickle
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from ...domain.refusals import Refusal
from ...domain.resources_sessions import ResourcesSessionId
from ...domain.tasks import Task, TaskId
from ..required.apps import Apps, AppWorld, BuildWhere, Reaching, Tool
from ..required.faults import Fault
from .take_turns import TakeTurns

log = logging.getLogger(__name__)

BUILD_SECONDS: Final = 600.0
"""What building one world may take in a thread or process."""
_PROCESS: Final = """
import os, pickle, sys
told = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # What a world prints is no answer.
build, task, folder = pickle.load(sys.stdin.buffer)
try:
    build(task, folder)
    error = None
except Exception as raised:
    error = raised
told.write(pickle.dumps(error))
"""
STATE: Final = "apps"
TASK: Final = "task.json"


@attrs.frozen
class AppsUnusable(Fault):
    """The folder of a session's apps cannot be written or read."""

    kind = "apps_unusable"
    message = "The apps of session {session} cannot be used: {reason}."

    session: str
    reason: str


@attrs.frozen(kw_only=True)
class OpenApps:
    """A session's apps, open in this process."""

    apps: Apps
    tools: dict[str, Tool]
    """By name in one word."""
    reaching: Reaching


@attrs.frozen(kw_only=True)
class SessionApps:
    """Builds, opens and removes apps below one folder."""

    world: AppWorld
    folder: Path
    turns: TakeTurns
    build_seconds: float = BUILD_SECONDS

    async def build(self, session: ResourcesSessionId, task: Task) -> OpenApps:
        """Build the session's apps anew, in their turn, and open them.

        Raises:
            AppsUnusable: The folder cannot be written, or the world failed.
            TaskRefused: The world cannot build this.
        """
        home = self._home(session)
        with _blamed(session):
            await anyio.to_thread.run_sync(_made_anew, home, _to_text(task))
            await self.turns(partial(self._build, session, task, home / STATE))
            return await self._opened(task, home / STATE)

    def stands(self, session: ResourcesSessionId) -> bool:
        """Tell whether something of the session stands below this folder."""
        return self._home(session).exists()

    async def reopen(self, session: ResourcesSessionId) -> tuple[Task, OpenApps]:
        """Open what stands there, and return the task that it was built from.

        Raises:
            AppsUnusable: Nothing that can be read stands there.
        """
        home = self._home(session)
        with _blamed(session):
            text = await anyio.Path(home / TASK).read_text(encoding="utf-8")
            task = _from_text(text)
            return task, await self._opened(task, home / STATE)

    async def remove(self, session: ResourcesSessionId) -> None:
        """Remove whatever stands there."""
        remove = partial(shutil.rmtree, self._home(session), ignore_errors=True)
        await anyio.to_thread.run_sync(remove)

    async def _build(
        self, session: ResourcesSessionId, task: Task, folder: Path
    ) -> None:
        if self.world.builds is BuildWhere.LOOP:
            self.world.build(task, str(folder))
            return
        with anyio.move_on_after(self.build_seconds) as bound:
            if self.world.builds is BuildWhere.THREAD:
                # A thread cannot be ended; one that hangs must not hold up the queue.
                await anyio.to_thread.run_sync(
                    self.world.build, task, str(folder), abandon_on_cancel=True
                )
            else:
                await _in_a_process(self.world.build, task, str(folder))
        if bound.cancelled_caught:
            told = f"the world was not built within {self.build_seconds:g} seconds"
            raise AppsUnusable(session, told)

    async def _opened(self, task: Task, folder: Path) -> OpenApps:
        return OpenApps(
            apps=await self.world.open(task, str(folder)),
            tools={tool.name: tool for tool in self.world.tools(task)},
            reaching=self.world.reaching(task),
        )

    def _home(self, session: ResourcesSessionId) -> Path:
        return self.folder / hashlib.sha256(session.encode()).hexdigest()[:32]


async def close_apps(opened: OpenApps) -> None:
    """Close a session's apps; that a world fails at it keeps no session open."""
    try:
        await opened.apps.close()
    except Exception:
        log.exception("A world failed at closing its apps")


@contextmanager
def _blamed(session: ResourcesSessionId) -> Generator[None]:
    """Raise `AppsUnusable` for whatever fails that is not told in words of ours."""
    try:
        yield
    except (Fault, Refusal):
        raise
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise AppsUnusable(session, reason) from error
    except Exception as error:
        # A world is somebody's code, and may fail in any way.
        log.exception("The apps of a session failed")
        reason = f"{type(error).__name__}: {error}"
        raise AppsUnusable(session, reason) from error


async def _in_a_process(
    build: Callable[[Task, str], None], task: Task, folder: str
) -> None:
    """Run a build in an interpreter of its own, which ends with it."""
    work = pickle.dumps((build, task, folder))
    argv = [sys.executable, "-c", _PROCESS]
    ended = await anyio.run_process(argv, input=work, stderr=None, check=False)
    if ended.returncode != 0:
        raise OSError(f"the building process ended with {ended.returncode}")
    error = pickle.loads(ended.stdout)
    if isinstance(error, BaseException):
        raise error


def _made_anew(home: Path, task: str) -> None:
    if home.exists():
        shutil.rmtree(home)
    home.mkdir(parents=True, mode=0o700)
    (home / STATE).mkdir()
    (home / TASK).write_text(task, encoding="utf-8")


def _to_text(task: Task) -> str:
    return json.dumps(
        {
            "taskset": task.task_id.taskset,
            "task_id": task.task_id.task_id,
            "task_data": task.task_data,
        }
    )


def _from_text(text: str) -> Task:
    """Return the task as it was seeded; the agent's request was no part of that."""
    kept = json.loads(text)
    return Task(
        task_id=TaskId(kept["taskset"], kept["task_id"]),
        responses_create_params={},
        task_data=kept["task_data"],
    )
