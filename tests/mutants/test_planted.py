# SPDX-License-Identifier: Apache-2.0
"""The planted bugs still fit the tree; `python -m tests.mutants` has them caught."""

import shutil
from pathlib import Path

import pytest

from .__main__ import ROOT, caught, chosen
from .planted import PLANTED, Mutant

MUTANTS_MIN = 25
HARMLESS = Mutant(
    "harmless", "domain/activations.py", "SANDBOX_GONE = ", "SANDBOX_GONE  = "
)


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")

    assert text.count(mutant.before) == 1
    assert mutant.after != mutant.before
    assert mutant.catcher is None or (ROOT / mutant.catcher.split("::")[0]).exists()


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in PLANTED}) == len(PLANTED) >= MUTANTS_MIN


def test_some_are_chosen_by_name_or_by_the_day() -> None:
    assert chosen([PLANTED[1].name], None) == [PLANTED[1]]
    assert chosen([], None) == list(PLANTED)
    assert len(chosen([], 3)) == 3


def test_what_is_planted_is_taken_out_again(tmp_path: Path) -> None:
    file = tmp_path / HARMLESS.file
    file.parent.mkdir()
    shutil.copy(ROOT / HARMLESS.file, file)
    before = file.read_text(encoding="utf-8")

    told = caught(tmp_path, HARMLESS)  # There is no catcher there: that is a word too.

    assert told is not None
    assert file.read_text(encoding="utf-8") == before
