# SPDX-License-Identifier: Apache-2.0
"""Programs for sandboxes, kept and verified on this host for its user alone.

What adapters that bring such programs are made of: the cache, the locks that let
many processes fetch a program once, and the digests of files that did not change.
"""

from .cache import (
    PROGRAM_MODE,
    Entry,
    Leftover,
    Making,
    RuntimeCache,
    RuntimeCacheUnusable,
    cache_path,
)
from .packed_files import OpenPacked, open_packed
from .records import Record
from .trusted_files import Digests, FileUntrusted
from .verified import check_entry, check_packed, check_program

__all__ = [
    "Digests",
    "Entry",
    "FileUntrusted",
    "Leftover",
    "Making",
    "OpenPacked",
    "PROGRAM_MODE",
    "Record",
    "RuntimeCache",
    "RuntimeCacheUnusable",
    "cache_path",
    "check_entry",
    "check_packed",
    "check_program",
    "open_packed",
]
