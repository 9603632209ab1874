# SPDX-License-Identifier: Apache-2.0
"""Time and ids for tests and simulations: the same in every run."""

from .clock import BEGINNING, SeededIds, VirtualClock
from .leaping_loop import leaping_loop

__all__ = ["BEGINNING", "SeededIds", "VirtualClock", "leaping_loop"]
