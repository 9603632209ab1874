# SPDX-License-Identifier: Apache-2.0
"""Commands that look: check, claims, config, and what is told of errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from livery.domain.refusals import Refusal
from livery.entrypoints.command_line.main import tell
from livery.entrypoints.command_line.shared import Shared, leaves, told
from livery.entrypoints.settings_schema import shipped_schema
from livery.ports.required.sandbox import SandboxLost

from .command_lines import PROGRAM, Livery, task, task_file


def test_the_version_and_the_words_of_help_are_there(livery: Livery) -> None:
    version = livery("--version")
    words = livery("run", "--help")

    assert version.status == words.status == 0
    assert version.out.startswith("livery, version ")
    assert "--resume DIR" in words.out


def test_check_tells_what_works_and_what_to_do_about_the_rest(
    livery: Livery, tmp_path: Path
) -> None:
    (tmp_path / "livery.toml").write_text(
        '[sandbox.away]\nprovider = "docker"\noptions = {address = "tcp://127.0.0.1:1"}\n'
        '[sandbox.odd]\nprovider = "nosuch"\n'
    )

    ended = livery("check")

    said = " ".join(ended.out.replace("│", " ").split())
    assert ended.status == 1
    assert "python works" in said
    assert "sandbox local works" in said
    assert "sandbox away broken Provider away does not answer" in said
    assert "sandbox odd broken There is no sandbox provider 'nosuch'" in said
    assert "extra humaneval" in said
    assert "No claim is open" in livery("claims", "list").out


def test_an_opensandbox_server_that_is_not_there_is_told_of(
    livery: Livery, tmp_path: Path
) -> None:
    (tmp_path / "livery.toml").write_text(
        '[sandbox.away]\nprovider = "opensandbox"\n'
        'options = {address = "http://127.0.0.1:1"}\n'
        '[sandbox.bare]\nprovider = "opensandbox"\n'
        'options = {address = "127.0.0.1:8080"}\n'
    )

    ended = livery("check")

    said = " ".join(ended.out.replace("│", " ").split())
    assert ended.status == 1
    assert "sandbox away broken Provider away does not answer at http://" in said
    assert "sandbox bare broken sandbox.bare: address is '127.0.0.1:8080'" in said
    assert "it is no http:// or https:// address" in said


def test_check_never_gives_up(livery: Livery, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[run\n")

    ended = livery("check", "--config", "bad.toml", "--state", "/dev/null/state")

    said = " ".join(ended.out.replace("│", " ").split())
    assert ended.status == 1
    assert "settings broken bad.toml cannot be used" in said
    assert "state folder broken The state folder /dev/null/state" in said
    assert "Traceback" not in ended.err


def test_a_right_settings_file_is_called_right(livery: Livery, tmp_path: Path) -> None:
    (tmp_path / "livery.toml").write_text('[sandbox.small]\nprovider = "local"\n')

    ended = livery("config", "check")

    assert ended.status == 0
    assert ended.out == "livery.toml is right. Blocks: sandbox.small.\n"
    assert livery("config", "check", "no.toml").status == 2
    (tmp_path / "livery.toml").unlink()
    defaults = livery("config", "check")
    assert defaults.status == 0
    assert "There is no livery.toml in this folder" in defaults.out
    assert "the defaults are right" in defaults.out
    assert livery("config", "schema").out == shipped_schema()


def test_all_that_is_wrong_with_the_blocks_is_told(
    livery: Livery, tmp_path: Path
) -> None:
    (tmp_path / "x.toml").write_text(
        '[sandbox.local]\noptions = {passed_on = "PATH"}\n[sandbox.odd]\n[harness.odd]\n'
        "[harness.command]\noptions = {command = []}\n"
    )

    ended = livery("config", "check", "x.toml")

    assert ended.status == 2
    for part in (
        "sandbox.odd: There is no sandbox provider 'odd'",
        "harness.odd: There is no harness 'odd'",
        "line 2: sandbox.local.options.passed_on: wants a list, found 'PATH'",
        "line 6: harness.command.options.command: wants a list of at least 1",
    ):
        assert part in ended.err


def test_a_claim_that_nobody_knows_is_told(livery: Livery) -> None:
    unknown = livery("claims", "explain", "nosuch")

    assert unknown.status == 2
    assert "there is no claim 'nosuch'" in unknown.err
    assert "isolate" not in unknown.err + livery("claims", "list").err


def test_where_no_claim_is_open_is_told(livery: Livery, tmp_path: Path) -> None:
    """A mistyped folder must not pass for one that nothing is left in."""
    ended = livery("claims", "list", "--state", tmp_path / "mistyped")

    assert f"No claim is open in {tmp_path / 'mistyped'}, and" in ended.out


def test_results_go_to_output_and_everything_else_to_error(
    livery: Livery, tmp_path: Path
) -> None:
    ended = livery("run", task_file(tmp_path, task("a")), "--out", "o")

    assert "does not isolate" in ended.err
    assert "1/1 done: 0 running, 1 passed" in ended.err
    assert "done:" not in ended.out


def test_log_lines_can_be_json(livery: Livery, tmp_path: Path) -> None:
    (tmp_path / "livery.toml").write_text('[log]\nformat = "json"\nlevel = "info"\n')

    ended = livery("run", task_file(tmp_path, task("a")), "--out", "o")

    lines = [json.loads(x) for x in ended.err.splitlines() if x.startswith("{")]
    assert any("does not isolate" in line["message"] for line in lines)


@pytest.mark.case("FC-235")
def test_what_is_given_wins_over_what_is_around(
    livery: Livery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "around"))
    (tmp_path / "livery.toml").write_text('[state]\nfolder = "in-file"\n')

    livery("claims", "list")
    livery("claims", "list", "--state", "on-line")

    assert (tmp_path / "in-file" / "owner").exists()
    assert (tmp_path / "on-line" / "owner").exists()
    assert not (tmp_path / "around").exists()


def test_a_run_file_that_is_no_file_is_told(livery: Livery, tmp_path: Path) -> None:
    (tmp_path / "o" / "run.json").mkdir(parents=True)

    told = livery("report", "o")

    assert told.status == 2
    assert "cannot be read: Is a directory" in told.err


class _Odd(Refusal):
    """A refusal for tests."""


@pytest.mark.case("FC-243")
def test_a_cause_that_adds_something_is_told() -> None:
    lost = SandboxLost(provider="docker", sandbox="s1", reason="replaced")
    top = _Odd()
    top.__cause__ = lost
    group = ExceptionGroup("two", [top, ExceptionGroup("one", [ValueError("x")])])

    assert "refused\n  because: " in told(top)
    assert "s1" in told(top)
    assert "replaced" in told(top)
    assert [type(one) for one in leaves(group)] == [_Odd, ValueError]


def test_a_mistake_of_ours_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    both = ExceptionGroup("two", [_Odd(), ZeroDivisionError("by 0"), _Odd()])

    assert tell(both, Shared()) == 1
    assert tell(_Odd(), Shared()) == 2

    said = capsys.readouterr().err
    assert said.count("livery: refused") == 2
    assert "livery: unexpected ZeroDivisionError: by 0" in said
    assert "livery --debug" in said


def test_secrets_are_covered_in_what_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shared = Shared()
    shared.secrets.add("s3cret")

    shared.say("the key is s3cret")

    assert capsys.readouterr().err == "the key is ***\n"


def test_a_reader_that_goes_away_is_no_mistake(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "config", "schema"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(write)

    assert ended.returncode == 0
    assert ended.stderr == ""
