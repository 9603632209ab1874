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
from .courses import FATES, LIST, Case, check, listed
from .one_episode import OneEpisode

HEAD = """\
# The points that an undisturbed episode passes, in their order. Renewed by
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
        one = OneEpisode(folder=Path(name), image=peers.image())
        one.prepare()
        began = time.monotonic()
        match words:
            case ["--write"]:
                ended = one.begin()
                assert ended.status == 0, ended.said
                text = "".join(f"{point}\n" for point in one.notes)
                LIST.write_text(f"{HEAD}\n{text}", encoding="utf-8")
            case [fate, point] if fate in FATES:
                check(one, Case(fate, point))
                print(f"the same end after {time.monotonic() - began:.1f} s")
            case _:
                raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
