# SPDX-License-Identifier: Apache-2.0
"""Worker scripts that are put into a sandbox as files and asked as commands.

Such a program prints one line of JSON. It is put down once under a name that
holds its digest, readable by the sandbox's user alone.
"""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import ClassVar, assert_never, cast

import attrs

from ..required.faults import Fault
from ..required.sandbox import (
    Command,
    Ended,
    Exited,
    ExitUnknown,
    FileForbidden,
    FileKind,
    FileMissing,
    Lost,
    NotStarted,
    PathRefused,
    Sandbox,
    SandboxFailed,
    SandboxLost,
    Signalled,
    TimedOut,
)

PYTHON_OLDEST = (3, 8)
LOOK_SECONDS = 60.0
TOLD_CHARACTERS_MAX = 300
WORKERS_PYTHON = "/proc/self/exe"
"""Where a worker forks the command, that is its own Python, which can be run also when
its file was removed. Elsewhere it is a shell, which refuses Python's options."""
EXECUTABLE = 0o111

Words = dict[str, object]


@attrs.frozen
class RuntimeMissing(Fault):
    """The sandbox has no Python that worker scripts run on."""

    kind: ClassVar[str] = "runtime_missing"
    message: ClassVar[str] = (
        "The sandbox has no {python} of version 3.8 or newer: {reason}."
        " Use an image that has python3."
    )

    python: str
    reason: str


