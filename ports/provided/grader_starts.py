# SPDX-License-Identifier: Apache-2.0
"""Graders that did not start, and whether the agent is why.

It is where what they need stood there before the agent began, and was seen gone or
changed after: the working folder, or a program among the task's own files. Anything else,
a program that no image has say, may be the task's mistake, and measures nothing.
"""

import posixpath
from collections.abc import Iterable
from typing import Final

from ..required.harness import PlacedFile
from ..required.sandbox import (
    FileForbidden,
    FileKind,
    FileMissing,
    NotAFile,
    PathRefused,
    Sandbox,
    TransferCut,
)
from ..required.world import GraderPlan, GradeWhere

_EXECUTABLE: Final = 0o111
_NOT_THERE: Final = (FileMissing, FileForbidden, NotAFile, PathRefused, TransferCut)


async def taken_from(
    plan: GraderPlan, sandbox: Sandbox, at_start: Iterable[PlacedFile]
) -> str:
    """Return what an agent took from a grader that did not start; empty for nothing.

    `at_start` is what the task had put into the workspace.

    Raises:
        Fault: As `Sandbox.stat` and `Sandbox.get` say of the sandbox.
    """
    # A fresh sandbox has a working folder of its own.
    is_agents_own = plan.where is GradeWhere.SAME
    if is_agents_own and (taken := await folder_taken(sandbox)):
        return taken
    program = plan.command.argv[0]
    return await _program_spoilt(
        sandbox, program, at_start=at_start, laid_over=plan.files
    )


async def folder_taken(sandbox: Sandbox) -> str:
    """Return that the working folder is gone, in words; empty where it stands.

    Raises:
        Fault: As `Sandbox.stat` says of the sandbox.
    """
    try:
        found = await sandbox.stat(sandbox.workdir)
    except FileMissing:
        return "the agent took the working folder away"
    except (FileForbidden, PathRefused):
        return ""  # It may be there.
    if found.kind is FileKind.FOLDER:
        return ""
    return "the agent put something else in place of the working folder"


async def _program_spoilt(
    sandbox: Sandbox,
    program: str,
    *,
    at_start: Iterable[PlacedFile],
    laid_over: Iterable[PlacedFile],
) -> str:
    """Return that a program is not any more what the task put there, in words.

    Empty where it is, and where the task put none there, or none that can be started.
    What is `laid_over` at grading is not the agent's.
    """
    path = _below_workdir(sandbox, program)
    if path is None or any(file.path == path for file in laid_over):
        return ""
    placed = next((file for file in at_start if file.path == path), None)
    if placed is None or not placed.mode & _EXECUTABLE:
        return ""
    if await _is_as_placed(sandbox, placed):
        return ""
    return f"the agent removed or changed the grader's program {path}"


def _below_workdir(sandbox: Sandbox, program: str) -> str | None:
    """Return where in the working folder a program lies; None for any other."""
    if "/" not in program:
        return None  # It is looked for among the image's.
    path = posixpath.normpath(posixpath.join(sandbox.workdir, program))
    above = f"{posixpath.normpath(sandbox.workdir)}/"
    return path.removeprefix(above) if path.startswith(above) else None


async def _is_as_placed(sandbox: Sandbox, placed: PlacedFile) -> bool:
    content = bytearray()
    try:
        found = await sandbox.stat(placed.path)
        if found.kind is not FileKind.FILE or not found.mode & _EXECUTABLE:
            return False
        async with sandbox.get(placed.path) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > len(placed.content):
                    return False
    except _NOT_THERE:
        return False
    return bytes(content) == placed.content
