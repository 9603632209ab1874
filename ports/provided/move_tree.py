# SPDX-License-Identifier: Apache-2.0
"""Move a folder of a sandbox as one tar file: out of it, or into another.

Regular files, folders and links are moved with their modes and belong to the
sandbox's user where they arrive. What could not be moved is told in the report.
No link is ever followed, on neither side.
"""

import secrets
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, cast

import anyio
import attrs

from ..required.faults import Fault
from ..required.sandbox import Command, Sandbox, SandboxFailed, SandboxLost
from .sandbox_programs import SandboxProgram, Unreadable, Words

PACK_SECONDS = 900.0
UNPACK_SECONDS = 900.0
TIDY_SECONDS = 30.0


@attrs.frozen
class TreeNotMoved(Fault):
    """A folder could not be packed or unpacked."""

    kind: ClassVar[str] = "tree_not_moved"
    message: ClassVar[str] = "The folder {folder} was not moved: {reason}."

    folder: str
    reason: str
    too_large: bool = attrs.field(default=False, kw_only=True)
    """Whether it holds more than was allowed."""


@attrs.frozen(kw_only=True)
class Skipped:
    """Something that was left out."""

    path: str
    reason: str


@attrs.frozen(kw_only=True)
class TreeReport:
    """What was moved and what was not."""

    files: int
    folders: int
    links: int
    size: int
    """Bytes of content."""
    skipped: tuple[Skipped, ...]
    """The first of what was left out."""
    skipped_count: int


@attrs.frozen(kw_only=True)
class ExportedTree:
    """A folder on its way out."""

    chunks: AsyncIterator[bytes]
    """The tar file."""
    report: TreeReport


@asynccontextmanager
async def export_tree(
    sandbox: Sandbox,
    folder: str,
    *,
    program: bytes,
    bytes_max: int | None = None,
    python: str = "python3",
) -> AsyncGenerator[ExportedTree]:
    """Pack `folder`, an absolute path, and open the tar file for reading.

    A folder that is not there gives an empty tar file, and the report says so.
    `program` is the archive worker script.

    Raises:
        TreeNotMoved: It holds more than `bytes_max`, or the packing failed.
        RuntimeMissing: There is no Python that can pack.
    """
    archive = SandboxProgram(
        sandbox=sandbox, name="archive", text=program, python=python
    )
    tar = _fresh_name(sandbox)
    limit = () if bytes_max is None else ("--bytes-max", str(bytes_max))
    try:
        words = await _ask(
            archive, folder, "pack", folder, tar, *limit, timeout_seconds=PACK_SECONDS
        )
        async with sandbox.get(tar) as chunks:
            yield ExportedTree(chunks=chunks, report=_report_from(words))
    finally:
        await _remove(sandbox, tar)


async def import_tree(
    sandbox: Sandbox,
    folder: str,
    chunks: AsyncIterable[bytes],
    *,
    program: bytes,
    replaces: bool = False,
    keeps_outside_links: bool = True,
    python: str = "python3",
) -> TreeReport:
    """Unpack a tar file into `folder`, an absolute path, which is made if missing.

    With `replaces` the folder holds afterwards what the tar file held and nothing
    else. A link that leads out of the folder is written as it is, or, without
    `keeps_outside_links`, refused like any entry that would be written elsewhere;
    then nothing is written at all.

    Raises:
        TreeNotMoved: An entry was refused, or the unpacking failed.
        RuntimeMissing: There is no Python that can unpack.
    """
    archive = SandboxProgram(
        sandbox=sandbox, name="archive", text=program, python=python
    )
    tar = _fresh_name(sandbox)
    options: list[str] = []
    if replaces:
        options.append("--replace")
    if keeps_outside_links:
        options.append("--keep-outside-links")
    try:
        await sandbox.put(tar, chunks, mode=0o600)
        words = await _ask(
            archive,
            folder,
            "unpack",
            tar,
            folder,
            *options,
            timeout_seconds=UNPACK_SECONDS,
        )
        return _report_from(words)
    finally:
        await _remove(sandbox, tar)


def _fresh_name(sandbox: Sandbox) -> str:
    return f"{sandbox.scratch}/tree-{secrets.token_hex(8)}.tar"


async def _ask(
    archive: SandboxProgram, folder: str, *words: str, timeout_seconds: float
) -> Words:
    try:
        told = await archive.ask(*words, timeout_seconds=timeout_seconds)
    except Unreadable as fault:
        raise TreeNotMoved(folder, str(fault)) from fault
    if told.get("state") not in ("packed", "unpacked"):
        reason, too_large = (
            str(told.get("reason", told)),
            told.get("state") == "too_large",
        )
        raise TreeNotMoved(folder, reason, too_large=too_large)
    return told


async def _remove(sandbox: Sandbox, path: str) -> None:
    """Take the tar file away; where that fails it goes with the sandbox."""
    with anyio.move_on_after(TIDY_SECONDS, shield=True):
        try:
            await sandbox.exec(
                Command(argv=("rm", "-f", path), timeout_seconds=TIDY_SECONDS)
            )
        except (SandboxFailed, SandboxLost):
            return


def _report_from(words: Words) -> TreeReport:
    skipped: list[Skipped] = []
    for item in _items(words.get("skipped")):
        match _items(item):
            case [str(path), str(reason)]:
                skipped.append(Skipped(path=path, reason=reason))
            case other:
                skipped.append(Skipped(path="", reason=str(other)))
    return TreeReport(
        files=_whole(words.get("files")),
        folders=_whole(words.get("folders")),
        links=_whole(words.get("links")),
        size=_whole(words.get("bytes")),
        skipped=tuple(skipped),
        skipped_count=_whole(words.get("skipped_count")),
    )


def _items(found: object) -> list[object]:
    return cast("list[object]", found) if isinstance(found, list) else []


def _whole(found: object) -> int:
    return found if isinstance(found, int) else 0
