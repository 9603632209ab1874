# SPDX-License-Identifier: Apache-2.0
"""The contract suite of `Journal`, for the author of any journal.

Run every case of `CASES` over a `JournalContext`. Each case works on streams of its
own, so that one journal can serve all of them.
"""

from . import journal_races, journal_streams, journal_waits
from .cases import Case, check_cases
from .journal_context import JournalContext

__all__ = ["CASES", "JournalContext"]

CASES: tuple[Case[JournalContext], ...] = check_cases(
    journal_streams.CASES + journal_races.CASES + journal_waits.CASES
)
