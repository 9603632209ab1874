# SPDX-License-Identifier: Apache-2.0
"""A results folder is one run's, whole after any kill, and one process's at a time."""

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.results_folder import (
    ResultsFolderRefused,
    RunCard,
    SourceCard,
    check_new,
    make_results_folder,
    open_results_folder,
    read_rows,
    read_run,
)
from livery.ports.required.result_log import ResultLogUnusable

from .rows import failure, result

pytestmark = pytest.mark.anyio

CARD = RunCard(
    run="run-1",
    livery="0.1.0",
    created_at="2026-01-01T00:00:00Z",
    source=SourceCard(name="tasks.jsonl", taskset="set", tasks=2, digest="ab"),
    harness="oracle",
    sandbox="local",
    repeats=1,
    limit=None,
    state="/state",
    settings={"sandbox": {"cpus": 1.5, "network": "none"}},
)


async def test_a_run_is_begun_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run"
    with make_results_folder(path, CARD) as folder:
        first = await folder.log.append(result("a"))
    with open_results_folder(path) as folder:
        await folder.log.append(failure("b"))
        folder.write("summary.json", "{}\n")
        records = folder.log.records()

    assert folder.card == CARD
    assert [record.episode.rollout_id for record in records] == ["a", "b"]
    assert records[0] == first
    assert sorted(os.listdir(path)) == [
        ".lock",
        "results.jsonl",
        "run.json",
        "summary.json",
    ]
    assert stat.S_IMODE((path / "run.json").stat().st_mode) == 0o600


async def test_many_appends_at_once_are_whole_lines(tmp_path: Path) -> None:
    with make_results_folder(tmp_path / "run", CARD) as folder:
        async with anyio.create_task_group() as group:
            for number in range(200):
                row = result(f"t{number}", reason="ä\ud800" * 2000)
                group.start_soon(folder.log.append, row)
        lines = (folder.path / "results.jsonl").read_bytes().splitlines()

    rollouts = {json.loads(line)["episode_id"]["rollout_id"] for line in lines}
    assert rollouts == {f"t{number}" for number in range(200)}


async def test_a_line_torn_by_a_kill_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with make_results_folder(path, CARD) as folder:
        await folder.log.append(result("a"))
        whole = (path / "results.jsonl").read_bytes()
    (path / "results.jsonl").write_bytes(whole + b"x" * 100_000)

    with open_results_folder(path) as folder:
        healed = folder.healed_bytes
        await folder.log.append(result("b"))
        records = folder.log.records()

    assert healed == 100_000
    assert [record.episode.rollout_id for record in records] == ["a", "b"]


async def test_a_whole_row_without_the_end_of_its_line_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with make_results_folder(path, CARD) as folder:
        for name in ("a", "b"):
            await folder.log.append(result(name, reason="ä" * 50_000))
    lines = path / "results.jsonl"
    # An editor or a script that put a line right left it so.
    lines.write_bytes(lines.read_bytes().removesuffix(b"\n"))
    told = [row.record.episode.rollout_id for row in read_rows(lines)]

    with open_results_folder(path) as folder:
        healed = folder.healed_bytes
        await folder.log.append(result("c"))
        records = folder.log.records()

    assert told == ["a", "b"]
    assert healed == 0
    assert [record.episode.rollout_id for record in records] == ["a", "b", "c"]


