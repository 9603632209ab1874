# SPDX-License-Identifier: Apache-2.0
"""The settings that ship are right, and the page of each shows what ships."""

import re
from pathlib import Path

import pytest

from livery.entrypoints.example_settings import example, example_names

from ..entrypoints.command_lines import Livery
from ..entrypoints.conftest import livery, state

__all__ = ["livery", "state"]

HARNESSES = Path(__file__).parent.parent.parent / "docs" / "harnesses"


def test_the_page_of_claude_code_shows_the_whole_file() -> None:
    page = (HARNESSES / "claude-code.md").read_text(encoding="utf-8")

    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert block == example("claude_code")


@pytest.mark.parametrize("name", example_names())
def test_an_example_is_printed_and_is_right(
    livery: Livery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MODEL_KEY", "of nobody")
    printed = livery("config", "example", name)
    path = tmp_path / "livery.toml"
    path.write_text(printed.out)

    checked = livery("config", "check", path)

    assert printed.status == 0
    assert printed.out == example(name)
    assert checked.status == 0, checked.err
