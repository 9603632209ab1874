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
"""How many more objects than before a young pass waits for."""
GROWTH: Final = 1.5
"""How many times as much memory as after the last one an older pass waits for."""
GROWTH_BYTES_LEAST: Final = 256 * 2**20

_STATM: Final = Path("/proc/self/statm")
"""In pages: all addresses, and second what of them is in memory (proc(5))."""
_NEVER: Final = 2**31 - 1
_RARELY: Final = (YOUNG, _NEVER, _NEVER)
_NEXT: Final = (YOUNG, 0, 0)
"""Has the next pass be an older one."""


@contextmanager
def collected_rarely() -> Generator[None]:
    """Collect rarely inside the block, and nothing of what is there at its beginning."""
    before, growth = gc.get_threshold(), _Growth()
    gc.freeze()
    gc.callbacks.append(growth.seen)
    gc.set_threshold(*_RARELY)
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


def _limit() -> float:
    held = held_bytes()
    return max(held * GROWTH, held + GROWTH_BYTES_LEAST)


@attrs.define
class _Growth:
    """Sees each pass, and has an older one follow when there is more memory than that."""

    limit: float = attrs.field(factory=_limit)

    def seen(self, phase: str, about: dict[str, int]) -> None:
        """Take note of a pass, as `gc.callbacks` has it."""
        if phase != "stop":
            return
        if about["generation"] > 0:
            self.limit = _limit()
            gc.set_threshold(*_RARELY)
        elif held_bytes() > self.limit:
            gc.set_threshold(*_NEXT)
