# SPDX-License-Identifier: Apache-2.0
"""Programs from a registry: what came is what was announced, or nothing is there."""

import gzip
import hashlib
import os
import stat
from pathlib import Path

import anyio
import anyio.lowlevel
import attrs
import pytest

from livery.adapters.npm_registry import Bounds, NpmSettings
from livery.adapters.npm_registry.source import NpmRegistryRuntimeSource
from livery.adapters.runtime_cache import Leftover, RuntimeCacheUnusable
from livery.domain.runtimes import Platform
from livery.ports.required.runtime_source import Packing, RuntimeUnavailable

from .registry import (
    GLIBC,
    MUSL,
    NAME,
    PACKAGE,
    VERSION,
    Answer,
    cache_in,
    integrity,
    program_text,
    registry,
    source_over,
    tarball,
)

pytestmark = pytest.mark.anyio
SMALL = Bounds()


def nothing_is_there(folder: Path) -> bool:
    cache = cache_in(folder)
    return cache.find(NAME, VERSION, GLIBC) is None and not list(cache.entries())


async def test_a_program_is_fetched_verified_and_kept(tmp_path: Path) -> None:
    program = program_text(5000)
    packed = tarball(program)
    async with registry() as served:
        served.publish(packed)
        source = source_over(served, tmp_path)

        runtime = await source.obtain(NAME, VERSION, GLIBC)

        path = Path(await source.host_path(runtime))
        form = await source.packed(runtime)
        async with source.open_packed(runtime) as opened:
            pieces = [await opened.piece(0, 100), await opened.piece(100, len(packed))]
    assert runtime.sha256 == hashlib.sha256(program).hexdigest()
    assert path.read_bytes() == program
    assert stat.S_IMODE(path.stat().st_mode) == 0o555
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert form.packing is Packing.GZIP
    assert gzip.decompress(packed)[form.offset :].startswith(program)
    assert (form.size, form.packed_size) == (len(program), len(packed))
    assert form.packed_sha256 == hashlib.sha256(packed).hexdigest()
    assert b"".join(pieces) == packed


async def test_what_is_in_the_cache_is_not_asked_for_again(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()))
        first = source_over(served, tmp_path)
        runtime = await first.obtain(NAME, VERSION, GLIBC)
        asked = len(served.asked)
        second = source_over(served, tmp_path)

        again = await second.obtain(NAME, VERSION, GLIBC)

        assert again == runtime
        assert len(served.asked) == asked
    assert first.digests.reads == 0, "what was written need not be read"
    assert second.digests.reads == 1


async def test_twenty_who_come_at_once_fetch_and_read_it_once(tmp_path: Path) -> None:
    async with registry() as served:
        path = served.publish(tarball(program_text()))
        sources = [source_over(served, tmp_path) for _ in range(2)]

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                source = sources[number % 2]
                tasks.start_soon(source.obtain, NAME, VERSION, GLIBC)

        assert served.asked.count(path) == 1
    assert sum(source.digests.reads for source in sources) == 1


async def test_who_waited_for_an_attempt_shares_its_failure(tmp_path: Path) -> None:
    async with registry() as served:
        path = served.publish(tarball(program_text()), integrity=integrity(b"other"))
        served.gate = anyio.Event()
        source = source_over(served, tmp_path)
        failures: list[RuntimeUnavailable] = []

        async def obtain() -> None:
            with pytest.raises(RuntimeUnavailable) as caught:
                await source.obtain(NAME, VERSION, GLIBC)
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(obtain)
            while path not in served.asked:
                await anyio.lowlevel.checkpoint()
            served.gate.set()

        assert served.asked.count(path) == 1
        assert len(failures) == 5
        served.publish(tarball(program_text()))
        await source.obtain(NAME, VERSION, GLIBC)  # A failure can be tried again.


async def test_another_file_than_was_announced_leaves_nothing(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()), integrity=integrity(b"other"))

        with pytest.raises(RuntimeUnavailable, match="integrity"):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

    assert nothing_is_there(tmp_path)


@pytest.mark.parametrize(
    "told",
    ["", "sha1-abc", "sha512-???", "sha512-YWJj", "md5-x sha256-y"],
)
async def test_without_a_sha512_nothing_is_fetched(tmp_path: Path, told: str) -> None:
    async with registry() as served:
        path = served.publish(tarball(program_text()), integrity=told)

        with pytest.raises(RuntimeUnavailable, match="sha512"):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

        assert path not in served.asked


async def test_of_several_digests_the_sha512_counts(tmp_path: Path) -> None:
    packed = tarball(program_text())
    async with registry() as served:
        served.publish(packed, integrity=f"sha1-abc {integrity(packed)}?x")

        assert await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


