# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation SEED…` prints what happened in each seed."""

import sys

from .simulation import simulate

for argument in sys.argv[1:]:
    print(simulate(int(argument)).told)
