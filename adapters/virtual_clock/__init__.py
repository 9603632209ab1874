# SPDX-License-Identifier: Apache-2.0
"""Time and ids for tests and simulations: the same in every run."""

from .clock import SeededIds, VirtualClock
from .leaping_loop import leaping_loop

__all__ = ["SeededIds", "VirtualClock", "leaping_loop"]
