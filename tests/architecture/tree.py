# SPDX-License-Identifier: Apache-2.0
"""The tree that the tests of this folder look at."""

import ast
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("domain", "ports", "adapters", "entrypoints")

_SKIPPED = {".git", ".venv", "out", "dist", "build", "__pycache__"}
_CACHE_SUFFIXES = ("_cache", ".cache", ".hypothesis", ".egg-info")


def project() -> dict[str, Any]:
    """Return what pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def files(folder: Path = ROOT) -> Iterator[Path]:
    """Return every file of the project, what was set up or cached left out."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name in _SKIPPED:
            continue
        if path.name.endswith(_CACHE_SUFFIXES):
            continue
        if path.is_dir():
            yield from files(path)
        elif not path.name.startswith(".coverage"):
            yield path


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below the folders."""
    return [
        path
        for folder in folders
        for path in files(ROOT / folder)
        if path.suffix == ".py"
    ]


def module_name(path: Path) -> str:
    """Return the name under which a file of the four folders is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("livery", *parts)).removesuffix(".__init__")


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def import_everything() -> None:
    """Import each module, so that every class of the project exists.

    Worker scripts are programs for another Python, and `__main__` runs.
    """
    for path in python_files(*FOLDERS):
        if "worker_scripts" not in path.parts and path.name != "__main__.py":
            importlib.import_module(module_name(path))


def told(path: Path) -> str:
    """Return the path as messages name it."""
    return str(path.relative_to(ROOT))
