# SPDX-License-Identifier: Apache-2.0
"""Passing one call on: the request whole, the answer as it comes.

Three things go on at once: the answer's bytes, events that keep the caller awake
while the upstream is silent, and the watch for a caller that goes away, which ends
the upstream's work at once. An answer that breaks off breaks off for the caller.
"""

from collections.abc import Sequence
from typing import Final

import anyio
import attrs
from starlette.types import Receive, Send

from ...adapters.model_upstream import (
    AnswerReader,
    Dialect,
    UpstreamAnswer,
    UpstreamFailed,
    error_body,
    error_event,
)
from ...ports.required.model_access import CallEnd
from .call import CallerGone, CallUnderWay

ERROR_BYTES_MAX: Final = 256 * 1024
"""So much of an error is told in a stream that was begun before it."""
_EVENTS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


@attrs.define(kw_only=True, eq=False)
class Passing:
    """One call, its upstream and its caller."""

    call: CallUnderWay
    dialect: Dialect
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    receive: Receive
    send: Send
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    """Held while the answer's next bytes, or an event of ours, go out."""
    _has_begun: bool = attrs.field(default=False, init=False)
    _is_early: bool = attrs.field(default=False, init=False)
    """Whether we began a stream before the upstream answered."""
    _takes_events: bool = attrs.field(default=False, init=False)
    _spoke_at: float = attrs.field(factory=anyio.current_time, init=False)

    async def run(self) -> None:
        """Pass the call on, until it is over within its bounds.

        Raises:
            CallerGone: The caller went away; the upstream was cancelled.
        """
        session = self.call.session
        own, left = session.bounds.call_seconds_max, session.seconds_left
        gone = False
        with anyio.move_on_after(min(own, left)) as bound:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    nonlocal gone
                    while (await self.receive())["type"] != "http.disconnect":
                        pass
                    gone = True
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch)
                if self.call.asked.is_streamed:
                    tasks.start_soon(self._keep_awake)
                await self._pass_on()
                tasks.cancel_scope.cancel()
        if gone and self.call.end is None:
            raise CallerGone
        if bound.cancelled_caught and left < own:
            self.call.ended(CallEnd.NOT_FORWARDED, "the session's time is over")
        elif bound.cancelled_caught:
            self.call.ended(CallEnd.SILENT, f"it took longer than {own:g} s")

    async def _pass_on(self) -> None:
        try:
            async with self.call.session.line.ask(
                self.call.method,
                self.target,
                dialect=self.dialect,
                headers=self.headers,
                body=self.call.body,
            ) as answer:
                await self._pass_back(answer)
        except UpstreamFailed as failed:
            self.call.ended(failed.end, failed.reason)
            if not self._has_begun or self._is_early:
                await self._tell(failed)
            # Else it breaks off here: the server closes what has no end.

    async def _pass_back(self, answer: UpstreamAnswer) -> None:
        self.call.reader = reader = AnswerReader(
            answer.status, is_stream=answer.is_stream
        )
        async with self._turn:
            is_early = self._is_early
            if not is_early:
                await self._begin(answer.status, list(answer.headers))
            self._takes_events = answer.is_stream and answer.status < 400
        if is_early and not self._takes_events:
            await self._pass_back_as_event(answer)
            return
        size = answer.header(b"content-length")
        async for piece in answer.pieces:
            if piece:
                async with self._turn:
                    self.call.took(piece)
                    if reader.is_last or str(self.call.response_bytes) == size:
                        # Whoever reads these bytes may ask for the record at once.
                        self.call.ended(*reader.end())
                        self.call.note()
                    await self._say(piece)
        end, reason = reader.end()
        if answer.is_stream and not reader.is_whole and end is CallEnd.ANSWERED:
            end, reason = CallEnd.CUT, "the stream ended without its last event"
        self.call.ended(end, reason)
        await self._finish()

    async def _pass_back_as_event(self, answer: UpstreamAnswer) -> None:
        """Tell an error, or an answer that is no stream, after a stream was begun."""
        body = bytearray()
        async for piece in answer.pieces:
            self.call.took(piece)
            body += piece[: ERROR_BYTES_MAX - len(body)]
        assert self.call.reader is not None
        end, reason = self.call.reader.end()
        if end is CallEnd.ANSWERED:
            end, reason = CallEnd.UPSTREAM_FAILED, "it answered a stream with no stream"
        self.call.ended(end, reason)
        event = error_event(
            self.dialect, bytes(body), reason, end.value.replace(" ", "_")
        )
        async with self._turn:
            await self._say(event)
            await self._finish()

    async def _tell(self, failed: UpstreamFailed) -> None:
        """Tell that no answer came, in the caller's dialect."""
        status = 504 if failed.end is CallEnd.SILENT else 502
        kind = failed.end.value.replace(" ", "_")
        async with self._turn:
            if self._is_early:
                await self._say(error_event(self.dialect, b"", failed.reason, kind))
                await self._finish()
                return
            body = error_body(
                self.dialect, status=status, kind=kind, message=failed.reason
            )
            size = str(len(body)).encode()
            kinds = (b"content-type", b"application/json")
            self.call.status = status
            self.call.note()
            await self._begin(status, [kinds, (b"content-length", size)])
            await self._say(body)
            await self._finish()

    async def _keep_awake(self) -> None:
        """Say something whenever nothing was said for long, where that is allowed."""
        bounds = self.call.session.bounds
        while True:
            wait = (
                bounds.keep_alive_seconds if self._has_begun else bounds.early_seconds
            )
            due = self._spoke_at + wait
            await anyio.sleep_until(due)
            async with self._turn:
                if self._spoke_at + wait > anyio.current_time():
                    continue
                if not self._has_begun:
                    self._is_early = self._takes_events = True
                    await self._begin(200, _EVENTS)
                reader = self.call.reader
                if self._takes_events and (reader is None or reader.is_between_events):
                    await self._say(self.dialect.keep_alive)
                self._spoke_at = anyio.current_time()

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_begun = True
        self.call.status = status
        await self.send(
            {"type": "http.response.start", "status": status, "headers": headers}
        )

    async def _say(self, piece: bytes) -> None:
        self._spoke_at = anyio.current_time()
        await self.send(
            {"type": "http.response.body", "body": piece, "more_body": True}
        )

    async def _finish(self) -> None:
        self.call.note()
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
