# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of a process that lives long and has much open.

What was loaded at the start is there until the end, and is not looked through again.
What comes after it is freed by its reference counts: an episode leaves no cycle (a test
counts them), so there is little to find, and each pass over what is old stops the event
loop for as long as it takes to touch all that is open. So the old is looked through only
when the process has grown: garbage that no young pass found makes it grow. Decision 0065
has the figures.
"""

import gc
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

YOUNG: Final = 50_000
"""How many more objects than before a young pass waits for, at least."""
YOUNG_MOST: Final = 500_000
YOUNG_SHARE_BYTES: Final = 2048
"""In between it waits for one more for each so many bytes held. Where much is open, what
an episode makes is in use for longer, and a pass that comes early finds it in use."""
GROWTH: Final = 1.5
"""How many times as much memory as after the last one an older pass waits for."""
GROWTH_BYTES_LEAST: Final = 256 * 2**20

_STATM: Final = Path("/proc/self/statm")
"""In pages: all addresses, and second what of them is in memory (proc(5))."""
_NEVER: Final = 2**31 - 1


@contextmanager
def collected_rarely() -> Generator[None]:
    """Collect rarely inside the block, and nothing of what is there at its beginning."""
    before, growth = gc.get_threshold(), _Growth()
    gc.freeze()
    gc.callbacks.append(growth.seen)
    gc.set_threshold(YOUNG, _NEVER, _NEVER)
    try:
        yield
    finally:
        gc.callbacks.remove(growth.seen)
        gc.set_threshold(*before)
        gc.unfreeze()


def held_bytes() -> int:
    """Return how much memory this process holds, in bytes.

    Where that cannot be read, the most that it held. On Linux that begins with what the
    process held that started this one (getrusage(2)), so it is the second choice.
    """
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def _young(held: int) -> int:
    return min(max(YOUNG, held // YOUNG_SHARE_BYTES), YOUNG_MOST)


def _limit(held: int) -> float:
    return max(held * GROWTH, held + GROWTH_BYTES_LEAST)


@attrs.define
class _Growth:
    """Sees each pass, and has an older one follow when there is more memory than that."""

    limit: float = attrs.field(factory=lambda: _limit(held_bytes()))

    def seen(self, phase: str, about: dict[str, int]) -> None:
        """Take note of a pass, as `gc.callbacks` has it."""
        if phase != "stop":
            return
        held = held_bytes()
        if about["generation"] > 0:
            self.limit = _limit(held)
        older = 0 if held > self.limit else _NEVER  # 0: the next pass is an older one.
        gc.set_threshold(_young(held), older, older)
