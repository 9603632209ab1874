# SPDX-License-Identifier: Apache-2.0
"""The diagrams in docs/ say what the tables of transitions say."""

import importlib
import pkgutil
import re

import livery.domain

from .diagrams import MODULES, pages, stale


def test_the_diagrams_say_what_the_tables_say() -> None:
    assert not stale(), "python -m tests.architecture.diagrams --write"


def test_every_table_is_drawn() -> None:
    modules = [
        importlib.import_module(f"livery.domain.{each.name}")
        for each in pkgutil.iter_modules(livery.domain.__path__)
    ]

    with_a_table = {each.__name__ for each in modules if hasattr(each, "TRANSITIONS")}

    assert with_a_table == {each.__name__ for each in MODULES}


def test_every_transition_is_an_arrow() -> None:
    for module, page in zip(MODULES, pages().values(), strict=True):
        arrows = re.findall(r"^    \S+ --> \S+: (.*)$", page, re.MULTILINE)
        drawn = sum(arrow.count(",") + 1 for arrow in arrows)

        assert drawn == len(module.TRANSITIONS), module.__name__
