# SPDX-License-Identifier: Apache-2.0
"""Who reads what is told may go: a run goes on to its end, and its status stays."""

import fcntl
import io
import json
import os
import select
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from livery.entrypoints.command_line.outputs import LastingFile

from .command_lines import (
    Ended,
    Livery,
    open_claims,
    rewards,
    sandboxes,
    started,
    task,
    task_file,
)

PATIENCE_SECONDS = 60.0


def redirected(how: str) -> tuple[str, ...]:
    """Return the words that have a shell redirect the outputs of those behind them."""
    return ("sh", "-c", f'exec "$@" {how}', "sh")


def run_redirected(folder: Path, state: Path, how: str) -> Ended:
    """Run one task into the folder `o`, with the outputs redirected."""
    with started(
        *("run", task_file(folder, task("a")), "--out", "o"),
        cwd=folder,
        within=redirected(how),
        XDG_STATE_HOME=str(state.parent),
    ) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return Ended(process.returncode, out, err)


@pytest.mark.parametrize("lost", [("stderr",), ("stdout",), ("stderr", "stdout")])
def test_a_run_whose_reader_has_gone_is_finished(
    tmp_path: Path, state: Path, lost: tuple[str, ...]
) -> None:
    names = [f"t{number}" for number in range(6)]
    tasks = task_file(tmp_path, *map(task, names))
    with started(
        *("run", tasks, "--out", "o", "--concurrency", 2),
        cwd=tmp_path,
        XDG_STATE_HOME=str(state.parent),
    ) as process:
        assert process.stderr
        process.stderr.readline()
        for name in lost:
            getattr(process, name).close()
        process.wait(timeout=PATIENCE_SECONDS)

    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert process.returncode == 0
    assert rewards(tmp_path / "o") == dict.fromkeys(names, 1.0)
    assert summary["all"]["passed"] == len(names)
    assert sandboxes(state) == []
    assert open_claims(state) == ()


@pytest.mark.parametrize("how", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_run_that_never_had_an_output_is_finished(
    tmp_path: Path, state: Path, how: str
) -> None:
    ended = run_redirected(tmp_path, state, how)

    assert ended.status == 0
    assert rewards(tmp_path / "o") == {"a": 1.0}
    assert (tmp_path / "o" / "summary.json").exists()
    assert sandboxes(state) == []


def test_a_full_disk_behind_standard_error_is_not_the_run_s(
    tmp_path: Path, state: Path
) -> None:
    ended = run_redirected(tmp_path, state, "2>/dev/full")

    assert ended.status == 0
    assert "1 of 1 passed" in ended.out


def test_a_report_whose_reader_has_gone_is_no_mistake(
    livery: Livery, tmp_path: Path
) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")

    with started("report", "o", cwd=tmp_path) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0
    assert err == ""


def test_a_run_whose_tables_cannot_be_written_says_where_they_are(
    tmp_path: Path, state: Path
) -> None:
    ended = run_redirected(tmp_path, state, ">/dev/full")

    told = " ".join(ended.err.split())
    assert ended.status == 1
    assert "Standard output could not be written to: No space left on device." in told
    assert "The results are in o; `livery report o` prints them." in told
    assert "mistake in Livery" not in told
    assert "Sandboxes may be left" not in told
    assert (tmp_path / "o" / "summary.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "o"), "The results are in o; `livery report o` prints them."),
        (("--version",), "What it was told is not whole."),
    ],
)
def test_whatever_cannot_be_printed_is_told(
    livery: Livery, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    livery("run", task_file(tmp_path, task("a")), "--out", "o")

    with started(*words, cwd=tmp_path, within=redirected(">/dev/full")) as process:
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert "Standard output could not be written to: No space left on device." in err
    assert told in err
    assert "mistake in Livery" not in err


@pytest.mark.parametrize("writes", [[200_000], [100] * 2_000, [4096, 5000, 1] * 20])
def test_an_output_that_does_not_wait_is_waited_for(writes: list[int]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # As who shares it may have made it: Node.js, ssh.
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    file = LastingFile(writing, "w")
    said = [bytes([65 + n % 26]) * size for n, size in enumerate(writes)]

    def say() -> None:
        with io.BufferedWriter(file) as out:
            for text in said:
                out.write(text)
                out.flush()

    with open(reading, "rb") as reader, ThreadPoolExecutor(1) as threads:
        saying = threads.submit(say)
        heard = reader.read()
        saying.result(timeout=PATIENCE_SECONDS)

    assert file.failure is None
    assert heard == b"".join(said)


def test_an_output_that_does_not_wait_may_lose_its_reader() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with LastingFile(writing, "w") as file:
        while file.write(b"x" * 4096) and not _is_full(writing):
            pass
        with ThreadPoolExecutor(1) as threads:
            saying = threads.submit(file.write, b"more")
            os.close(reading)
            saying.result(timeout=PATIENCE_SECONDS)

        assert isinstance(file.failure, BrokenPipeError)


def _is_full(writing: int) -> bool:
    room = select.poll()
    room.register(writing, select.POLLOUT)
    return not room.poll(0)
