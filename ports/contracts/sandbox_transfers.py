# SPDX-License-Identifier: Apache-2.0
"""Cases for moving bytes: a file is there whole or not at all.

Any size goes both ways, known before or not. A source that breaks, a reader
that stops, a caller that gives up, a full disk or a forbidden folder leaves
nothing half done, and says which it was.
"""

import secrets
from collections.abc import AsyncIterator

import anyio

from ..required.sandbox import DiskFull, FileForbidden, FileMissing, TransferCut
from .cases import Case, check_cases
from .sandbox_context import (
    PATIENCE_SECONDS,
    SandboxContext,
    caught,
    comes_true,
    fresh_folder,
    get,
    pieces,
    put,
    run,
)

SIZES = (0, 1, 65_535, 65_536, 1_048_577, 5_000_000)
PIECES = (1_000_003, 65_536, 100_000)
FULL_BYTES = 8 * 1024 * 1024
ROUNDS = 10


class Unplugged(Exception):
    """The source of a transfer breaks."""


async def every_size_arrives(context: SandboxContext) -> None:
    """Files of any size go in and come out byte for byte."""
    folder = await fresh_folder(context)
    for size in SIZES:
        content, path = secrets.token_bytes(size), f"{folder}/{size}"

        await put(context, path, content)

        assert (await context.sandbox.stat(path)).size == size
        assert await get(context, path) == content
        counted = await run(context, f"wc -c < {path}")
        assert int(counted) == size


async def an_unknown_size_streams(context: SandboxContext) -> None:
    """The size need not be known before, and pieces may be of any size."""
    folder, content = await fresh_folder(context), secrets.token_bytes(3_000_000)
    for piece in PIECES:
        await context.sandbox.put(f"{folder}/{piece}", pieces(content, piece=piece))
        assert await get(context, f"{folder}/{piece}") == content

    async def odd() -> AsyncIterator[bytes]:
        for chunk in (b"", b"a", b"", b"bc", b""):
            yield chunk

    await context.sandbox.put(f"{folder}/odd", odd())
    assert await get(context, f"{folder}/odd") == b"abc"


async def a_file_is_replaced_at_once(context: SandboxContext) -> None:
    """A reader sees the old file or the new one, never a half of either."""
    folder = await fresh_folder(context)
    path, size = f"{folder}/file", 1_000_000
    contents = [letter * size for letter in (b"a", b"b")]
    await put(context, path, contents[0])
    seen: list[bool] = []

    async def look() -> None:
        while True:
            seen.append(await get(context, path) in contents)
            counted = await run(context, f"wc -c < {path}")
            seen.append(int(counted) == size)

    async def looked_enough() -> bool:
        return len(seen) >= ROUNDS

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        for round_ in range(ROUNDS):
            await put(context, path, contents[round_ % 2])
        assert await comes_true(looked_enough, seconds=PATIENCE_SECONDS)
        tasks.cancel_scope.cancel()

    assert all(seen)


async def a_cut_transfer_leaves_nothing(context: SandboxContext) -> None:
    """A source that breaks, or is shorter or longer than told, leaves no file."""
    folder, sandbox = await fresh_folder(context), context.sandbox

    async def breaking() -> AsyncIterator[bytes]:
        yield bytes(300_000)
        raise Unplugged

    for size in (300_001, 5_000_000, None):
        fault = await caught(sandbox.put(f"{folder}/new", breaking(), size=size))
        assert isinstance(fault, Unplugged), fault
        await _until_listed(context, folder, b"")
    for size, announced in ((10, 11), (11, 10), (2_000_000, 3_000_000), (0, 1)):
        fault = await caught(
            sandbox.put(f"{folder}/new", pieces(bytes(size)), size=announced)
        )
        assert isinstance(fault, TransferCut), fault
        assert fault.announced == announced
        await _until_listed(context, folder, b"")


async def a_cut_transfer_keeps_the_old(context: SandboxContext) -> None:
    """A file that could not be replaced stays as it was."""
    folder, sandbox = await fresh_folder(context), context.sandbox
    await put(context, f"{folder}/file", b"old")

    fault = await caught(
        sandbox.put(f"{folder}/file", pieces(bytes(2_000_000)), size=2_000_001)
    )

    assert isinstance(fault, TransferCut), fault
    assert await get(context, f"{folder}/file") == b"old"
    await _until_listed(context, folder, b"file\n")


