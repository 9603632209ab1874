# SPDX-License-Identifier: Apache-2.0
"""The worker script that keeps a sandbox's programs: what it is asked, what it says."""

import json
import posixpath
from typing import Final, cast

import attrs

from ...domain.platforms import Place, read_place
from ...domain.runtimes import Runtime, Stager
from ..required.runtime_source import PackedRuntime
from ..required.sandbox import FileForbidden, Sandbox
from .runtime_faults import RuntimeRejected, RuntimeTooLarge
from .sandbox_programs import SandboxProgram, Unreadable, Words
from .send_parts import PART_BYTES

NAME: Final = "runtimes"
FOLDER: Final = ".runtimes"
LOOK_SECONDS: Final = 60.0
CHECK_SECONDS: Final = 300.0
UNPACK_SECONDS: Final = 1800.0
"""With the coming of the parts, which are put together as they come."""
STALL_SECONDS: Final = 300.0
"""How long the script waits for a part."""
WAIT_SECONDS: Final = 5.0
"""How long the script waits for another stager before it tells of it."""
STALE_SECONDS: Final = 120.0
"""How long a stager may be silent before another takes over."""

Identity = tuple[int, ...]


@attrs.frozen(kw_only=True)
class Found:
    """A program that stands in the sandbox."""

    path: str
    identity: Identity
    sha256: str | None
    """None when it is the one that is known, so that it was not read."""
    version: str


@attrs.frozen(kw_only=True)
class Begun:
    """We stage; `present` are the parts that are there already."""

    folder: str
    present: tuple[int, ...]


@attrs.frozen
class Busy:
    """Another stages."""

    stager: Stager


@attrs.frozen(kw_only=True)
class RuntimeCalls:
    """The script in one sandbox."""

    hands: SandboxProgram
    name: str
    version: str

    async def look(self) -> Place:
        """Return what the sandbox is.

        Raises:
            PlatformUnknown: What it says is not understood.
        """
        words = await self._ask("look", {}, LOOK_SECONDS)
        return read_place(
            name=self.name,
            system=self._text(words, "system"),
            machine=self._text(words, "machine"),
            libc=self._text(words, "libc"),
        )

    async def check(self, path: str, sha256: str, known: Identity | None) -> Found:
        """Return what stands under `path`; what is `known` is not read again.

        Raises:
            RuntimeRejected: There is none, or it does not run.
        """
        words: Words = {"path": path, "sha256": sha256, "known": known}
        told = await self._ask("check", words, CHECK_SECONDS)
        return self._found(told, path)

    async def begin(
        self, staging: Words, known: Identity | None
    ) -> Found | Begun | Busy:
        """Become the stager, unless it is installed, or another stages.

        Raises:
            RuntimeTooLarge: There is no room for it.
            FileForbidden: The folder for programs cannot be used.
        """
        words = {**staging, "known": known, "wait_seconds": WAIT_SECONDS}
        told = await self._ask("begin", words, CHECK_SECONDS + WAIT_SECONDS)
        match told["state"]:
            case "begun":
                present = cast("list[int]", told.get("present", []))
                folder = self._text(told, "parts")
                return Begun(folder=folder, present=tuple(present))
            case "busy":
                return Busy(Stager(self._text(told, "stager")))
            case _:
                return self._found(told, self._text(told, "path"))

    async def unpack(self, staging: Words) -> tuple[str, str] | None:
        """Return sha256 and version of what the parts hold; None for a lost claim."""
        told = await self._ask("unpack", staging, UNPACK_SECONDS)
        if told["state"] in ("not_the_stager", "busy"):
            return None
        if told["state"] != "unpacked":
            raise self._refused(told, str(staging["program"]))
        return self._text(told, "sha256"), _version(self._text(told, "version"))

    async def install(self, staging: Words) -> tuple[str, Identity] | None:
        """Return path and identity of the installed program; None for a lost claim."""
        told = await self._ask("install", staging, LOOK_SECONDS)
        if told["state"] in ("not_the_stager", "busy"):
            return None
        if told["state"] != "installed":
            raise self._refused(told, str(staging["program"]))
        return self._text(told, "path"), _identity(told)

    async def abandon(self, staging: Words, *, keeps_parts: bool) -> None:
        """Stage no more."""
        words = {**staging, "keeps_parts": keeps_parts}
        await self._ask("abandon", words, LOOK_SECONDS)

    async def _ask(self, call: str, words: Words, seconds: float) -> Words:
        text = json.dumps(words).encode()
        try:
            told = await self.hands.ask(call, timeout_seconds=seconds, stdin=text)
        except Unreadable as fault:
            raise self.hands.failed(f"{call} a program", str(fault)) from fault
        if not isinstance(told.get("state"), str):
            raise self.hands.failed(f"{call} a program", "its answer has no state")
        return told

    def _found(self, told: Words, path: str) -> Found:
        if told["state"] not in ("found", "known"):
            raise self._refused(told, path)
        sha256 = told.get("sha256")
        return Found(
            path=path,
            identity=_identity(told),
            sha256=sha256 if isinstance(sha256, str) else None,
            version=_version(str(told.get("version", ""))),
        )

    def _refused(self, told: Words, path: str) -> Exception:
        where = str(told.get("path") or path)
        reason = str(told.get("reason", "there is none"))
        match told["state"]:
            case "full":
                return RuntimeTooLarge(self.name, self.version, where, reason)
            case "forbidden":
                return FileForbidden(where, reason)
            case "missing" | "not_run" | "damaged":
                return RuntimeRejected(self.name, self.version, where, reason)
            case state:
                return self.hands.failed("install a program", f"it answers {state!r}")

    def _text(self, words: Words, key: str) -> str:
        found = words.get(key, "")
        if not isinstance(found, str):
            raise self.hands.failed("read its answer", f"{key} is no text")
        return found


def staging_words(
    sandbox: Sandbox, runtime: Runtime, packed: PackedRuntime, *, stager: Stager
) -> Words:
    """Return what the script is told of a program that is to be brought."""
    return {
        # Beside the scratch folders, each of which is one claim's or borrower's alone.
        "root": posixpath.join(posixpath.dirname(sandbox.scratch), FOLDER),
        "folder": f"{runtime.name}-{runtime.version}",
        "program": packed.program,
        "sha256": runtime.sha256,
        "size": packed.size,
        "offset": packed.offset,
        "packed_size": packed.packed_size,
        "packed_sha256": packed.packed_sha256,
        "chunk_bytes": PART_BYTES,
        "stager": stager,
        "stale_seconds": STALE_SECONDS,
        "stall_seconds": STALL_SECONDS,
    }


def _version(line: str) -> str:
    """Return the version in "2.1.332 (Claude Code)"."""
    return line.split(" ")[0]


def _identity(told: Words) -> Identity:
    return tuple(cast("list[int]", told.get("identity", [])))
