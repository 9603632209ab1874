# SPDX-License-Identifier: Apache-2.0
"""Large files by the engine's archives, where that is the same and faster.

The engine reads and writes a container's root as root, and past its mounts. So a
file that comes is unpacked in the scratch folder, with its owner, and gets its
own name from the user's hand, which the file system may refuse; and of a file
that goes the user is asked first whether it may read it, and where it really is.
What is on another mount, or behind a link, goes another way.
"""

import secrets
import tarfile
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

import anyio
import attrs

from ...ports.provided.worker_channel import WorkerFailed
from ...ports.required.faults import Fault
from ...ports.required.sandbox import (
    Command,
    DiskFull,
    Ended,
    Exited,
    FileForbidden,
    NotAFile,
    TransferCut,
)
from .engine import Engine
from .engine_connection import BadAnswer
from .engine_faults import NO_SPACE, EngineRefused

BULK_BYTES_MIN = 1024 * 1024
BULK_BYTES_MAX = 8 * 1024**3 - 1
"""What the header of a tar can tell in the oldest way; more goes the other way."""
OWNER_MAX = 8**7 - 1
"""The greatest user or group id that it can tell."""
STEP_SECONDS = 60.0
BLOCK_BYTES = tarfile.BLOCKSIZE
HEADERS_MAX = 8

_STAGING = r"""
umask 077
mkdir -p "$1" && stat -c '%d 0' "$1" && printf %s "$1"
"""

_WHERE_FROM = r"""
path=$1; folder=${path%/*}
[ -f "$path" ] && [ ! -L "$path" ] && [ -r "$path" ] && cd -P "${folder:-/}" || exit 1
printf '%s\n%s' "$(stat -c '%d %s' "$path")" "$PWD"
"""

_FINISH = r"""
staged=$1 path=$2 name=$3
folder=${path%/*}; folder=${folder:-/}
no() {
    rm -f "$staged" "$folder/$name"
    case $said in
    *"o space left"* | *uota*) echo full ;;
    *"ot a directory"* | *"ile exists"*)
        echo forbidden a part of the path is no folder
        ;;
    *denied* | *"not permitted"* | *"ead-only"*) printf 'forbidden %s' "$said" ;;
    *) printf 'failed %s' "$said" ;;
    esac
    exit 0
}
[ -d "$path" ] && [ ! -L "$path" ] && { rm -f "$staged"; echo not_a_file; exit 0; }
umask 022
[ -d "$folder" ] || said=$(mkdir -p -- "$folder" 2>&1) || no
# On another mount a rename is a copy that others could see half done.
said=$(cp -p "$staged" "$folder/$name" 2>&1) || no
rm -f "$staged"
staged=$folder/$name
[ -L "$path" ] && said=$(rm -f "$path" 2>&1)
said=$(mv -f "$staged" "$path" 2>&1) || no
echo put
"""

_DROP = 'rm -f "$1"'


class _Worker(Protocol):
    """What does the few steps around a transfer: `WorkerChannel`."""

    async def rename(self, source: str, path: str, *, user: str | None) -> None: ...

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended: ...


@attrs.frozen
class NotBulk(Exception):
    """The file is to go the other way; nothing of it was moved."""


