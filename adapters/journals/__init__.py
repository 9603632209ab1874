# SPDX-License-Identifier: Apache-2.0
"""Journals: one in memory, and one in a SQLite file, which is the default."""

from .memory import MemoryJournal
from .sqlite import open_sqlite_journal

__all__ = ["MemoryJournal", "open_sqlite_journal"]
