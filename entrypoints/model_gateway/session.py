# SPDX-License-Identifier: Apache-2.0
"""One session's use of the model: what it may still do, what runs, what was seen.

The main conversation is the first that offers tools to the model, or else the
first of all. What does not belong to it, as far as that can be seen, is a side call:
a count of tokens, a title, a subagent.
"""

from collections import Counter, deque
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import attrs

from ...adapters.model_upstream import Asked, UpstreamLine
from ...domain.agent_sessions import AgentSessionId
from ...ports.required.artifact_store import Shelf
from ...ports.required.clock import Clock
from ...ports.required.model_access import CallEnd, ModelCall, ModelRecord
from .bounds import GatewayBounds


@attrs.frozen(kw_only=True)
class Beyond:
    """A bound was reached: the status and the words for the caller."""

    status: int
    kind: str
    message: str


@attrs.define(kw_only=True, eq=False)
class GatewaySession:
    """A session that may use the model."""

    session: AgentSessionId
    placeholder: str = attrs.field(repr=False)
    line: UpstreamLine
    bounds: GatewayBounds
    clock: Clock
    prefix: bytes = b""
    shelf: Shelf | None = None
    is_revoked: bool = False
    _begun: float = attrs.field(init=False)
    _calls: int = attrs.field(default=0, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _last_failure: str = attrs.field(default="", init=False)
    _context_refusals: int = attrs.field(default=0, init=False)
    _usage: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _entries: deque[tuple[ModelCall, Asked]] = attrs.field(init=False)
    _ended: int = attrs.field(default=0, init=False)
    _main: Asked | None = attrs.field(default=None, init=False)
    _running: set[anyio.CancelScope] = attrs.field(
        factory=set[anyio.CancelScope], init=False
    )
    _idle: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        """Begin to count the session's time."""
        self._begun = self.clock.monotonic()
        self._entries = deque(maxlen=self.bounds.entries_max)

    @property
    def seconds_left(self) -> float:
        """What is left of the session's wall clock."""
        return self._begun + self.bounds.session_seconds_max - self.clock.monotonic()

    def next_number(self) -> int:
        """Count a call and return its number."""
        self._calls += 1
        return self._calls

    def beyond(self) -> Beyond | None:
        """Return the bound that another call would break, if there is one."""
        if self._calls > self.bounds.calls_max:
            told = f"This session has made its {self.bounds.calls_max} calls"
            return Beyond(status=403, kind="calls_exceeded", message=told)
        if self.seconds_left <= 0:
            told = f"This session's {self.bounds.session_seconds_max:g} s are over"
            return Beyond(status=403, kind="time_exceeded", message=told)
        if len(self._running) > self.bounds.calls_at_once_max:
            told = f"{self.bounds.calls_at_once_max} calls are under way already"
            return Beyond(status=429, kind="calls_at_once_exceeded", message=told)
        return None

    @contextmanager
    def running(self) -> Generator[anyio.CancelScope]:
        """Count what is done inside as under way; it ends with the session."""
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                yield scope
            finally:
                self._running.discard(scope)
                if not self._running:
                    self._idle.set()
                    self._idle = anyio.Event()

    def note(self, call: ModelCall, asked: Asked) -> None:
        """Keep what was seen of a call that is over."""
        self._ended += 1
        self._entries.append((call, asked))
        self._usage.update(call.usage)
        if call.end.is_infrastructure:
            self._failures += 1
            self._last_failure = call.reason or call.end.value
        if call.end is CallEnd.CONTEXT_LENGTH:
            self._context_refusals += 1
        generates = bool(asked.model) and not asked.counts_only
        main = self._main
        if generates and (main is None or (asked.tools and not main.tools)):
            self._main = asked

    def record(self) -> ModelRecord:
        """Return what was seen until now."""
        return ModelRecord(
            calls=self._calls,
            failures=self._failures,
            last_failure=self._last_failure,
            usage=dict(self._usage),
            context_refusals=self._context_refusals,
            entries=tuple(
                attrs.evolve(call, is_side=self._is_side(asked))
                for call, asked in self._entries
            ),
            entries_dropped=self._ended - len(self._entries),
        )

    async def close(self, *, seconds: float) -> None:
        """End what runs, and let go of the line to the upstream."""
        self.is_revoked = True
        for scope in tuple(self._running):
            scope.cancel()
        with anyio.move_on_after(seconds):
            while self._running:
                await self._idle.wait()
        await self.line.aclose()

    def _is_side(self, asked: Asked) -> bool:
        main = self._main
        if asked.counts_only:
            return True
        if main is None or asked.thread == main.thread:
            return False
        # A conversation that was made shorter begins anew, with the same tools.
        return (asked.model, asked.tools) != (main.model, main.tools) or not main.tools
