# SPDX-License-Identifier: Apache-2.0
"""The world `desk`: a small office with mail, drive, calendar, chat and tickets."""

from .tasks import DeskTasks
from .world import DeskWorld

__all__ = ["DeskTasks", "DeskWorld"]
