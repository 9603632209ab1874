# SPDX-License-Identifier: Apache-2.0
"""Plays seeds of the simulation until a rule is broken, or the time is over.

    python -m tests.mutants.hunt SECONDS

Exit status 1 with the seed when one is broken, 0 when none was.
"""

import sys
import time
from itertools import chain, count

from tests.simulation.kept_seeds import kept_seeds
from tests.simulation.simulation import simulate


def main(seconds: float) -> int:
    """Play seeds one after the other, those first that found something before."""
    until = time.monotonic() + seconds
    for seed in chain(kept_seeds(), count()):
        if time.monotonic() > until:
            break
        faults = simulate(seed).faults
        if faults:
            print(f"seed {seed}: {faults[0]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