@attrs.frozen
class Unreadable(Exception):
    """A program gave no answer that can be read; `reason` tells what came."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.define(kw_only=True)
class SandboxProgram:
    """One worker script in one sandbox, put there when it is first asked."""

    sandbox: Sandbox
    name: str
    text: bytes
    python: str = "python3"
    found: str | None = None
    """The interpreter itself: `python` may be a script that alters what runs below.
    It is looked for when it is not known from another program of this sandbox."""
    _path: str | None = attrs.field(default=None, init=False)

    async def ask(
        self,
        *words: str,
        timeout_seconds: float,
        stdin: bytes = b"",
        detaches: bool = False,
    ) -> Words:
        """Run the program with `words` and return its answer.

        Raises:
            Unreadable: It gave none; what it did is unknown.
            RuntimeMissing: There is no Python for it.
            SandboxLost, SandboxFailed: As they say.
        """
        ended = await self.run(
            *words, timeout_seconds=timeout_seconds, stdin=stdin, detaches=detaches
        )
        return words_from(ended)

    async def run(
        self,
        *words: str,
        timeout_seconds: float,
        stdin: bytes = b"",
        detaches: bool = False,
        output_bytes_max: int | None = None,
    ) -> Ended:
        """Run the program with `words` and return how it ended, with what it wrote.

        Raises:
            RuntimeMissing, SandboxLost, SandboxFailed: As `ask` says.
        """
        path = await self.installed()
        command = Command(
            argv=(self.found or self.python, "-I", "-S", path, *words),
            timeout_seconds=timeout_seconds,
            cwd=self.sandbox.scratch,
            stdin=stdin,
            detaches=detaches,
        )
        if output_bytes_max is not None:
            command = attrs.evolve(command, output_bytes_max=output_bytes_max)
        # No call of `_exec`: each call that waits here does so for all of a run.
        ended = await self.sandbox.exec(command)
        return await self._run_again(command, ended) if _is_bad(ended) else ended

    async def _exec(self, command: Command) -> Ended:
        """Run it on the Python that was found, or where that is gone on the worker's."""
        ended = await self.sandbox.exec(command)
        return await self._run_again(command, ended) if _is_bad(ended) else ended

    async def _run_again(self, command: Command, ended: Ended) -> Ended:
        """Run a command on the worker's Python that did not start on the one found."""
        if isinstance(ended.how, NotStarted):
            again = attrs.evolve(command, argv=(WORKERS_PYTHON, *command.argv[1:]))
            other = await self.sandbox.exec(again)
            if other.succeeded or isinstance(other.how, Lost):
                ended = other
        if isinstance(ended.how, Lost):
            raise self._lost(ended.how.reason)
        return ended

    async def installed(self) -> str:
        """Put the program down, unless this was done; return its path."""
        if self._path is None:
            digest = hashlib.sha256(self.text).hexdigest()[:16]
            path = f"{self.sandbox.scratch}/{self.name}-{digest}.py"
            # First, for it makes the scratch folder where that was removed.
            await self.sandbox.put(
                path, _once(self.text), size=len(self.text), mode=0o600
            )
            if self.found is None:
                await self._check_python()
            self._path = path
        return self._path

    async def restore(self) -> None:
        """See that the program lies where it was put, or is put there once more."""
        if self._path is None:
            return
        try:
            await self.sandbox.stat(self._path)
        except FileMissing:
            self._path = None
        except (FileForbidden, PathRefused, SandboxFailed):
            return  # The next question tells.

    async def _check_python(self) -> None:
        script = (
            "import os, sys; print('%d %d' % sys.version_info[:2]);"
            " print(os.path.realpath(sys.executable) if sys.executable else '')"
        )
        command = Command(
            argv=(self.python, "-I", "-S", "-c", script),
            timeout_seconds=LOOK_SECONDS,
            cwd=self.sandbox.scratch,
        )
        ended = await self._exec(command)
        if isinstance(ended.how, ExitUnknown):
            # What ran before may have stopped the worker; another looks again.
            ended = await self._exec(command)
        match ended.how:
            case Exited(0):
                version, _, path = ended.stdout.kept.partition(b"\n")
                found = _version_from(version)
                if found < PYTHON_OLDEST:
                    raise RuntimeMissing(self.python, f"version {found} was found")
                self.found = _path_from(path)
            case Exited() | NotStarted():
                raise RuntimeMissing(self.python, _told(ended) or str(ended.how))
            case Lost():
                raise AssertionError("that was raised before")
            case Signalled() | TimedOut() | ExitUnknown():
                raise self.failed("look for Python", str(ended.how))
            case _:
                assert_never(ended.how)

    async def unanswered(self, operation: str, reason: str) -> SandboxFailed:
        """Return the fault of a program that gives no answer, having seen whose it is.

        Raises:
            SandboxLost, SandboxFailed: As they say.
        """
        try:
            await self._check_python()
        except RuntimeMissing as missing:
            # It was there when the program was put down.
            removed = self._path is not None and await self._is_removed()
            if removed:
                return self.failed(operation, str(missing.reason), from_inside=True)
        return self.failed(operation, reason)

    async def _is_removed(self) -> bool:
        """Whether the Python that was found is gone, cannot be run, or is broken.

        Where no process can be made at all, that says nothing of it.
        """
        python = self.found or self.python
        ended = await self.sandbox.exec(
            Command(
                argv=(python, "-I", "-S", "-c", ""),
                timeout_seconds=LOOK_SECONDS,
                cwd=self.sandbox.scratch,
            )
        )
        if isinstance(ended.how, Exited):
            return not ended.succeeded
        if not isinstance(ended.how, NotStarted) or self.found is None:
            return False
        try:
            found = await self.sandbox.stat(self.found)
        except FileMissing:
            return True
        except PathRefused:
            return (
                False  # Where the sandbox is no machine of its own, it is the host's.
            )
        return found.kind is not FileKind.FILE or not found.mode & EXECUTABLE

    def failed(
        self, operation: str, reason: str, *, from_inside: bool = False
    ) -> SandboxFailed:
        """Return the fault of an operation that the sandbox did not do."""
        provider = self.sandbox.access().provider
        return SandboxFailed(
            provider, self.sandbox.sandbox_id, operation, reason, from_inside
        )

    def _lost(self, reason: str) -> SandboxLost:
        provider = self.sandbox.access().provider
        return SandboxLost(provider, self.sandbox.sandbox_id, reason)


def words_from(ended: Ended) -> Words:
    """Return what a program answered.

    Raises:
        Unreadable: It did not end well, or what it printed is no answer.
    """
    if not isinstance(ended.how, Exited):
        raise Unreadable(f"its command ended with {ended.how}: {_told(ended)}")
    try:
        words = json.loads(ended.stdout.kept)
    except ValueError:
        raise Unreadable(f"status {ended.how.code}, {_told(ended)}") from None
    if not isinstance(words, dict):
        raise Unreadable("its answer is no JSON object")
    return cast("Words", words)  # JSON knows text keys alone


def _is_bad(ended: Ended) -> bool:
    return isinstance(ended.how, NotStarted | Lost)


def _told(ended: Ended) -> str:
    return ended.stderr.kept.decode(errors="replace").strip()[-TOLD_CHARACTERS_MAX:]


def _version_from(printed: bytes) -> tuple[int, ...]:
    words = printed.split()
    return tuple(int(word) for word in words if word.isdigit())


def _path_from(printed: bytes) -> str | None:
    """Return the interpreter's own path, None where it does not know it."""
    try:
        path = printed.decode().strip()
    except UnicodeDecodeError:
        return None
    return path if path.startswith("/") else None


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
