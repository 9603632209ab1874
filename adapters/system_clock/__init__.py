# SPDX-License-Identifier: Apache-2.0
"""The machine's clock, and names from its source of randomness."""

from .clock import RandomIds, SystemClock

__all__ = ["RandomIds", "SystemClock"]
