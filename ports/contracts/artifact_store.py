# SPDX-License-Identifier: Apache-2.0
"""The contract suite of `ArtifactStore`.

Run every case of `CASES` over an `ArtifactStoreContext`. Each case works on shelves
of its own, so that one store can serve all of them.
"""

import hashlib
import secrets
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import attrs

from ...domain.tasks import BadName
from ..required.artifact_store import (
    Artifact,
    ArtifactForbidden,
    ArtifactMissing,
    ArtifactStore,
    Reader,
    Shelf,
)
from .cases import Case, check_cases

BIG_PIECES: Final = 96
BIG_PIECE_BYTES: Final = 1024 * 1024
HELD_BYTES_MAX: Final = 24 * 1024 * 1024
"""What may be held in memory of an artifact that is four times as large."""
AT_ONCE: Final = 12
ROUNDS: Final = 6
NOBODY: Final[frozenset[Reader]] = frozenset()

ODD_NAMES: Final = (
    "plain.txt",
    "PLAIN.TXT",
    "..",
    ".",
    "../up",
    "/etc/passwd",
    "a/b/c",
    "a%2Fb%2Fc",
    "a",
    ".hidden",
    " leading and trailing ",
    "trailing",
    "trailing ",
    "-rf",
    "quote'\"`",
    "line\nbreak",
    "nul\x00",
    "back\\slash",
    "中文",
    "e\u0301",
    "\u00e9",
    "half \ud83d pair",
    "~",
    "+",
    "x" * 300,
    "x" * 299 + "y",
    "中" * 300,
)


@attrs.frozen(kw_only=True)
class ArtifactStoreContext:
    """A store, and how to open the same place a second time."""

    store: ArtifactStore
    open_again: Callable[[], AbstractAsyncContextManager[ArtifactStore]] | None = None
    """Open another store object over the same place, as another process would."""
    is_on_disk: bool = True
    """Whether content goes to a disk, and not into memory on purpose."""
    loose_files: Callable[[Shelf], tuple[str, ...]] | None = None
    """Name what lies about on a shelf besides its artifacts, past the store."""


async def what_was_put_is_there(context: ArtifactStoreContext) -> None:
    """An artifact comes back byte for byte, and tells its size and digest."""
    for content in (b"", b"x", bytes(range(256)) * 5000):
        shelf = _fresh()
        readers = frozenset({Reader.GRADER})

        put = await context.store.put(
            shelf, "kept", _pieces(content, 4096), readers=readers
        )

        assert put == Artifact(
            shelf=shelf,
            name="kept",
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            readers=readers,
        )
        assert await context.store.find(shelf, "kept") == put
        assert await _content(context.store, put) == content


async def nothing_is_there_unasked(context: ArtifactStoreContext) -> None:
    """An empty shelf lists nothing, finds nothing and gives nothing."""
    shelf = _fresh()

    assert await context.store.list(shelf) == ()
    assert await context.store.find(shelf, "none") is None
    missing = await _refused(_read(context.store, shelf, "none", Reader.OPERATOR))
    assert isinstance(missing, ArtifactMissing)
    assert (missing.shelf, missing.name) == (shelf, "none")


async def only_readers_read(context: ArtifactStoreContext) -> None:
    """Who is not named may not read; the operator may read all."""
    shelf = _fresh()
    allowed = {
        "for all": frozenset({Reader.AGENT, Reader.GRADER}),
        "for the grader": frozenset({Reader.GRADER}),
        "for nobody": NOBODY,
    }
    for name, readers in allowed.items():
        await context.store.put(shelf, name, _pieces(b"secret"), readers=readers)

    for name, readers in allowed.items():
        for reader in Reader:
            read = _read(context.store, shelf, name, reader)
            if reader is Reader.OPERATOR or reader in readers:
                assert await read == b"secret"
            else:
                told = await _refused(read)
                assert isinstance(told, ArtifactForbidden)
                assert (told.name, told.reader) == (name, reader)


async def a_put_replaces(context: ArtifactStoreContext) -> None:
    """The last content stands alone under a name, with its own readers."""
    shelf = _fresh()
    for number in range(5):
        content = b"longer than what comes" * (5 - number)
        readers = frozenset({Reader.AGENT}) if number % 2 else NOBODY
        put = await context.store.put(shelf, "it", _pieces(content), readers=readers)

        assert await context.store.list(shelf) == (put,)
        assert put.readers == readers
        assert await _content(context.store, put) == content
    _nothing_lies_about(context, shelf)


