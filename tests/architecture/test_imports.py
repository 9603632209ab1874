# SPDX-License-Identifier: Apache-2.0
"""What the domain loads, and how the folders speak of themselves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import FOLDERS, module_name, parsed, python_files, told

PURE = {
    "attrs",
    "bisect",
    "collections",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "types",
    "typing",
    "unicodedata",
}
"""Parts of the standard library whose results depend on arguments alone; attrs."""

_LOOK = """
import sys
before = set(sys.modules)
import importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def imported(path: Path) -> set[str]:
    """Return the top names of the absolute imports in a file."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", python_files("domain"), ids=told)
def test_the_domain_imports_attrs_and_pure_parts(path: Path) -> None:
    assert imported(path) <= PURE


def test_the_domain_loads_attrs_and_the_standard_library_alone() -> None:
    modules = ["livery.domain", *map(module_name, python_files("domain"))]

    loaded = subprocess.run(
        [sys.executable, "-I", "-c", _LOOK, *modules],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={},  # Measuring would load more.
    ).stdout.split()

    assert set(loaded) - sys.stdlib_module_names == {"attr", "attrs", "livery"}


@pytest.mark.parametrize("path", python_files(*FOLDERS), ids=told)
def test_the_tree_does_not_know_its_own_name(path: Path) -> None:
    assert not imported(path) & {"livery", *FOLDERS}


def test_required_ports_import_nothing_but_attrs_and_pure_parts() -> None:
    allowed = PURE | {"contextlib"}

    assert {
        told(path): extra
        for path in python_files("ports/required")
        if (extra := imported(path) - allowed)
    } == {}