async def test_wherever_a_line_is_torn_the_rows_before_it_stand(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with make_results_folder(path, CARD) as folder:
        await folder.log.append(result("a"))
        first = len((path / "results.jsonl").read_bytes())
        await folder.log.append(result("b"))
        whole = (path / "results.jsonl").read_bytes()

    for size in range(first, len(whole)):
        (path / "results.jsonl").write_bytes(whole[:size])
        with open_results_folder(path) as folder:
            names = [each.episode.rollout_id for each in folder.log.records()]
        is_whole = size == len(whole) - 1
        assert names == ["a", *["b"] * is_whole]
        assert folder.healed_bytes == (0 if is_whole else size - first)


async def test_what_a_kill_left_half_written_keeps_no_run_from_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    path.mkdir()
    half = path / ".part-run.json-k1ll3d__"
    half.write_text('{"run"')

    with make_results_folder(path, CARD):
        left_by_begin = half.exists()
        half.write_text("{")
    with open_results_folder(path) as folder:
        names = sorted(os.listdir(path))

    assert not left_by_begin
    assert names == [".lock", "results.jsonl", "run.json"]
    assert folder.card == CARD


def test_somebody_s_own_half_file_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / ".part-thesis"
    theirs.write_text("chapter")

    with pytest.raises(ResultsFolderRefused, match=r"it holds \.part-thesis"):
        check_new(tmp_path)

    assert theirs.read_text() == "chapter"


def test_a_half_file_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with make_results_folder(path, CARD):
        pass
    (path / ".part-summary.json-1").mkdir()

    with (
        pytest.raises(ResultLogUnusable, match="cannot be used"),
        open_results_folder(path),
    ):
        pass


async def test_what_is_no_utf_8_is_written_and_read_back(tmp_path: Path) -> None:
    """A byte of a file's name, or a text that others cut within a character."""
    half = "h\udcff\ud83d"
    card = attrs.evolve(CARD, state=half)
    with make_results_folder(tmp_path / "run", card) as folder:
        await folder.log.append(failure("a", reason=half))
        folder.write("summary.json", json.dumps({half: 1}, ensure_ascii=False))
        text = (folder.path / "summary.json").read_text()

    assert read_run(tmp_path / "run") == card
    assert json.loads(text) == {half: 1}


@pytest.mark.keeps("descriptors", reason="the limit is lifted after the write failed")
async def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with make_results_folder(tmp_path / "run", CARD) as folder:
        await folder.log.append(result("a"))
        size = (folder.path / "results.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
        try:
            with pytest.raises(ResultLogUnusable, match="File too large"):
                await folder.log.append(result("b"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        await folder.log.append(result("c"))
        records = folder.log.records()

    assert [record.episode.rollout_id for record in records] == ["a", "c"]


async def test_what_a_full_disk_did_not_take_is_cut_off_before_the_next_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, truncate = os.write, os.ftruncate
    broken = [True]

    def half(descriptor: int, content: bytes) -> int:
        if not broken[0]:
            return write(descriptor, content)
        if len(content) > 20:
            return write(descriptor, content[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    def not_now(descriptor: int, size: int) -> None:
        if broken[0]:
            raise OSError(errno.EIO, "Input/output error")
        truncate(descriptor, size)

    with make_results_folder(tmp_path / "run", CARD) as folder:
        await folder.log.append(result("a"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", half)
            patched.setattr(os, "ftruncate", not_now)
            for name in ("b", "c"):
                with pytest.raises(ResultLogUnusable):
                    await folder.log.append(result(name))
            broken[0] = False
            await folder.log.append(result("d"))
        found = [record.episode.rollout_id for record in folder.log.records()]

    assert found == ["a", "d"]


def test_the_names_that_lead_to_results_are_put_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", sync)
    path = tmp_path / "new" / "run"
    with make_results_folder(path, CARD):
        pass

    assert {path, path.parent, tmp_path} <= set(synced)


async def test_a_write_that_fails_fails_for_all_who_shared_it(tmp_path: Path) -> None:
    """A row that a full disk did not take is told to nobody as kept."""
    path, names = tmp_path / "run", [f"t{number}.r0" for number in range(6)]
    kept: list[str] = []
    failures: list[ResultLogUnusable] = []
    with make_results_folder(path, CARD) as folder:

        async def append(name: str) -> None:
            try:
                kept.append((await folder.log.append(result(name))).episode.rollout_id)
            except ResultLogUnusable as failure:
                failures.append(failure)

        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
        try:
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(append, name)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        found = [record.episode.rollout_id for record in folder.log.records()]

    assert len(failures) + len(kept) == len(names)
    assert kept == found == []
    assert len(set(map(id, failures))) == len(failures)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    program = (
        "import sys; from pathlib import Path\n"
        "from livery.adapters.results_folder import open_results_folder\n"
        "with open_results_folder(Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with make_results_folder(path, CARD):
        pass
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"

        with (
            pytest.raises(ResultsFolderRefused, match=f"in use by process {other.pid}"),
            open_results_folder(path),
        ):
            pass
        other.kill()

    with open_results_folder(path) as folder:
        assert folder.card == CARD


def test_a_folder_that_is_not_new_is_left_alone(tmp_path: Path) -> None:
    with make_results_folder(tmp_path / "run", CARD):
        pass
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))

    def reason(name: str) -> str:
        with pytest.raises(ResultsFolderRefused) as caught:
            check_new(tmp_path / name)
        return str(caught.value)

    assert "holds the results of a run already" in reason("run")
    assert "--resume" in reason("run")
    assert "is not a folder" in reason("file")
    assert "is not empty: it holds thesis.tex and 1 more" in reason("full")
    check_new(tmp_path / "empty")
    check_new(tmp_path / "none")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_holds_no_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    texts = {
        "damaged": "{",
        "long": '{"format": ' + "9" * 5000 + "}",
        "other": '{"name": "x"}',
        "newer": '{"format": 99}',
        "wrong": json.dumps({"format": 1, **attrs.asdict(CARD), "repeats": "1"}),
        "extra": json.dumps({"format": 1, **attrs.asdict(CARD), "more": 1}),
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)

    def reason(name: str) -> str:
        with pytest.raises(ResultsFolderRefused) as caught:
            read_run(tmp_path / name)
        return str(caught.value)

    assert "it has no run.json" in reason(".")
    assert "it is not a folder" in reason("file")
    assert "it is not a folder" in reason("none")
    assert "cannot be read: Expecting" in reason("damaged")
    assert reason("long").endswith(
        "cannot be read: it holds a number of too many digits."
        " Use the Livery that wrote it."
    )
    assert "does not say that it is a run of Livery" in reason("other")
    assert "it has format 99, and this version reads 1" in reason("newer")
    assert "expected int @ $.repeats" in reason("wrong")
    assert "extra fields found (more)" in reason("extra")


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("n" * 300, "cannot be used: File name too long"),
        (f"new/deep/{'n' * 300}", "cannot be used: File name too long"),
        ("file/run", "cannot be used: Not a directory"),
        ("/dev/null/run", "cannot be used: Not a directory"),
        ("/proc/run", "cannot be used: No such file or directory"),
    ],
)
def test_a_folder_that_cannot_be_made_is_told_and_nothing_is_left(
    tmp_path: Path, where: str, told: str
) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(ResultsFolderRefused, match=told),
        make_results_folder(tmp_path / where, CARD),
    ):
        pass

    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("before", [(), ("new",), ("new", "new/deep")])
@pytest.mark.parametrize("bytes_max", [0, 20])
def test_a_folder_that_takes_no_files_is_left_as_it_was(
    tmp_path: Path, before: tuple[str, ...], bytes_max: int
) -> None:
    for name in before:
        (tmp_path / name).mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, limits[1]))
    try:
        with (
            pytest.raises(ResultsFolderRefused, match="File too large"),
            make_results_folder(tmp_path / "new" / "deep", CARD),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)

    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == sorted(before)
