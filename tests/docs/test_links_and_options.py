# SPDX-License-Identifier: Apache-2.0
"""README and pages lead somewhere, and the command line's page has every option."""

import re
import shlex
from pathlib import Path

import click
import pytest

from livery.entrypoints.command_line.main import livery as command

from ..entrypoints.command_lines import Livery, rewards
from ..entrypoints.conftest import livery, state

__all__ = ["livery", "state"]

ROOT = Path(__file__).parent.parent.parent
PAGES = ("README.md", "docs/cli.md", "docs/livery.toml.md", "docs/authors/providers.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_page_has_every_option_and_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    run = command.commands["run"]

    options = [max(p.opts, key=len) for p in run.params if isinstance(p, click.Option)]
    missing = [option for option in options if option not in page]
    assert not missing
    assert not [name for name in command.commands if f"livery {name}" not in page]


def test_the_examples_of_the_readme_run(livery: Livery, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [
        shlex.split(line)[1:]
        for line in text.splitlines()
        if line.startswith("livery run docs/examples")
    ]

    ended = [
        livery(
            *("run", ROOT / words[1], "--out", f"o{number}", *words[2:]),
        )
        for number, words in enumerate(lines)
    ]

    assert [one.status for one in ended] == [0, 0]
    assert set(rewards(tmp_path / "o0").values()) == {1.0}
    assert sorted(rewards(tmp_path / "o1").values()) == [0.0, 0.0, 1.0]
