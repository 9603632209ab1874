# SPDX-License-Identifier: Apache-2.0
"""One call under way, and what will be known of it when it is over."""

import logging
from collections.abc import AsyncIterator
from typing import Final

import anyio
import attrs

from ...adapters.model_upstream import AnswerReader, Asked
from ...domain.deciders import Instant
from ...ports.required.artifact_store import ArtifactStore, Reader
from ...ports.required.faults import Fault
from ...ports.required.model_access import CallEnd, ModelCall
from .session import GatewaySession

KEEP_SECONDS: Final = 30.0
"""How long the keeping of a call's bodies may take."""

_log = logging.getLogger(__name__)


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


@attrs.define(kw_only=True, eq=False)
class CallUnderWay:
    """A call of a session."""

    session: GatewaySession
    number: int
    method: str
    path: bytes
    bodies: ArtifactStore | None = None
    body: bytes = b""
    asked: Asked = attrs.field(factory=Asked)
    status: int = 0
    end: CallEnd | None = attrs.field(default=None, init=False)
    reader: AnswerReader | None = attrs.field(default=None, init=False)
    response_bytes: int = attrs.field(default=0, init=False)
    _reason: str = attrs.field(default="", init=False)
    _first_token_seconds: float | None = attrs.field(default=None, init=False)
    _kept: bytearray = attrs.field(factory=bytearray, init=False)
    _is_noted: bool = attrs.field(default=False, init=False)
    _at: Instant = attrs.field(init=False)
    _begun: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Note the time."""
        self._at = self.session.clock.now()
        self._begun = self.session.clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken until now."""
        return self.session.clock.monotonic() - self._begun

    def took(self, piece: bytes) -> None:
        """Note bytes of the upstream's answer."""
        self.response_bytes += len(piece)
        if self.reader is not None:
            self.reader.feed(piece)
            if self.reader.has_content and self._first_token_seconds is None:
                self._first_token_seconds = self.seconds
        if self._keeps:
            room = self.session.bounds.body_bytes_max - len(self._kept)
            self._kept += piece[: max(room, 0)]

    def ended(self, end: CallEnd, reason: str = "") -> None:
        """Note how it came out; what was noted first stands."""
        if self.end is None:
            self.end, self._reason = end, reason

    def note(self) -> None:
        """Give the session what was seen, once."""
        end = self.end
        assert end is not None, "a call that is over has an end"
        if self._is_noted:
            return
        self._is_noted = True
        if end.is_infrastructure:
            _log.warning("A call to the model failed (%s): %s", end, self._reason)
        call = ModelCall(
            number=self.number,
            at=self._at,
            method=self.method,
            path=self.path.decode("latin-1"),
            model=self.asked.model,
            is_streamed=self.asked.is_streamed,
            status=self.status,
            end=end,
            reason=self._reason,
            usage=dict(self.reader.usage) if self.reader else {},
            first_token_seconds=self._first_token_seconds,
            seconds=self.seconds,
            request_bytes=len(self.body),
            response_bytes=self.response_bytes,
            body_dropped=self.response_bytes - len(self._kept) if self._keeps else 0,
            thread=self.asked.thread,
        )
        self.session.note(call, self.asked)

    async def keep(self) -> None:
        """Keep the bodies, where that is asked."""
        if self._keeps:
            with anyio.move_on_after(KEEP_SECONDS, shield=True):
                await self._keep_bodies()

    @property
    def _keeps(self) -> bool:
        return self.bodies is not None and self.session.shelf is not None

    async def _keep_bodies(self) -> None:
        shelf = self.session.shelf
        assert self.bodies is not None
        assert shelf is not None
        request = self.session.line.cover().covered(self.body)
        for name, content in (("request", request), ("response", bytes(self._kept))):
            try:
                await self.bodies.put(
                    shelf,
                    f"model/{self.number:05}-{name}",
                    _once(content),
                    readers=frozenset[Reader](),
                )
            except Fault as fault:
                _log.error("A body of a call to the model is not kept: %s", fault)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
