# SPDX-License-Identifier: Apache-2.0
"""A program that is a file of this host: its digest decides, and it is packed once."""

import gzip
import hashlib
from pathlib import Path

import anyio
import pytest

from livery.adapters.local_runtimes import LocalRuntimeSource
from livery.adapters.runtime_cache import Entry
from livery.ports.required.runtime_source import Packing, RuntimeUnavailable

from .registry import GLIBC, NAME, VERSION, cache_in, program_text

pytestmark = pytest.mark.anyio


def local(folder: Path, program: bytes) -> LocalRuntimeSource:
    path = folder / "claude"
    path.write_bytes(program)
    path.chmod(0o755)
    return LocalRuntimeSource(
        path=path,
        sha256=hashlib.sha256(program).hexdigest().upper(),
        cache=cache_in(folder),
    )


async def test_the_file_is_the_program(tmp_path: Path) -> None:
    program = program_text(9_000_000)
    source = local(tmp_path, program)

    runtime = await source.obtain(NAME, VERSION, GLIBC)

    form = await source.packed(runtime)
    async with source.open_packed(runtime) as opened:
        packed = await opened.piece(0, form.packed_size + 1)
    assert await source.host_path(runtime) == str(tmp_path / "claude")
    assert (form.packing, form.size) == (Packing.GZIP, len(program))
    assert hashlib.sha256(packed).hexdigest() == form.packed_sha256
    assert gzip.decompress(packed) == program


async def test_it_is_read_once_and_packed_once(tmp_path: Path) -> None:
    source = local(tmp_path, program_text(1000))

    async def seed() -> None:
        runtime = await source.obtain(NAME, VERSION, GLIBC)
        await source.packed(runtime)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(seed)

    assert source.digests.reads == 1
    (entry,) = source.cache.entries()
    assert isinstance(entry, Entry)
    assert not entry.record.holds_program
    assert not entry.program.exists()


async def test_another_process_finds_it_packed(tmp_path: Path) -> None:
    program = program_text()
    first = local(tmp_path, program)
    form = await first.packed(await first.obtain(NAME, VERSION, GLIBC))

    again = local(tmp_path, program)

    assert await again.packed(await again.obtain(NAME, VERSION, GLIBC)) == form


async def test_a_link_is_followed_since_the_digest_decides(tmp_path: Path) -> None:
    source = local(tmp_path, program_text())
    source.path.rename(tmp_path / "real")
    source.path.symlink_to(tmp_path / "real")

    assert await source.obtain(NAME, VERSION, GLIBC)


async def test_another_file_is_told_with_both_digests(tmp_path: Path) -> None:
    source = local(tmp_path, program_text())
    runtime = await source.obtain(NAME, VERSION, GLIBC)
    source.path.write_bytes(b"other")
    found = hashlib.sha256(b"other").hexdigest()[:12]

    with pytest.raises(RuntimeUnavailable, match=found):
        await source.host_path(runtime)


async def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    source = local(tmp_path, program_text())
    runtime = await source.obtain(NAME, VERSION, GLIBC)
    source.path.unlink()

    with pytest.raises(RuntimeUnavailable, match="No such file"):
        await source.obtain(NAME, VERSION, GLIBC)
    with pytest.raises(RuntimeUnavailable, match="No such file"):
        await source.packed(runtime)
    assert not list(source.cache.entries())