async def test_a_download_that_is_cut_is_begun_again(tmp_path: Path) -> None:
    packed = tarball(program_text(2000))
    async with registry() as served:
        path = served.publish(packed)
        served.answers[path].insert(0, Answer(body=packed, cut=500))

        assert await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

        assert served.asked.count(path) == 2


async def test_one_that_is_always_cut_leaves_nothing(tmp_path: Path) -> None:
    packed = tarball(program_text(2000))
    async with registry() as served:
        path = served.publish(packed)
        served.answers[path] = [Answer(body=packed, cut=1)]

        with pytest.raises(RuntimeUnavailable, match="broke off"):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

    assert nothing_is_there(tmp_path)


async def test_a_registry_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    packed = tarball(program_text())
    async with registry() as served:
        path = served.publish(packed)
        served.answers[path].insert(0, Answer(status=503))

        assert await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


async def test_one_that_never_has_the_tarball_is_given_up(tmp_path: Path) -> None:
    async with registry() as served:
        path = served.publish(tarball(program_text()))
        served.answers[path] = [Answer(status=404)]

        with pytest.raises(RuntimeUnavailable, match="404 for its tarball"):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


async def test_a_redirect_is_followed(tmp_path: Path) -> None:
    packed = tarball(program_text())
    async with registry() as served:
        path = served.publish(packed)
        served.answers[path] = [Answer(status=302, headers=("location: /elsewhere",))]
        served.answers["/elsewhere"] = [Answer(body=packed)]

        assert await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("file:///etc/passwd", "cannot be asked"),
        ("http://x:port/", "Invalid port"),
        ("", "cannot be asked"),
        ("again", "more than"),
    ],
)
async def test_a_redirect_that_leads_nowhere_is_told(
    tmp_path: Path, location: str, told: str
) -> None:
    async with registry() as served:
        path = served.publish(tarball(program_text()))
        moved = Answer(status=301, headers=(f"location: {location}",))
        served.answers[path] = [moved]
        there = f"{path.rpartition('/')[0]}/again"
        served.answers[there] = [Answer(status=307, headers=(f"location: {path}",))]

        with pytest.raises(RuntimeUnavailable, match=told):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


async def test_a_mirror_is_asked_under_its_own_address(tmp_path: Path) -> None:
    packed = tarball(program_text())
    async with registry() as served:
        path = served.publish(packed)
        mirrored = path.removeprefix("/npm")
        elsewhere = f"http://registry.invalid{mirrored}"
        served.publish(packed, tarball=elsewhere)

        assert await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

        assert served.asked[-1] == path


async def test_a_tarball_elsewhere_is_had_when_the_registry_has_none(
    tmp_path: Path,
) -> None:
    packed = tarball(program_text())
    async with registry() as served, registry() as other:
        path = served.publish(packed)
        del served.answers[path]
        other.publish(packed)
        served.publish(packed, tarball=f"http://127.0.0.1:{other.port}{path}")
        served.answers.pop(path)

        assert await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

        assert other.asked == [path]


async def test_a_version_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with registry() as served:
        with pytest.raises(RuntimeUnavailable, match="no such version"):
            await source_over(served, tmp_path).obtain(NAME, "9.9.9", GLIBC)


@pytest.mark.parametrize("version", ["latest", "1.2", "^1.2.3", "1.2.3/../x", ""])
async def test_only_an_exact_version_is_asked_for(tmp_path: Path, version: str) -> None:
    async with registry() as served:
        with pytest.raises((RuntimeUnavailable, RuntimeCacheUnusable)):
            await source_over(served, tmp_path).obtain(NAME, version, GLIBC)

        assert not served.asked


@pytest.mark.parametrize(
    ("name", "platform", "told"),
    [
        ("other", GLIBC, "no package is known that holds it"),
        (NAME, Platform(system="linux", machine="riscv64", libc="glibc"), "platform"),
        (NAME, Platform(system="linux", machine="x86_64", libc="none"), "platform"),
        (NAME, Platform(system="darwin", machine="x86_64", libc="glibc"), "platform"),
    ],
)
async def test_what_has_no_package_is_told(
    tmp_path: Path, name: str, platform: Platform, told: str
) -> None:
    async with registry() as served:
        with pytest.raises(RuntimeUnavailable, match=told):
            await source_over(served, tmp_path).obtain(name, VERSION, platform)


@pytest.mark.case("FC-212")
async def test_musl_has_a_package_of_its_own(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()), package=f"{PACKAGE}-musl")

        runtime = await source_over(served, tmp_path).obtain(NAME, VERSION, MUSL)

        assert runtime.platform == MUSL


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"name":"x","version":"1.2.3","dist":{"tarball":"y"}}', "another package"),
        (
            b'{"name":"%s","version":"1.2.3","dist":{"tarball":7}}' % PACKAGE.encode(),
            "cannot be read",
        ),
    ],
)
async def test_an_answer_that_is_none_is_told(
    tmp_path: Path, body: bytes, told: str
) -> None:
    async with registry() as served:
        served.answers[f"/npm/{PACKAGE}/{VERSION}"] = [Answer(body=body)]

        with pytest.raises(RuntimeUnavailable, match=told):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


