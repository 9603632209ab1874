# SPDX-License-Identifier: Apache-2.0
"""`livery run --harness claude_code` from the first word to the report, with a stand-in."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ..entrypoints.command_lines import PROGRAM, rows_of, task, task_file
from ..harnesses.claude_code.scripted_model import scripted_model
from . import mending, stand_in

pytestmark = pytest.mark.anyio

RUN_SECONDS = 300.0
BREAK = "Ask a model that fails."
ANSWER = ("Bash", {"command": "echo 42 > answer"})


def choice(body: Mapping[str, Any]) -> Any:
    """Write the answer, then say so; or fail."""
    if BREAK in str(body["messages"][0]):
        return 529
    return ANSWER if len(body["messages"]) == 1 else "It is 42."


async def ran(folder: Path, *words: object, **env: str) -> tuple[int, str, str]:
    """Run a command line in a process of its own; return status and what it said."""
    with anyio.fail_after(RUN_SECONDS):
        ended = await anyio.run_process(
            [sys.executable, "-c", PROGRAM, *map(str, words)],
            check=False,
            cwd=folder,
            env={**os.environ, mending.KEY: mending.REAL, **env},
        )
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def written(folder: Path, **options: str) -> Path:
    """Write settings without a model's address; the command line has it."""
    path = folder / "livery.toml"
    given = {**stand_in.options_of(stand_in.make(folder)), **options}
    lines = "".join(f'{name} = "{value}"\n' for name, value in given.items())
    path.write_text(
        f'[state]\nfolder = "{folder}/state"\n'
        f'[model]\ncredential = {{env = "{mending.KEY}"}}\n'
        f"[harness.claude_code.options]\nmodel_retries = 0\n{lines}"
    )
    return path


async def test_a_run_needs_three_words_and_a_credential_that_is_named(
    tmp_path: Path,
) -> None:
    broken = task("broken")
    broken["task_input"]["responses_create_params"]["input"] = BREAK
    tasks = task_file(tmp_path, task("right"), broken)
    written(tmp_path)
    async with scripted_model(choice=choice) as model:
        status, said, told = await ran(
            tmp_path,
            *("run", tasks, "--harness", "claude_code", "--out", "out"),
            *("--model-url", model.url, "--model", "model-7"),
            *("--claude-code-version", stand_in.VERSION),
        )

    out = tmp_path / "out"
    rows = {row["task_id"]["task_id"]: row for row in rows_of(out)}
    results = {name: row["result"] for name, row in rows.items()}
    assert status == 1, told
    assert (results["right"]["reward"], results["right"]["mask_sample"]) == (1.0, False)
    assert (results["broken"]["reward"], results["broken"]["mask_sample"]) == (
        0.0,
        True,
    )
    runtime = results["right"]["livery"]["runtime"]
    assert (runtime["version"], runtime["came"]) == (stand_in.VERSION, "in place")
    assert runtime["path"] == str(tmp_path / "claude")
    assert stand_in.VERSION in said
    assert "Programs in the sandboxes" in said
    shelf = out / "artifacts" / rows["right"]["episode_id"]["rollout_id"]
    assert json.loads((shelf / "runtime.json").read_text()) == runtime
    lines = (shelf / "model-calls.jsonl").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    assert [(x["model"], x["end"]) for x in calls] == [("model-7", "answered")] * 2
    assert all(mending.REAL in head for head in model.heads)
    assert holding(mending.REAL, tmp_path) == []


def holding(text: str, folder: Path) -> list[str]:
    """Return the files below a folder that hold the text."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if text.encode() in path.read_bytes()]


async def test_a_run_goes_on_with_the_same_model(tmp_path: Path) -> None:
    tasks = task_file(tmp_path, task("right"))
    written(tmp_path)
    words = ("run", tasks, "--harness", "claude_code", "--out", "out")
    async with scripted_model(choice=choice) as model:
        first = await ran(tmp_path, *words, "--model-url", model.url)
        (tmp_path / "out" / "results.jsonl").write_text("")
        second = await ran(tmp_path, "run", "--resume", "out")

    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    (row,) = rows_of(tmp_path / "out")
    assert row["result"]["reward"] == 1.0
    assert len(model.asked) == 2, "what was graded was not run again"
    kept = json.loads((tmp_path / "out" / "run.json").read_text())
    assert kept["settings"]["model"]["url"] == model.url
    assert kept["settings"]["model"]["credential"]["env"] == mending.KEY


@pytest.mark.parametrize(
    ("words", "options", "told"),
    [
        ((), {}, "has no model"),
        (("--model-url", "ftp://x"), {}, "model.url is no address"),
        (
            ("--model-url", "http://127.0.0.1:9"),
            {"sandbox_executable_sha256": "ab" * 32},
            "cannot be had",
        ),
        (
            ("--model-url", "http://127.0.0.1:9", "--claude-code-version", "1.0.0"),
            {},
            "it says that it is version '9.9.9'",
        ),
    ],
    ids=["model", "address", "digest", "version"],
)
async def test_what_cannot_work_is_told_before_the_run_begins(
    tmp_path: Path, words: tuple[str, ...], options: dict[str, str], told: str
) -> None:
    tasks = task_file(tmp_path, task("right"))
    written(tmp_path, **options)

    status, _, said = await ran(
        tmp_path,
        *("run", tasks, "--harness", "claude_code", "--out", "out", *words),
    )

    assert (status, told in said) == (2, True), said
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "state").glob("sandboxes/*/workspace"))
