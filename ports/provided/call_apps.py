# SPDX-License-Identifier: Apache-2.0
"""Carry out one whole call of an app: read its files, call, save its results.

A model's mistakes are told to it in words. A provider that failed is told to nobody
but the log and the verdict: the call fails, and the reward will measure nothing.
"""

import json
import logging
from collections.abc import Awaitable, Mapping
from typing import ClassVar, Final, TypeVar

import attrs

from ...domain.digests import Json
from ..required.apps import Apps, SavedFile, ToolCall, ToolRefused, ToolResult
from ..required.faults import Fault
from ..required.participants import TaskState
from ..required.sandbox import Sandbox
from .session_apps import OpenApps
from .tool_arguments import check_arguments, paths_in
from .workspace_files import read_file, save_file

log = logging.getLogger(__name__)

T = TypeVar("T")

FILES_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that the files of one call may hold together: they are in memory at once."""


@attrs.frozen
class WorkspaceUnavailable(Fault):
    """A call failed through no fault of the agent; the reason is not for it."""

    kind: ClassVar[str] = "workspace_unavailable"
    message: ClassVar[str] = "The service cannot be reached at the moment."

    reason: str = attrs.field(repr=False)
    """For the log and the failure reason alone."""


@attrs.frozen(kw_only=True)
class ToldResult:
    """What the agent is told of a call."""

    told: Json
    saved: tuple[str, ...] = ()
    """The paths of the files that were saved in the workspace."""

    @property
    def words(self) -> Json:
        """Both in one value."""
        if not self.saved:
            return self.told
        known = self.told if isinstance(self.told, Mapping) else {"result": self.told}
        return {**known, "saved": list(self.saved)}


async def call_app(
    opened: OpenApps,
    sandbox: Sandbox | None,
    name: str,
    arguments: Mapping[str, Json],
) -> ToldResult:
    """Carry out a call of the tool `name`.

    Raises:
        ToolRefused: The model's mistake.
        WorkspaceUnavailable: The provider's failure, or the world's.
    """
    tool = opened.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(opened.tools))
        raise ToolRefused(f"There is no {name}; there are {known}.")
    check_arguments(tool, arguments)
    files = await _read_together(sandbox, paths_in(tool, arguments))
    call = ToolCall(tool=name, arguments=arguments, files=files)
    result = await _blamed(_answered(opened.apps, call))
    for file in result.files:
        await save_for_call(sandbox, file)
    return ToldResult(told=result.told, saved=tuple(file.name for file in result.files))


async def state_after(opened: OpenApps) -> TaskState:
    """Return how far the task is; raises `WorkspaceUnavailable`."""
    return await _blamed(opened.apps.state())


async def read_for_call(sandbox: Sandbox | None, path: str) -> bytes:
    """Return what a file of the workspace holds.

    Raises:
        ToolRefused, WorkspaceUnavailable: As they say.
    """
    return await _blamed(read_file(_there(sandbox), path))


async def save_for_call(sandbox: Sandbox | None, file: SavedFile) -> None:
    """Save a file in the workspace.

    Raises:
        ToolRefused, WorkspaceUnavailable: As they say.
    """
    await _blamed(save_file(_there(sandbox), file))


async def _read_together(
    sandbox: Sandbox | None, paths: tuple[str, ...]
) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    size = 0
    for path in paths:
        files[path] = await read_for_call(sandbox, path)
        size += len(files[path])
        if size > FILES_BYTES_MAX:
            told = f"The files of one call may hold {FILES_BYTES_MAX} bytes together."
            raise ToolRefused(told)
    return files


async def _answered(apps: Apps, call: ToolCall) -> ToolResult:
    """Return a call's result, which JSON can write: that is how each way tells it."""
    result = await apps.call(call)
    json.dumps(result.told, ensure_ascii=False, allow_nan=False).encode()
    return result


def _there(sandbox: Sandbox | None) -> Sandbox:
    if sandbox is None:
        raise ToolRefused("There is no workspace with files here.")
    return sandbox


async def _blamed(work: Awaitable[T]) -> T:
    """Return what `work` comes to; what is not the model's mistake is not told to it."""
    try:
        return await work
    except ToolRefused:
        raise
    except Fault as fault:
        raise WorkspaceUnavailable(str(fault)) from fault
    except Exception as error:
        # A world is somebody's code, and may fail in any way; that is not the agent's.
        log.exception("A world failed at a call")
        reason = f"the world failed: {type(error).__name__}: {error}"
        raise WorkspaceUnavailable(reason) from error
