# SPDX-License-Identifier: Apache-2.0
"""Names in configuration lead to plug-ins, and never to the wrong one."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from livery.entrypoints.built_in import HARNESSES, PROVIDERS
from livery.entrypoints.plug_ins import (
    BuiltIn,
    ExtraMissing,
    HarnessPlugIn,
    NoOptions,
    PlugInBroken,
    PlugInTwice,
    PlugInUnknown,
    ProviderPlugIn,
    Surroundings,
    find,
    provider_plug_in,
    published_mistakes,
)
from livery.ports.required.sandbox_provider import SandboxProvider

from ..entrypoints.command_lines import Livery, rewards
from .conftest import Install

PROVIDER_GROUP = "livery.sandbox_providers"


def test_another_distribution_runs_with_its_own_parts(
    installed: Install, livery: Livery, tmp_path: Path, state: Path
) -> None:
    installed()
    (tmp_path / "livery.toml").write_text(
        '[run]\nharness = "two"\nsandbox = "shed"\n'
        '[harness.two]\nharness = "typist"\noptions = {text = "2"}\n'
    )

    ended = livery("run", "numbers:3", "--out", "o")
    solved = livery("run", "numbers:2", "--out", "s", "--harness", "oracle")

    assert ended.status == 0, ended.err
    assert rewards(tmp_path / "o") == {"1": 0.0, "2": 1.0, "3": 0.0}
    assert solved.status == 0, solved.err
    assert rewards(tmp_path / "s") == {"1": 1.0, "2": 1.0}
    assert list((state / "shed").iterdir()) == []


def test_its_world_reads_tasks_from_a_file_also_where_it_knows_no_solutions(
    installed: Install, livery: Livery, tmp_path: Path
) -> None:
    installed()
    (tmp_path / "livery.toml").write_text('[run]\nworld = "till"\n')
    rows = [
        {
            "task_id": {"taskset": "tills", "task_id": str(amount)},
            "task_input": {
                "responses_create_params": {"input": "x"},
                "task_data": {"sum": amount},
            },
        }
        for amount in (1, "2")
    ]
    (tmp_path / "right.jsonl").write_text(json.dumps(rows[0]))
    (tmp_path / "wrong.jsonl").write_text(json.dumps(rows[1]))

    ran = livery("run", "right.jsonl", "--out", "o", "--harness", "nop")
    oracle = livery("run", "right.jsonl", "--harness", "oracle")
    wrong = livery("run", "wrong.jsonl", "--harness", "nop")

    assert ran.status == 0, ran.err
    assert rewards(tmp_path / "o") == {"1": 0.0}
    assert oracle.status == wrong.status == 2
    assert "Task 1 of tills has no reference solution" in oracle.err
    assert "line 1: task_input.task_data.sum: must be a whole number" in wrong.err


def test_its_options_and_arguments_are_read_as_strictly_as_ours(
    installed: Install, livery: Livery, tmp_path: Path
) -> None:
    installed()
    (tmp_path / "livery.toml").write_text(
        '[harness.typist]\noptions = {txt = "2"}\n'
        '[sandbox.shed]\noptions = {sandboxes_max = 0, key = "sk-secret"}\n'
    )

    ended = livery("config", "check")
    ran = livery("run", "numbers:1", "--harness", "typist", "--sandbox", "shed")
    words = livery("run", "numbers:x")

    assert ended.status == ran.status == words.status == 2
    for told in (
        "line 2: harness.typist.options.txt: is unknown; did you mean text?",
        "line 2: harness.typist.options.text: is needed and missing",
        "line 4: sandbox.shed.options.sandboxes_max: wants a number at least 1, found 0",
        "line 4: sandbox.shed.options.key: wants a reference",
    ):
        assert told in ended.err
        assert told in ran.err
    assert "sk-secret" not in ended.err
    assert "'x' is not a number from 1 to 1000" in words.err


@pytest.mark.case("FC-254")
def test_what_is_unset_is_told_for_the_blocks_that_are_used(
    installed: Install, livery: Livery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()
    monkeypatch.delenv("SHED_KEY", raising=False)
    (tmp_path / "livery.toml").write_text(
        '[sandbox.one]\nprovider = "shed"\noptions = {key = {env = "SHED_KEY"}}\n'
        '[sandbox.two]\nprovider = "shed"\noptions = {key = {file = "/no/key"}}\n'
    )

    checked = livery("config", "check")
    unused = livery("run", "numbers:1", "--out", "a")
    used = livery("run", "numbers:1", "--out", "b", "--sandbox", "one")
    monkeypatch.setenv("SHED_KEY", "s3cret")
    found = livery("run", "numbers:1", "--out", "c", "--sandbox", "one")

    assert checked.status == 2
    assert "environment variable SHED_KEY is not set" in checked.err
    assert "there is no file /no/key" in checked.err
    assert unused.status == 0, unused.err
    assert used.status == 2
    assert "line 3: sandbox.one.options.key: environment variable SHED_KEY" in used.err
    assert found.status == 0, found.err
    assert "s3cret" not in (tmp_path / "c" / "run.json").read_text()


def test_names_of_ours_cannot_be_taken(installed: Install, livery: Livery) -> None:
    installed(**{f"{PROVIDER_GROUP}/local": "livery_sample.shed:PLUG_IN"})

    found = find(ProviderPlugIn, "local", PROVIDERS)

    assert "LocalOptions" in found.options.__name__
    (told,) = published_mistakes(ProviderPlugIn, PROVIDERS)
    assert told == (
        "The sandbox provider 'local' of livery-sample 1.0 is hidden: the name is one"
        " of Livery's own."
    )


def test_a_name_that_two_distributions_claim_belongs_to_neither(
    installed: Install,
) -> None:
    installed()
    installed("other-sample")

    with pytest.raises(PlugInTwice) as caught:
        find(HarnessPlugIn, "typist", HARNESSES)

    assert "livery-sample 1.0 and other-sample 1.0" in str(caught.value)
    assert any("typist" in told for told in published_mistakes(HarnessPlugIn, {}))


def test_what_cannot_be_loaded_is_told_with_its_distribution(
    installed: Install,
) -> None:
    installed(
        **{
            f"{PROVIDER_GROUP}/gone": "no_such_module:X",
            f"{PROVIDER_GROUP}/wrong": "livery_sample.typist:PLUG_IN",
        }
    )

    with pytest.raises(
        PlugInBroken, match=r"livery-sample 1\.0 cannot be used: no_such"
    ):
        find(ProviderPlugIn, "gone", PROVIDERS)
    with pytest.raises(PlugInBroken, match="is HarnessPlugIn, not ProviderPlugIn"):
        find(ProviderPlugIn, "wrong", PROVIDERS)
    with pytest.raises(
        PlugInUnknown,
        match="there are agent_sandbox, docker, gone, local, opensandbox, shed, wrong",
    ):
        find(ProviderPlugIn, "nosuch", PROVIDERS)


def test_check_tells_what_cannot_be_loaded_and_tries_the_provider_of_runs(
    installed: Install, livery: Livery, tmp_path: Path
) -> None:
    installed(**{"livery.harnesses/gone": "no_such_module:X"})
    (tmp_path / "livery.toml").write_text('[run]\nsandbox = "shed"\n')

    ended = livery("check")

    said = " ".join(ended.out.replace("│", " ").split())
    assert ended.status == 1
    assert "sandbox shed works" in said
    assert "plug-ins broken The harness 'gone' of livery-sample 1.0 cannot" in said


@asynccontextmanager
async def _failing(
    surroundings: Surroundings, options: NoOptions
) -> AsyncGenerator[SandboxProvider]:
    if surroundings.name:
        raise ZeroDivisionError(surroundings.name)
    yield  # type: ignore[misc]


FAILING = provider_plug_in(NoOptions, _failing)


def test_what_its_provider_left_is_given_back_without_a_block_too(
    installed: Install, livery: Livery, tmp_path: Path
) -> None:
    installed(**{f"{PROVIDER_GROUP}/failing": f"{__name__}:FAILING"})
    (tmp_path / "livery.toml").write_text(
        "[sandbox.shed]\noptions = {stuck_after = 2}\n"
    )

    ended = livery("run", "numbers:1", "--out", "o", "--sandbox", "shed")
    (tmp_path / "livery.toml").unlink()
    reaped = livery("claims", "reap")

    assert "were not seen gone:" in ended.err
    assert reaped.status == 0, reaped.err
    assert "released" in reaped.out
    assert "No claim is open" in livery("claims", "list").out


def test_a_missing_library_is_told_with_the_extra_that_brings_it() -> None:
    def absent() -> ProviderPlugIn:
        raise ModuleNotFoundError("No module named 'docker'", name="docker")

    def ours() -> ProviderPlugIn:
        raise ModuleNotFoundError("No module named 'livery.x'", name="livery.x")

    built_in = {
        "docker": BuiltIn(load=absent, extra="docker"),
        "x": BuiltIn(load=ours, extra="docker"),
    }

    with pytest.raises(ExtraMissing, match=r"pip install 'livery\[docker\]'"):
        find(ProviderPlugIn, "docker", built_in)
    with pytest.raises(ModuleNotFoundError):
        find(ProviderPlugIn, "x", built_in)


@pytest.mark.parametrize(
    ("stuck_after", "status", "told"), [(1, 1, "1 broken"), (2, 0, "1 of 1 passed")]
)
def test_what_is_not_seen_gone_is_named_at_the_end(
    installed: Install,
    livery: Livery,
    tmp_path: Path,
    stuck_after: int,
    status: int,
    told: str,
) -> None:
    installed()
    (tmp_path / "livery.toml").write_text(
        f'[sandbox.stuck]\nprovider = "shed"\noptions = {{stuck_after = {stuck_after}}}\n'
    )

    ended = livery("run", "numbers:1", "--out", "o", "--sandbox", "stuck")
    (tmp_path / "livery.toml").write_text('[sandbox.stuck]\nprovider = "shed"\n')
    reaped = livery("claims", "reap")

    assert "sandboxes were not seen gone:" in ended.err
    assert "`livery claims reap` tries again." in ended.err
    assert told in ended.out
    assert ended.status == status, "it tells of episodes, and not of sandboxes"
    assert reaped.status == 0, reaped.err
    assert "released" in reaped.out
    assert "No claim is open" in livery("claims", "list").out