async def names_are_apart(context: ArtifactStoreContext) -> None:
    """Every name but the empty one is taken, and no two are one artifact."""
    shelf = _fresh()
    for name in ODD_NAMES:
        await context.store.put(shelf, name, _pieces(_bytes_of(name)))
    for name in ODD_NAMES[::2]:
        await context.store.put(shelf, name, _pieces(_bytes_of(name) * 2))

    listed = await context.store.list(shelf)
    assert [artifact.name for artifact in listed] == sorted(ODD_NAMES)
    for number, name in enumerate(ODD_NAMES):
        found = await context.store.find(shelf, name)
        assert found is not None
        wanted = _bytes_of(name) * (1 if number % 2 else 2)
        assert await _content(context.store, found) == wanted, name


async def shelves_are_apart(context: ArtifactStoreContext) -> None:
    """Shelves are names as well, and none reaches into another."""
    token = secrets.token_hex(8)
    # Not the pairs that a disk may take for one: see the case above for those.
    odd = [name for name in ODD_NAMES if name not in ("PLAIN.TXT", "\u00e9")]
    shelves = [Shelf(f"{name}{token}") for name in odd] + [
        Shelf(f"{token}{name}") for name in odd
    ]
    for shelf in shelves:
        await context.store.put(shelf, "name", _pieces(_bytes_of(shelf)))

    for shelf in shelves:
        (artifact,) = await context.store.list(shelf)
        assert artifact.shelf == shelf
        assert await _content(context.store, artifact) == _bytes_of(shelf)


async def an_empty_name_is_refused(context: ArtifactStoreContext) -> None:
    """A shelf or an artifact without a name is told, and nothing is made."""
    shelf = _fresh()

    for where, name in ((shelf, ""), (Shelf(""), "name")):
        told = await _refused(context.store.put(where, name, _pieces(b"x")))
        assert isinstance(told, BadName)

    assert await context.store.list(shelf) == ()


async def a_failed_put_changes_nothing(context: ArtifactStoreContext) -> None:
    """When the content breaks off, what stood there stands, and nothing else."""
    shelf = _fresh()
    before = await context.store.put(shelf, "old", _pieces(b"old"))

    for name in ("old", "new"):
        told = await _refused(context.store.put(shelf, name, _breaking_off()))
        assert isinstance(told, _BrokeOff)

    assert await context.store.list(shelf) == (before,)
    assert await _content(context.store, before) == b"old"
    _nothing_lies_about(context, shelf)


async def a_cancelled_put_is_settled(context: ArtifactStoreContext) -> None:
    """It came to stand whole or not at all."""
    for turns in range(24):
        shelf = _fresh()
        await context.store.put(shelf, "it", _pieces(b"old"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_put, context.store, shelf, b"new" * 1000)
            for _ in range(turns):
                await anyio.sleep(0.0005)
            tasks.cancel_scope.cancel()

        (artifact,) = await context.store.list(shelf)
        content = await _content(context.store, artifact)
        assert content in (b"old", b"new" * 1000)
        assert artifact.size == len(content)
        _nothing_lies_about(context, shelf)


async def many_puts_at_once(context: ArtifactStoreContext) -> None:
    """However many put on one shelf, all of it is there."""
    shelf = _fresh()

    async def put(number: int) -> None:
        for round_ in range(ROUNDS):
            name = f"{number}.{round_}"
            await context.store.put(shelf, name, _pieces(_bytes_of(name)))

    async with anyio.create_task_group() as tasks:
        for number in range(AT_ONCE):
            tasks.start_soon(put, number)

    listed = await context.store.list(shelf)
    assert len(listed) == AT_ONCE * ROUNDS
    for artifact in listed:
        assert await _content(context.store, artifact) == _bytes_of(artifact.name)


async def a_reader_gets_one_content(context: ArtifactStoreContext) -> None:
    """Who reads while others replace gets one whole content, never a mixture."""
    shelf, over = _fresh(), anyio.Event()
    await _put(context.store, shelf, b"0" * 300_000)

    async def read() -> None:
        while not over.is_set():
            content = await _read(context.store, shelf, "it", Reader.OPERATOR)
            assert len(content) == 300_000
            assert len(set(content)) == 1

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(read)
        for number in range(ROUNDS * 3):
            await _put(context.store, shelf, f"{number % 10}".encode() * 300_000)
        over.set()


async def a_big_artifact_is_not_held(context: ArtifactStoreContext) -> None:
    """Content goes through in pieces, both ways, and time is left to others."""
    shelf, turns = _fresh(), 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0.001)
            turns += 1

    async def put_and_get() -> None:
        put = await context.store.put(shelf, "big", _big())
        size = 0
        async with context.store.get(shelf, "big", reader=Reader.OPERATOR) as chunks:
            async for chunk in chunks:
                size += len(chunk)
        assert size == put.size == BIG_PIECES * BIG_PIECE_BYTES

    tracemalloc.start()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            await put_and_get()
            tasks.cancel_scope.cancel()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert turns > BIG_PIECES / 4
    if context.is_on_disk:
        assert peak < HELD_BYTES_MAX, f"{peak} bytes were held"