@pytest.mark.parametrize("which", ["document", "tarball", "program"])
async def test_what_is_too_large_is_refused(tmp_path: Path, which: str) -> None:
    bounds = attrs.evolve(SMALL, **{f"{which}_bytes": 100})
    async with registry() as served:
        served.publish(tarball(program_text(500)))
        source = source_over(served, tmp_path)
        source.bounds = bounds

        with pytest.raises(RuntimeUnavailable, match=r"too long|is larger than 100"):
            await source.obtain(NAME, VERSION, GLIBC)

    assert nothing_is_there(tmp_path)


async def test_a_registry_that_forbids_is_told(tmp_path: Path) -> None:
    async with registry() as served:
        served.answers[f"/npm/{PACKAGE}/{VERSION}"] = [Answer(status=401)]

        with pytest.raises(RuntimeUnavailable, match="answered 401"):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)


async def test_a_registry_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with registry() as served:
        gone = served.url
    source = NpmRegistryRuntimeSource(
        cache=cache_in(tmp_path),
        settings=lambda scope: NpmSettings(registry=gone),
        pause_seconds=0.0,
    )

    with pytest.raises(RuntimeUnavailable, match="does not answer"):
        await source.obtain(NAME, VERSION, GLIBC)


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (tarball(b"", member="package/other"), "has no package/claude"),
        (tarball(b"", link=True), "has no package/claude"),
        (b"no tarball at all", "cannot be unpacked"),
        (tarball(program_text(90_000))[:50_000], "cannot be unpacked"),
    ],
)
async def test_a_tarball_without_the_program_leaves_nothing(
    tmp_path: Path, packed: bytes, told: str
) -> None:
    async with registry() as served:
        served.publish(packed)

        with pytest.raises(RuntimeUnavailable, match=told):
            await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

    assert nothing_is_there(tmp_path)


async def test_a_fetch_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async with registry() as served:
        path = served.publish(tarball(program_text()))
        served.gate = anyio.Event()
        source = source_over(served, tmp_path)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.obtain, NAME, VERSION, GLIBC)
            while path not in served.asked:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

        assert nothing_is_there(tmp_path)
        served.gate.set()
        assert await source.obtain(NAME, VERSION, GLIBC)


async def test_what_a_killed_fetch_left_is_seen_and_cleared(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()))
        cache = cache_in(tmp_path)
        left = cache.root / f".part-{NAME}-{VERSION}-{GLIBC.word}-0123"
        for folder in (cache.root.parent.parent, cache.root.parent, cache.root, left):
            folder.mkdir(mode=0o700)
        (left / "claude").write_bytes(b"half")

        before = list(cache.entries())
        await source_over(served, tmp_path).obtain(NAME, VERSION, GLIBC)

    assert [type(one) for one in before] == [Leftover]
    assert not left.exists()


async def test_a_changed_file_is_read_again_and_refused(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()))
        source = source_over(served, tmp_path)
        runtime = await source.obtain(NAME, VERSION, GLIBC)
        path = Path(await source.host_path(runtime))
        text = path.read_bytes()
        path.chmod(0o755)
        path.write_bytes(text.replace(b"Fake", b"Evil"))
        path.chmod(0o555)

        with pytest.raises(RuntimeUnavailable, match="was changed"):
            await source.host_path(runtime)
        with pytest.raises(RuntimeUnavailable, match="was changed"):
            await source.obtain(NAME, VERSION, GLIBC)


async def test_a_changed_packed_form_is_refused(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()))
        source = source_over(served, tmp_path)
        runtime = await source.obtain(NAME, VERSION, GLIBC)
        path = Path(await source.host_path(runtime)).with_name("claude.packed")
        path.write_bytes(b"other")

        with pytest.raises(RuntimeUnavailable, match="was changed"):
            await source.packed(runtime)


async def test_a_file_that_is_touched_is_read_again_and_good(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()))
        source = source_over(served, tmp_path)
        runtime = await source.obtain(NAME, VERSION, GLIBC)
        path = await source.host_path(runtime)
        os.utime(path)

        await source.host_path(runtime)
        await source.host_path(runtime)

    assert source.digests.reads == 1


async def test_what_was_pruned_is_told_and_fetched_anew(tmp_path: Path) -> None:
    async with registry() as served:
        served.publish(tarball(program_text()))
        source = source_over(served, tmp_path)
        runtime = await source.obtain(NAME, VERSION, GLIBC)
        (entry,) = source.cache.entries()
        source.cache.remove(entry)

        with pytest.raises(RuntimeUnavailable, match="no longer in the cache"):
            await source.packed(runtime)

        assert await source.obtain(NAME, VERSION, GLIBC) == runtime
