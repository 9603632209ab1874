# SPDX-License-Identifier: Apache-2.0
"""A sandbox: an isolated machine that runs commands and holds files.

Paths are those of the sandbox. A relative path is below `workdir`; `..` is
refused; nothing else about a name is changed, so two different names never
address one file. Whoever holds a `Sandbox` can use it and disconnect from it.
Ending it is the provider's, which a borrower does not have.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import ClassVar, NewType, Protocol

import attrs

from .faults import Fault

SandboxId = NewType("SandboxId", str)
"""The provider's own name of a sandbox, unique within that provider."""

OUTPUT_BYTES_MAX = 1024 * 1024
GRACE_SECONDS = 2.0
DRAIN_SECONDS = 0.5


@attrs.frozen(kw_only=True)
class Command:
    """One program to run, word by word; no shell reads the words."""

    argv: tuple[str, ...]
    timeout_seconds: float
    """The deadline, enforced inside the sandbox."""
    cwd: str | None = None
    """The folder to run in; the sandbox's `workdir` when None."""
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Laid over the sandbox's own environment."""
    user: str | None = None
    """A name, `uid` or `uid:gid`; the sandbox's own user when None."""
    stdin: bytes = b""
    """What standard input holds before its end."""
    output_bytes_max: int = OUTPUT_BYTES_MAX
    """How much of each output is kept: its first and its last half."""
    grace_seconds: float = GRACE_SECONDS
    """The time between asking the process tree to end and killing it."""
    detaches: bool = False
    """Whether what it leaves behind goes on: for the launch of a supervisor alone."""


def shell(script: str, *, timeout_seconds: float) -> Command:
    """Return the command that has the POSIX shell run `script`."""
    return Command(argv=("/bin/sh", "-c", script), timeout_seconds=timeout_seconds)


@attrs.frozen
class Exited:
    """The program ended by itself with this status, 0 to 255."""

    code: int


@attrs.frozen
class Signalled:
    """A signal that was not ours ended the program."""

    number: int


@attrs.frozen
class TimedOut:
    """The deadline passed; the process tree was ended and seen gone."""

    after_seconds: float


@attrs.frozen
class NotStarted:
    """The program never ran: no such program, folder or user."""

    reason: str
    no_program: bool = False
    """Whether the program itself was seen not to be there, or not to be executable."""


@attrs.frozen
class ExitUnknown:
    """The program is over or out of sight, and how it ended was not seen."""

    reason: str


@attrs.frozen
class Lost:
    """The sandbox ended under the program."""

    reason: str


How = Exited | Signalled | TimedOut | NotStarted | ExitUnknown | Lost


@attrs.frozen(kw_only=True)
class Output:
    """What a program wrote: its beginning, its end, and how much in all."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    """True size in bytes; more than `head` and `tail` hold when cut."""

    @property
    def dropped(self) -> int:
        """How many bytes between `head` and `tail` were not kept."""
        return self.size - len(self.head) - len(self.tail)

    @property
    def kept(self) -> bytes:
        """What was kept, with a line that tells of a cut where one was made."""
        if not self.dropped:
            return self.head + self.tail
        note = f"\n[... {self.dropped} bytes dropped ...]\n".encode()
        return self.head + note + self.tail


@attrs.frozen(kw_only=True)
class Ended:
    """How a command ended and what it wrote until then, also on a timeout."""

    how: How
    stdout: Output = attrs.field(factory=Output)
    stderr: Output = attrs.field(factory=Output)
    duration_seconds: float = 0.0
    leftovers_ended: int = 0
    """Processes that the program left behind and that were ended for it."""

    @property
    def succeeded(self) -> bool:
        """Whether the program ended by itself with status 0."""
        return self.how == Exited(0)


class FileKind(StrEnum):
    """What is found under a path, links not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


@attrs.frozen(kw_only=True)
class FileStat:
    """What `stat` found."""

    kind: FileKind
    size: int
    """Bytes; meaningful for a file."""
    mode: int
    """Permission bits alone, 0o000 to 0o7777."""


class Liveness(StrEnum):
    """What the provider says of a sandbox."""

    RUNNING = "running"
    FROZEN = "frozen"
    ENDED = "ended"
    UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class Status:
    """The provider's word on a sandbox, with its reason where it has one."""

    liveness: Liveness
    reason: str = ""
    out_of_memory: bool = False


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where this host reaches a port of the sandbox."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen(kw_only=True)
class SandboxAccess:
    """What a borrower needs to reach a lent sandbox; grants no release."""

    provider: str
    """The name of the provider block, in the borrower's own configuration."""
    descriptor: Mapping[str, str]
    """The provider's own words, JSON-ready."""
    workdir: str