async def reading_may_end_early(context: ArtifactStoreContext) -> None:
    """Who has read enough leaves, and nothing stays open."""
    shelf = _fresh()
    await _put(context.store, shelf, b"x" * 3_000_000)

    for _ in range(ROUNDS):
        async with context.store.get(shelf, "it", reader=Reader.OPERATOR) as chunks:
            async for chunk in chunks:
                assert set(chunk) == {ord("x")}
                break


async def what_was_put_stays(context: ArtifactStoreContext) -> None:
    """Another store object over the same place has the same artifacts."""
    assert context.open_again is not None, "asked for in hooks"
    shelf = _fresh()
    put = await context.store.put(shelf, "it", _pieces(b"kept"))

    async with context.open_again() as other:
        assert await other.list(shelf) == (put,)
        assert await _content(other, put) == b"kept"
        await _put(other, shelf, b"by another")

    assert await _read(context.store, shelf, "it", Reader.OPERATOR) == b"by another"


_AGAIN: Final = frozenset({"open_again"})

CASES: Final[tuple[Case[ArtifactStoreContext], ...]] = check_cases(
    (
        Case(name="what was put is there", run=what_was_put_is_there),
        Case(name="nothing is there unasked", run=nothing_is_there_unasked),
        Case(name="only readers read", run=only_readers_read),
        Case(name="a put replaces", run=a_put_replaces),
        Case(name="names are apart", run=names_are_apart, field_cases=("FC-069",)),
        Case(name="shelves are apart", run=shelves_are_apart, field_cases=("FC-069",)),
        Case(name="an empty name is refused", run=an_empty_name_is_refused),
        Case(name="a failed put changes nothing", run=a_failed_put_changes_nothing),
        Case(name="a cancelled put is settled", run=a_cancelled_put_is_settled),
        Case(name="many puts at once", run=many_puts_at_once),
        Case(name="a reader gets one content", run=a_reader_gets_one_content),
        Case(name="a big artifact is not held", run=a_big_artifact_is_not_held),
        Case(name="reading may end early", run=reading_may_end_early),
        Case(name="what was put stays", run=what_was_put_stays, hooks=_AGAIN),
    )
)


class _BrokeOff(Exception):
    """The source of the content failed."""


def _fresh() -> Shelf:
    return Shelf(f"shelf-{secrets.token_hex(8)}")


def _bytes_of(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


async def _pieces(content: bytes, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def _breaking_off() -> AsyncIterator[bytes]:
    yield b"half" * 500_000
    raise _BrokeOff


async def _big() -> AsyncIterator[bytes]:
    for _ in range(BIG_PIECES):
        yield secrets.token_bytes(1024) * (BIG_PIECE_BYTES // 1024)


async def _put(store: ArtifactStore, shelf: Shelf, content: bytes) -> None:
    await store.put(shelf, "it", _pieces(content))


async def _read(store: ArtifactStore, shelf: Shelf, name: str, reader: Reader) -> bytes:
    async with store.get(shelf, name, reader=reader) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def _content(store: ArtifactStore, artifact: Artifact) -> bytes:
    return await _read(store, artifact.shelf, artifact.name, Reader.OPERATOR)


async def _refused(act: Awaitable[object]) -> Exception:
    try:
        await act
    except Exception as told:  # The caller looks at which it was.
        return told
    raise AssertionError("nothing was raised")


def _nothing_lies_about(context: ArtifactStoreContext, shelf: Shelf) -> None:
    if context.loose_files is not None:
        assert context.loose_files(shelf) == ()