@attrs.frozen
class BulkBroken(Exception):
    """The engine's archive was not what it should be."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class _Place:
    device: int
    size: int
    folder: str


@attrs.define(kw_only=True)
class BulkFiles:
    """Moves large files of one container."""

    engine: Engine
    container: str
    root_device: int
    worker: _Worker
    user: str
    owner: tuple[int, int]
    """The ids of `user`."""
    scratch: str
    """The user's own folder, where files are put together."""
    _can_stage: bool | None = attrs.field(default=None, init=False)

    async def put(
        self, path: str, chunks: AsyncIterable[bytes], *, size: int, mode: int
    ) -> None:
        """Write a file of `size` bytes, as `Sandbox.put` promises.

        Raises:
            NotBulk: None of `chunks` was read.
            BulkBroken, EngineRefused: Nothing stands under the name for certain.
        """
        if self._can_stage is None:
            self._can_stage = await self._is_on_root()
        if not self._can_stage or max(self.owner) > OWNER_MAX:
            raise NotBulk
        name = f".livery-{secrets.token_hex(8)}.part"
        staged = f"{self.scratch}/{name}"
        try:
            pieces = _to_tar(chunks, self._member(name, size, mode), path=path)
            async with aclosing(pieces):
                await self.engine.put_archive(
                    self.container, self.scratch, pieces, length=_tar_length(size)
                )
            await self._finish(staged, path, name)
        except EngineRefused as refused:
            self._can_stage = None  # The folder may be gone: it is looked at again.
            await self._drop(staged)
            if refused.tells(*NO_SPACE):
                raise DiskFull(path=path) from refused
            raise
        except BaseException:
            await self._drop(staged)
            raise

    async def _finish(self, staged: str, path: str, name: str) -> None:
        try:
            await self.worker.rename(staged, path, user=self.user)
        except WorkerFailed:
            # It lies on another file system than its place, for one.
            _check_put(await self._run(_FINISH, staged, path, name), path)

    async def _is_on_root(self) -> bool:
        try:
            await self._place(_STAGING, self.scratch)
        except NotBulk:
            return False
        return True

    @asynccontextmanager
    async def get(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Read a file, as `Sandbox.get` promises.

        Raises:
            NotBulk: It is to be read the other way.
            BulkBroken, EngineRefused: The file is not had as a whole.
        """
        place = await self._place(_WHERE_FROM, path)
        if not BULK_BYTES_MIN <= place.size <= BULK_BYTES_MAX:
            raise NotBulk
        name = path.rpartition("/")[2]
        async with (
            self.engine.get_archive(
                self.container, f"{place.folder.rstrip('/')}/{name}"
            ) as archive,
            aclosing(_from_tar(archive, path=path)) as pieces,
        ):
            # The first piece is empty: it says that the file was found.
            await anext(pieces)
            yield pieces

    async def _place(self, script: str, path: str) -> _Place:
        ended = await self._run(script, path)
        head, _, folder = ended.stdout.kept.decode(errors="surrogateescape").partition(
            "\n"
        )
        numbers = head.split()
        if ended.how != Exited(0) or len(numbers) != 2 or not folder:
            raise NotBulk
        place = _Place(device=int(numbers[0]), size=int(numbers[1]), folder=folder)
        if place.device != self.root_device:
            raise NotBulk
        return place

    def _member(self, name: str, size: int, mode: int) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, mode
        member.uid, member.gid = self.owner
        return member

    async def _drop(self, staged: str) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self._run(_DROP, staged)
            except Fault:
                return  # What broke the transfer is told, not this.

    async def _run(self, script: str, *words: str) -> Ended:
        command = Command(
            argv=("/bin/sh", "-c", script, "sandbox", *words),
            timeout_seconds=STEP_SECONDS,
        )
        return await self.worker.exec(command, cwd="/", env={}, user=self.user)


def _check_put(ended: Ended, path: str) -> None:
    """Raise the fault that the last step of a put tells."""
    word, _, rest = ended.stdout.kept.decode(errors="replace").partition(" ")
    word, rest = word.strip(), " ".join(rest.split())
    if word == "put":
        return
    if word == "full":
        raise DiskFull(path=path)
    if word == "not_a_file":
        raise NotAFile(path=path, found="folder")
    if word == "forbidden":
        raise FileForbidden(path=path, reason=rest)
    raise BulkBroken(f"it could not be given its name ({rest or ended.how})")


def _tar_length(size: int) -> int:
    blocks = -(-size // BLOCK_BYTES)
    return (1 + blocks + 2) * BLOCK_BYTES


async def _to_tar(
    chunks: AsyncIterable[bytes], member: tarfile.TarInfo, *, path: str
) -> AsyncGenerator[bytes]:
    size = member.size
    yield member.tobuf(format=tarfile.USTAR_FORMAT)
    got = 0
    async for chunk in chunks:
        got += len(chunk)
        if got > size:
            raise TransferCut(path=path, got=got, announced=size)
        if chunk:
            yield chunk
    if got < size:
        raise TransferCut(path=path, got=got, announced=size)
    yield bytes(-size % BLOCK_BYTES + 2 * BLOCK_BYTES)


async def _from_tar(
    archive: AsyncIterator[bytes], *, path: str
) -> AsyncGenerator[bytes]:
    held = bytearray()
    for _ in range(HEADERS_MAX):
        await _fill(held, archive, BLOCK_BYTES)
        try:
            member = tarfile.TarInfo.frombuf(
                bytes(held[:BLOCK_BYTES]), "utf-8", "surrogateescape"
            )
        except tarfile.HeaderError as failure:
            raise BulkBroken(f"the archive cannot be read: {failure}") from failure
        del held[:BLOCK_BYTES]
        if member.isreg():
            break
        if member.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE, b"L", b"K"):
            raise BulkBroken("the archive holds no file")
        extra = -(-member.size // BLOCK_BYTES) * BLOCK_BYTES
        await _fill(held, archive, extra)
        del held[:extra]
    else:
        raise BulkBroken("the archive holds no file")
    yield b""
    got = min(len(held), member.size)
    if got:
        yield bytes(held[:got])
    while got < member.size:
        piece = await _next(archive)
        if not piece:
            raise TransferCut(path=path, got=got, announced=member.size)
        piece = piece[: member.size - got]
        got += len(piece)
        yield piece


async def _fill(held: bytearray, archive: AsyncIterator[bytes], length: int) -> None:
    while len(held) < length:
        piece = await _next(archive)
        if not piece:
            raise BulkBroken("the archive ended before its file began")
        held += piece


async def _next(archive: AsyncIterator[bytes]) -> bytes:
    """Return the next piece; empty at the end, also at one before its time.

    The engine breaks an answer off when the file was cut under its hands.
    """
    try:
        return await anext(archive, b"")
    except BadAnswer:
        return b""
