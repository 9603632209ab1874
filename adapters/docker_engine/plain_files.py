# SPDX-License-Identifier: Apache-2.0
"""Files in an image without a Python, through the shell's own tools.

Everything is done as the sandbox's user, so that the file system itself says
what is allowed, on mounts as on the root. A file that comes is written under a
temporary name beside its own, and gets its own from a second script when all that
was sent has arrived: the end of an input does not tell whether it was cut.
"""

import secrets
import stat
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager, suppress
from typing import NoReturn

import anyio

from ...ports.required.sandbox import (
    Command,
    DiskFull,
    Ended,
    FileForbidden,
    FileKind,
    FileMissing,
    FileStat,
    NotAFile,
    TransferCut,
)
from .engine import Engine
from .plain_dialogue import (
    Dialogue,
    InputClosed,
    Printed,
    ScriptEnded,
    Told,
    answer,
    bounded,
)
from .plain_exec import PlainExec
from .plain_scripts import DROP, GET, PUT, STAT

ANSWER_SECONDS = 120.0
"""How long a script may say nothing and take nothing."""
ABORT_SECONDS = 30.0
PIECE_BYTES = 256 * 1024

_KINDS = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.FOLDER,
    stat.S_IFLNK: FileKind.LINK,
}


class PlainHands:
    """Commands and files of one container, one engine exec for each."""

    def __init__(self, engine: Engine, container: str) -> None:
        """Work in `container`."""
        self._exec = PlainExec(engine, container)

    async def exec(
        self, command: Command, *, cwd: str, env: Mapping[str, str], user: str | None
    ) -> Ended:
        """Run a command to its end."""
        return await self._exec.exec(command, cwd=cwd, env=env, user=user)

    async def put(
        self,
        path: str,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        mode: int,
        user: str | None,
    ) -> None:
        """Write a file, as `Sandbox.put` promises.

        Raises:
            ScriptEnded, EngineRefused: Nothing stands under the name for certain.
        """
        name = f".livery-{secrets.token_hex(8)}.part"
        async with self._exec.dialogue(PUT, [path, name, ""], user=user) as (script, _):
            sent = 0
            told: Told | None = None
            try:
                await script.begin()
                async for chunk in chunks:
                    sent += len(chunk)
                    if (told := await _offer(script, chunk)) is not None:
                        break
                else:
                    script.send_end()
                    told = await answer(script, seconds=ANSWER_SECONDS)
            except InputClosed:
                # A script that says no reads no more; its answer tells why.
                told = await answer(script, seconds=ANSWER_SECONDS)
            except BaseException:
                await self._abort(script, path=path, name=name, user=user)
                raise
        if told is None or told.word != "got":
            await self._drop(path, name, user=user)
            _fail(told, path)
        if size not in {None, sent} or told.numbers != [sent]:
            await self._drop(path, name, user=user)
            if size is not None and size != sent:
                raise TransferCut(path=path, got=sent, announced=size)
            raise ScriptEnded(f"{told.rest} bytes arrived of {sent}")
        told = await self._ask(PUT, [path, name, f"{mode:o}"], user=user)
        if told.word != "put":
            _fail(told, path)

    @asynccontextmanager
    async def get(
        self, path: str, *, user: str | None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Read a file, as `Sandbox.get` promises.

        Raises:
            ScriptEnded, EngineRefused: The file is not had as a whole.
        """
        async with self._exec.dialogue(GET, [path], user=user) as (dialogue, _):
            await dialogue.begin()
            async with aclosing(_pieces(dialogue, path)) as pieces:
                # The first piece is empty: it says that the file was opened.
                await anext(pieces)
                yield pieces

    async def stat(self, path: str, *, user: str | None) -> FileStat:
        """Look at a path, as `Sandbox.stat` promises.

        Raises:
            ScriptEnded, EngineRefused: What is there is unknown.
        """
        told = await self._ask(STAT, [path], user=user)
        if told.word != "stat":
            _fail(told, path)
        raw, size = told.rest.split()
        bits = int(raw, 16)
        return FileStat(
            kind=_KINDS.get(stat.S_IFMT(bits), FileKind.OTHER),
            size=int(size),
            mode=stat.S_IMODE(bits),
        )

    async def aclose(self) -> None:
        """Nothing is held between two calls."""

    async def _ask(self, script: str, words: list[str], *, user: str | None) -> Told:
        async with self._exec.dialogue(script, words, user=user) as (dialogue, _):
            try:
                await dialogue.begin()
                dialogue.send_end()
            except InputClosed:
                pass  # What it told before says why.
            told = await answer(dialogue, seconds=ANSWER_SECONDS)
        if told is None:
            raise ScriptEnded("the script was ended before it could tell")
        return told

    async def _abort(
        self, dialogue: Dialogue, *, path: str, name: str, user: str | None
    ) -> None:
        """Let the script come to its end, and remove what it wrote."""
        with anyio.move_on_after(ABORT_SECONDS, shield=True):
            if not dialogue.has_begun:
                return
            with suppress(InputClosed):
                dialogue.send_end()
            await answer(dialogue, seconds=ABORT_SECONDS)
            await self._drop(path, name, user=user)

    async def _drop(self, path: str, name: str, *, user: str | None) -> None:
        """Remove the temporary file, wherever it got to."""
        folder = path.rpartition("/")[0]
        with anyio.move_on_after(ABORT_SECONDS, shield=True):
            await self._ask(DROP, [f"{folder}/{name}"], user=user)


async def _offer(script: Dialogue, chunk: bytes) -> Told | None:
    for start in range(0, len(chunk), PIECE_BYTES):
        with bounded(ANSWER_SECONDS):
            told = await script.offer(chunk[start : start + PIECE_BYTES])
            if told is not None:
                return told
    return None


async def _pieces(dialogue: Dialogue, path: str) -> AsyncGenerator[bytes]:
    size, got, status = -1, 0, -1
    heard = aiter(dialogue.heard())
    while True:
        with bounded(ANSWER_SECONDS):
            part = await anext(heard, None)
        if part is None:
            break
        if isinstance(part, Printed):
            if not part.is_stderr and size >= 0:
                piece = part.piece[: size - got]
                got += len(piece)
                if piece:
                    yield piece
        elif part.word == "size":
            size = part.numbers[0]
            await dialogue.send(b"go\n")
            yield b""
        elif part.word == "read":
            status = part.numbers[0]
        else:
            _fail(part, path)
    if size < 0:
        raise ScriptEnded("the script was ended before it could tell")
    if got < size or status != 0:
        raise TransferCut(path=path, got=got, announced=size)


def _fail(told: Told | None, path: str) -> NoReturn:
    """Raise the fault that a script tells."""
    if told is None:
        raise ScriptEnded("the script was ended before it could tell")
    if told.word == "missing":
        raise FileMissing(path=path)
    if told.word == "not_a_file":
        raise NotAFile(path=path, found=told.rest)
    if told.word == "forbidden":
        raise FileForbidden(path=path, reason=told.rest)
    if told.word == "full":
        raise DiskFull(path=path)
    raise ScriptEnded(told.rest or told.word)
