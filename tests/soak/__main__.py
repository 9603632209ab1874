# SPDX-License-Identifier: Apache-2.0
"""Soak the servers for so many minutes; the status is 1 when a promise was broken.

    python -m tests.soak MINUTES [--rate 0.2] [--faults 0.05] [--seed N] [--keep FOLDER]

`--keep` names an empty folder for settings, state and logs, which then stay.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import anyio

from .. import peers
from .soak import Plan, soak


def main() -> int:
    """Soak, and print the report."""
    words = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    words.add_argument("minutes", type=float)
    words.add_argument("--rate", type=float, default=0.2, help="arrivals a second")
    words.add_argument("--faults", type=float, default=0.05, help="of messages")
    words.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    words.add_argument("--keep", type=Path, help="an empty folder")
    chosen = words.parse_args()
    if (absent := peers.absence("docker")) is not None:
        print(absent, file=sys.stderr)
        return 1
    with ExitStack() as stack:
        if (folder := chosen.keep) is None:
            made = tempfile.TemporaryDirectory(prefix="soak-")
            folder = Path(stack.enter_context(made))
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            minutes=chosen.minutes,
            rate=chosen.rate,
            faults=chosen.faults,
            seed=chosen.seed,
            folder=folder,
        )
        print(f"seed {plan.seed}, in {folder}", flush=True)
        report = anyio.run(soak, plan)
    print("\n".join(report.lines()), flush=True)
    return int(bool(report.broken()))


if __name__ == "__main__":
    sys.exit(main())
