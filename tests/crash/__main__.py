# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash`: one fate at one point, by hand, on this machine's Docker.

python -m tests.crash --list                        the points
python -m tests.crash --write                       renew the list of points
python -m tests.crash KILL "after Engine.create"    this one
"""

import sys
import tempfile
import time
from pathlib import Path

from .. import peers
from .courses import FATES, LIST, LIST_SERVED, Case, check, check_served, listed
from .one_episode import OneEpisode
from .one_session import OneSession

HEAD = """\
# The points that an undisturbed course passes, in their order. Renewed by
# python -m tests.crash --write
"""


def main(words: list[str]) -> None:
    """Do what the words say."""
    if words == ["--list"]:
        print("\n".join(listed()))
        return
    if absent := peers.absence("docker"):
        raise SystemExit(absent)
    with tempfile.TemporaryDirectory(prefix="livery-crash-") as name:
        one = OneEpisode(folder=Path(name, "run"), image=peers.image())
        served = OneSession(folder=Path(name, "served"), image=peers.image())
        one.prepare()
        served.prepare()
        began = time.monotonic()
        match words:
            case ["--write"]:
                assert (ended := one.begin()).status == 0, ended.said
                served.serve()
                write(LIST, one.notes)
                write(LIST_SERVED, served.notes)
            case [fate, point] if fate in FATES:
                check(one, Case(fate, point))
                print(f"the same end after {time.monotonic() - began:.1f} s")
            case ["served", fate, point] if fate in FATES:
                check_served(served, Case(fate, point))
                print(f"the same end after {time.monotonic() - began:.1f} s")
            case _:
                raise SystemExit(__doc__)


def write(path: Path, points: list[str]) -> None:
    """Write a list of points down."""
    lines = "".join(f"{point}\n" for point in points)
    path.write_text(f"{HEAD}\n{lines}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
