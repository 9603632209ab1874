# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants`: plants each bug in a copy of the tree, and has it caught.

    python -m tests.mutants                all of them
    python -m tests.mutants --rotating 3   the three whose day it is
    python -m tests.mutants NAME…          these

A bug that survives its catcher for a minute fails the command, and so does a catcher
that complains about the tree as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .planted import PLANTED, Mutant

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("domain", "ports", "adapters", "entrypoints", "tests")
HUNT_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 5.0
"""How long the simulation is played with nothing planted: it works, and finds nothing."""
LATE_SECONDS: Final = 60.0
"""What a catcher may take beside the hunt: to start, and to finish its example."""
UNSHRUNK: Final = "--hypothesis-profile=unshrunk"
"""That there is a counterexample is enough; the smallest one is not looked for."""
DAY_SECONDS: Final = 86_400


def main(words: Sequence[str]) -> int:
    """Plant what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rotating", type=int, metavar="N")
    asked = parser.parse_args(words)
    mutants = chosen(asked.names, asked.rotating)
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="livery-mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        for catcher in {mutant.catcher for mutant in mutants}:
            told = complaint(tree, catcher, QUIET_SECONDS)
            if told is not None:
                print(f"With nothing planted: {told}")
                return 1
        for mutant in mutants:
            begun = time.monotonic()
            told = caught(tree, mutant)
            seconds = time.monotonic() - begun
            if told is None:
                survivors.append(mutant.name)
            print(f"{seconds:6.1f} s  {mutant.name}: {told or 'SURVIVED'}", flush=True)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} were caught")
    return 1 if survivors else 0


def chosen(names: Sequence[str], rotating: int | None) -> list[Mutant]:
    """Return the mutants with these names, those of today, or all."""
    if rotating is not None:
        first = int(time.time()) // DAY_SECONDS * rotating
        return [PLANTED[(first + n) % len(PLANTED)] for n in range(rotating)]
    known = {mutant.name: mutant for mutant in PLANTED}
    return [known[name] for name in names] if names else list(PLANTED)


def copy_tree(tree: Path) -> None:
    """Copy what the catchers run, with the package's name over it."""
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)
    package = tree / ".editable" / "livery"
    package.mkdir(parents=True)
    for name in FOLDERS[:-1]:
        (package / name).symlink_to(f"../../{name}")


def caught(tree: Path, mutant: Mutant) -> str | None:
    """Plant the bug, return what its catcher says of it, and take it out again."""
    path = tree / mutant.file
    right = path.read_text(encoding="utf-8")
    assert right.count(mutant.before) == 1, f"{mutant.name} does not fit {mutant.file}"
    path.write_text(right.replace(mutant.before, mutant.after), encoding="utf-8")
    try:
        return complaint(tree, mutant.catcher, HUNT_SECONDS)
    finally:
        path.write_text(right, encoding="utf-8")


def complaint(tree: Path, catcher: str | None, seconds: float) -> str | None:
    """Run a catcher; return its last word when it complains."""
    if catcher is None:
        words = ("-m", "tests.mutants.hunt", str(seconds))
    else:
        words = (
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            UNSHRUNK,
            catcher,
        )
    ended = subprocess.run(
        [sys.executable, "-B", *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / ".editable")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HUNT_SECONDS + LATE_SECONDS,
    )
    if ended.returncode == 0:
        return None
    said = [line.strip("| ") for line in ended.stdout.splitlines()]
    lines = [line for line in said if line.strip("+- ")]
    told = [line for line in lines if line.startswith(("seed ", "FAILED "))]
    return (told[:1] or lines[-1:] or ["it ended without a word"])[0][:150]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
