# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.exploration [STATES]` walks every world and prints what it saw.

Exit status 1 when a rule is broken somewhere, or an end cannot be reached. A world
that has more than STATES states is cut off there.
"""

import sys

from .walk import walk
from .whole import WORLDS

STATES_MAX = 400_000


def main(words: list[str]) -> int:
    """Walk them all; return the exit status."""
    states_max = int(words[0]) if words else STATES_MAX
    is_good = True
    for model in WORLDS:
        seen = walk(model, states_max=states_max)
        print(seen, flush=True)
        is_good = is_good and not seen.broken and not seen.dead_ends
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