@attrs.frozen
class SandboxLost(Fault):
    """The sandbox is gone, whoever ended it."""

    kind: ClassVar[str] = "sandbox_lost"
    message: ClassVar[str] = (
        "Sandbox {sandbox} of provider {provider} is gone: {reason}."
    )

    provider: str
    sandbox: str
    reason: str


@attrs.frozen
class SandboxFailed(Fault):
    """The provider or its agent in the sandbox failed at an operation."""

    kind: ClassVar[str] = "sandbox_failed"
    message: ClassVar[str] = (
        "Provider {provider} failed to {operation} in sandbox {sandbox}: {reason}."
    )
    can_retry: ClassVar[bool] = True

    provider: str
    sandbox: str
    operation: str
    reason: str
    from_inside: bool = False
    """Whether it was seen that what the operation needs was ended or removed by what
    runs in the sandbox, which itself goes on."""


@attrs.frozen
class FileMissing(Fault):
    """Nothing is there. It is said only when that was seen."""

    kind: ClassVar[str] = "file_missing"
    message: ClassVar[str] = "There is no {path} in the sandbox."

    path: str


@attrs.frozen
class NotAFile(Fault):
    """Something other than a file is in the way, or was asked to be read."""

    kind: ClassVar[str] = "not_a_file"
    message: ClassVar[str] = "{path} in the sandbox is a {found}, not a file."

    path: str
    found: str


@attrs.frozen
class FileForbidden(Fault):
    """The sandbox's user may not read or write there."""

    kind: ClassVar[str] = "file_forbidden"
    message: ClassVar[str] = "The sandbox's user may not touch {path}: {reason}."

    path: str
    reason: str


@attrs.frozen
class DiskFull(Fault):
    """No space is left for the file; nothing stands under its name."""

    kind: ClassVar[str] = "disk_full"
    message: ClassVar[str] = "No space is left in the sandbox for {path}."

    path: str


@attrs.frozen
class PathRefused(Fault):
    """The path breaks the rule for paths, or is not the sandbox's to give."""

    kind: ClassVar[str] = "path_refused"
    message: ClassVar[str] = "The path {path!r} is refused: {reason}."

    path: str
    reason: str


@attrs.frozen
class TransferCut(Fault):
    """Fewer or more bytes came than were announced; nothing was kept."""

    kind: ClassVar[str] = "transfer_cut"
    message: ClassVar[str] = (
        "The transfer of {path} ended after {got} bytes, announced were {announced}."
    )

    path: str
    got: int
    announced: int


class Sandbox(Protocol):
    """One sandbox in use.

    Every method may raise `SandboxLost` (but `exec`, which tells it as `Lost`
    beside the output so far) and `SandboxFailed`. Many calls may run at once.
    Cancelling a call ends what it started inside the sandbox.
    """

    @property
    def sandbox_id(self) -> SandboxId:
        """The provider's own name of the sandbox."""
        ...

    @property
    def workdir(self) -> str:
        """The absolute folder in which work is done; it exists."""
        ...

    @property
    def scratch(self) -> str:
        """An absolute folder outside `workdir` for what Livery itself puts down.

        It exists and is of mode 0700; each claim or borrower has its own.
        """
        ...

    @property
    def expires_at(self) -> float | None:
        """When the sandbox ends itself, in Unix seconds; None when unknown."""
        ...

    async def exec(self, command: Command) -> Ended:
        """Run `command` to its end.

        The tree it started is gone when this returns: what it left behind is
        ended a moment (`DRAIN_SECONDS`) after the program itself. A command that
        must outlive the call is started detached, under the supervisor.
        """
        ...

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None = None,
        mode: int = 0o644,
    ) -> None:
        """Write a file, whole or not at all, owned by the sandbox's user.

        Parents are made. `size` in bytes lets a provider choose a faster way.

        Raises:
            NotAFile: A folder has that name.
            FileForbidden, DiskFull, PathRefused: As they say.
            TransferCut: `chunks` held another number of bytes than `size`.
        """
        ...

    def get(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a file for reading in pieces; links are followed.

        Raises:
            FileMissing, NotAFile, FileForbidden, PathRefused: As they say.
            TransferCut: The file ended before the size it had at the start.
        """
        ...

    async def stat(self, path: str) -> FileStat:
        """Tell what is under `path`, links not followed.

        Raises:
            FileMissing, FileForbidden, PathRefused: As they say.
        """
        ...

    async def status(self) -> Status:
        """Ask the provider how the sandbox is; never raises `SandboxLost`."""
        ...

    async def endpoint(self, port: int) -> Endpoint:
        """Tell where a published port is reached.

        Raises:
            Unsupported: The port was not asked for, or the provider publishes none.
        """
        ...

    def access(self) -> SandboxAccess:
        """Return what a borrower needs."""
        ...

    async def disconnect(self) -> None:
        """Let go of what this handle holds here; the sandbox goes on."""
        ...