async def a_cancelled_transfer_leaves_nothing(context: SandboxContext) -> None:
    """A transfer that is given up leaves no file, under no name."""
    folder, sandbox = await fresh_folder(context), context.sandbox
    half = anyio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield bytes(500_000)
        half.set()
        await anyio.sleep_forever()

    for size in (1_000_000, None):
        half = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def give(size: int | None = size) -> None:
                await sandbox.put(f"{folder}/new", stuck(), size=size)

            tasks.start_soon(give)
            with anyio.fail_after(PATIENCE_SECONDS):
                await half.wait()
            tasks.cancel_scope.cancel()

    await _until_listed(context, folder, b"")


async def a_reader_may_stop(context: SandboxContext) -> None:
    """Leaving a file half read disturbs nothing after it."""
    folder, content = await fresh_folder(context), secrets.token_bytes(5_000_000)
    await put(context, f"{folder}/file", content)

    async with context.sandbox.get(f"{folder}/file") as chunks:
        async for chunk in chunks:
            assert content.startswith(chunk)
            break

    assert await get(context, f"{folder}/file") == content


async def many_transfers_at_once(context: SandboxContext) -> None:
    """Transfers both ways share the way and do not mix."""
    folder = await fresh_folder(context)
    wrong: list[int] = []

    async def there_and_back(number: int) -> None:
        content = secrets.token_bytes(700_000 + number)
        await context.sandbox.put(f"{folder}/{number}", pieces(content))
        if await get(context, f"{folder}/{number}") != content:
            wrong.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(there_and_back, number)

    assert not wrong


async def a_full_disk_is_told(context: SandboxContext) -> None:
    """A file that does not fit is refused as such and leaves nothing."""
    full = context.full_folder
    assert full is not None
    for size in (FULL_BYTES, None):
        fault = await caught(
            context.sandbox.put(f"{full}/sub/new", pieces(bytes(FULL_BYTES)), size=size)
        )
        assert isinstance(fault, DiskFull), fault
    missing = await caught(context.sandbox.stat(f"{full}/sub/new"))
    assert isinstance(missing, FileMissing), missing
    await put(context, f"{full}/small", b"room again")


async def a_forbidden_folder_is_told(context: SandboxContext) -> None:
    """A folder that the user may not write to is no failure of the provider."""
    assert context.forbidden_folder is not None
    for size in (1, 2_000_000):
        path = f"{context.forbidden_folder}/new"
        fault = await caught(put(context, path, bytes(size)))
        assert isinstance(fault, FileForbidden), fault


async def _until_listed(context: SandboxContext, folder: str, listed: bytes) -> None:
    """Wait, within `MARGIN_SECONDS`, until the folder holds just that."""

    async def so() -> bool:
        return await run(context, f"ls -A {folder}") == listed

    assert await comes_true(so), await run(context, f"ls -A {folder}")


CASES: tuple[Case[SandboxContext], ...] = check_cases(
    (
        Case(
            name="every size arrives", run=every_size_arrives, field_cases=("FC-062",)
        ),
        Case(name="an unknown size streams", run=an_unknown_size_streams),
        Case(name="a file is replaced at once", run=a_file_is_replaced_at_once),
        Case(name="a cut transfer leaves nothing", run=a_cut_transfer_leaves_nothing),
        Case(name="a cut transfer keeps the old", run=a_cut_transfer_keeps_the_old),
        Case(
            name="a cancelled transfer leaves nothing",
            run=a_cancelled_transfer_leaves_nothing,
        ),
        Case(name="a reader may stop", run=a_reader_may_stop),
        Case(name="many transfers at once", run=many_transfers_at_once),
        Case(
            name="a full disk is told",
            run=a_full_disk_is_told,
            hooks=frozenset({"full_folder"}),
        ),
        Case(
            name="a forbidden folder is told",
            run=a_forbidden_folder_is_told,
            hooks=frozenset({"forbidden_folder"}),
        ),
    )
)
