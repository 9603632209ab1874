# SPDX-License-Identifier: Apache-2.0
"""Which episode, session and claim the code at hand works for, for log lines.

A use case says it once with `logged_as`; every line that is logged inside, also
in tasks and worker threads that anyio starts there, then carries the ids. What
is said further in adds to what was said further out.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs


@attrs.frozen(kw_only=True)
class LogContext:
    """The ids in their written form; None where none is known."""

    episode: str | None = None
    session: str | None = None
    claim: str | None = None


_NOTHING = LogContext()
_current: ContextVar[LogContext] = ContextVar("log_context", default=_NOTHING)


def log_context() -> LogContext:
    """Return what is known here."""
    return _current.get()


@contextmanager
def logged_as(
    *, episode: object = None, session: object = None, claim: object = None
) -> Generator[None, None, None]:
    """Have log lines carry these ids, in the words that `str` gives for them."""
    given = {"episode": episode, "session": session, "claim": claim}
    known = {name: str(value) for name, value in given.items() if value is not None}
    # Set back by value: an async generator may be closed in another context, where
    # a token of this one is of no use.
    before = _current.get()
    _current.set(attrs.evolve(before, **known))
    try:
        yield
    finally:
        _current.set(before)
