# SPDX-License-Identifier: Apache-2.0
"""Which episode, session and claim the code at hand works for, for log lines.

A use case says it once with `logged_as`; every line that is logged inside, also
in tasks and worker threads that anyio starts there, then carries the ids. What
is said further in adds to what was said further out.
"""

from contextvars import ContextVar

import attrs


@attrs.frozen
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


@attrs.define
class logged_as:  # noqa: N801 - it is read as the words that it stands for.
    """Has log lines carry these ids, in the words that `str` gives for them.

    A class, and no generator: it is entered dozens of times in an episode.
    """

    episode: object = attrs.field(default=None, kw_only=True)
    session: object = attrs.field(default=None, kw_only=True)
    claim: object = attrs.field(default=None, kw_only=True)
    _before: LogContext = attrs.field(default=_NOTHING, init=False)

    def __enter__(self) -> None:
        """Begin to carry them."""
        before = self._before = _current.get()
        _current.set(_with(before, self.episode, self.session, self.claim))

    def __exit__(self, *_: object) -> None:
        """Carry what was carried before.

        Set back by value: an async generator may be closed in another context, where
        a token of this one is of no use.
        """
        _current.set(self._before)


def known_as(*, episode: object = None, session: object = None) -> None:
    """Have log lines carry these ids too, until the `logged_as` around is left.

    For what is found out on the way, and is to stand in a line about its failure, which
    is logged further out.
    """
    _current.set(_with(_current.get(), episode, session, None))


def _with(
    before: LogContext, episode: object, session: object, claim: object
) -> LogContext:
    return LogContext(
        before.episode if episode is None else str(episode),
        before.session if session is None else str(session),
        before.claim if claim is None else str(claim),
    )
