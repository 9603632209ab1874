# SPDX-License-Identifier: Apache-2.0
"""All benchmarks, one after the other; the status is 1 when a bound is broken.

    python -m tests.benchmarks [NAME …]

NAME is agent_sandbox, crowd, docker, episodes, journal, opensandbox, runtimes, scale or
servers.

What needs a peer that is not here is skipped, with the reason, unless it was named.
"""

import subprocess
import sys

from ..peers import absence, is_required

BENCHMARKS = (
    "episodes",
    "journal",
    "docker",
    "opensandbox",
    "agent_sandbox",
    "runtimes",
    "servers",
    "crowd",
    "scale",
)
PEERS = {
    "agent_sandbox": "kubernetes",
    "docker": "docker",
    "opensandbox": "opensandbox",
    "runtimes": "docker",
}


def main() -> int:
    """Run what was named, or everything that can be run here."""
    named = sys.argv[1:]
    unknown = set(named) - set(BENCHMARKS)
    if unknown:
        print(f"There is no benchmark {', '.join(sorted(unknown))}: {BENCHMARKS}")
        return 2
    broken = False
    for name in named or BENCHMARKS:
        print(f"== {name}", flush=True)
        reason = absence(PEERS[name]) if name in PEERS else None
        if reason is not None:
            print(f"skipped: {reason}")
            broken = broken or bool(named) or is_required(PEERS[name])
            continue
        # A process of its own each, so that none warms or burdens another.
        module = f"tests.benchmarks.{name}"
        broken = (
            bool(subprocess.run([sys.executable, "-m", module]).returncode) or broken
        )
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
