# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of a process that lives long and has much open.

What was loaded at the start is there until the end, and is not looked through again.
What comes after it is freed by its reference counts: an episode leaves no cycle (a test
counts them), so there is little to find, and each full pass stops the event loop for as
long as it takes to touch all that is open. Passes are rarer here than Python's own
settings have them; decision 0065 has the figures.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (50_000, 200, 1)
"""How many more objects than before a young pass waits for, how many young passes the
next older one, and how many of those the full one: twenty million objects."""


@contextmanager
def collected_rarely() -> Generator[None]:
    """Collect rarely inside the block, and nothing of what is there at its beginning."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
