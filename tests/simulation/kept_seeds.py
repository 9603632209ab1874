# SPDX-License-Identifier: Apache-2.0
"""Seeds that once broke a rule: they are kept in a file, and always played."""

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("kept_seeds.txt")
COMMENT: Final = "#"


def kept_seeds(file: Path = FILE) -> tuple[int, ...]:
    """Return the seeds of the file, which has one on a line, and words behind `#`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    words = [line.partition(COMMENT)[0].strip() for line in lines]
    return tuple(int(word) for word in words if word)


def keep_seed(seed: int, why: str, file: Path = FILE) -> None:
    """Write a seed down, if it is not there yet."""
    if seed not in kept_seeds(file):
        with file.open("a", encoding="utf-8") as kept:
            kept.write(f"{seed}  {COMMENT} {why}\n")
