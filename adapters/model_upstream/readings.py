# SPDX-License-Identifier: Apache-2.0
"""What an answer says of itself, read while its bytes pass by.

Nothing of the answer waits for this. An answer that is longer or odder than what
is read here goes on all the same, and its usage stays unknown.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from ...ports.required.model_access import CallEnd

Json = Mapping[str, object]

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an answer that is no stream, so much is read for its usage."""
EVENT_BYTES_MAX: Final = 1024 * 1024
"""A longer event of a stream is not read, but for its name."""
NAME_BYTES_MAX: Final = 256
"""So much of a longer event is looked at for its name."""
REASON_CHARACTERS_MAX: Final = 500

_TOO_LONG: Final = re.compile(
    r"prompt is too long|maximum context length|context[ _]length|context window"
    r"|exceeds? (?:the )?(?:model'?s )?(?:max\w* )?context|input is too long"
    r"|too many (?:input )?tokens|exceed context limit",
    re.IGNORECASE,
)
_TOO_LONG_CODES: Final = {"context_length_exceeded", "model_context_window_exceeded"}
_LAST_EVENTS: Final = {"message_stop", "response.completed", "response.incomplete"}
_NAMED_LAST: Final = re.compile(
    rb'\A(?:event: ?|data: ?\{\s*"type": ?")(?:%b)\b'
    % b"|".join(re.escape(name.encode()) for name in sorted(_LAST_EVENTS))
)
_REFUSALS: Final = {
    401: CallEnd.CREDENTIAL_REFUSED,
    403: CallEnd.CREDENTIAL_REFUSED,
    408: CallEnd.UPSTREAM_FAILED,
    429: CallEnd.THROTTLED,
}
_USAGE: Final = (
    ("input_tokens", ("input_tokens", "prompt_tokens")),
    ("output_tokens", ("output_tokens", "completion_tokens")),
    ("cache_read_input_tokens", ("cache_read_input_tokens",)),
    ("cache_creation_input_tokens", ("cache_creation_input_tokens",)),
)
_CACHED: Final = ("input_tokens_details", "prompt_tokens_details")


class AnswerReader:
    """Reads one answer, piece by piece."""

    def __init__(self, status: int, *, is_stream: bool) -> None:
        """Read an answer with this status; `is_stream`: server-sent events."""
        self._status = status
        self._is_stream = is_stream and status < 400
        self._held = bytearray()
        self._is_skipping = False
        self._skipped = b""
        self._ends_event = True
        self._error: tuple[CallEnd, str] | None = None
        self.usage: dict[str, int] = {}
        self.has_content = False
        """Whether the model's first words have come."""
        self.is_whole = False
        """Whether the stream came to an end of its own."""
        self.is_last = False
        """Whether nothing more can come of the stream."""

    @property
    def is_between_events(self) -> bool:
        """Whether an event of ours can stand here."""
        return self._ends_event

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body."""
        if not piece:
            return
        if not self._is_stream:
            self.has_content = True
            if len(self._held) <= BODY_BYTES_MAX:
                self._held += piece
            return
        tail = (bytes(self._held[-3:]) + piece)[-4:].replace(b"\r", b"")
        self._ends_event = tail.endswith(b"\n\n")
        self._held += piece
        self._read_events()

    def end(self) -> tuple[CallEnd, str]:
        """Return how the call came out, and why, now that the body is whole."""
        if not self._is_stream:
            words = _words(bytes(self._held))
            if self._status < 400:
                self._take_usage(words.get("usage"))
                if "input_tokens" in words:  # The whole answer of a count.
                    self._take_usage(words)
                return CallEnd.ANSWERED, ""
            return _refusal(self._status, words, bytes(self._held))
        if self._error is not None:
            return self._error
        return CallEnd.ANSWERED, ""

    def _read_events(self) -> None:
        while True:
            ends = [
                (at, len(mark))
                for mark in (b"\n\n", b"\r\n\r\n")
                if (at := self._held.find(mark)) >= 0
            ]
            if not ends:
                break
            at, size = min(ends)
            event = bytes(self._held[:at])
            del self._held[: at + size]
            if not self._is_skipping:
                self._take_event(event)
            elif _NAMED_LAST.match(self._skipped):
                # A whole response may be in it: its usage is unknown, its end is not.
                self.is_whole = self.is_last = True
            self._is_skipping = False
        if len(self._held) > EVENT_BYTES_MAX:
            if not self._is_skipping:
                self._skipped = bytes(self._held[:NAME_BYTES_MAX])
            del self._held[:-4]
            self._is_skipping = True

    def _take_event(self, event: bytes) -> None:
        lines = event.replace(b"\r", b"").split(b"\n")
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")
        )
        if data == b"[DONE]":
            self.is_whole = self.is_last = True
            return
        words = _words(data)
        kind = str(words.get("type", ""))
        if _is_content(kind, words):
            self.has_content = True
        self._take_usage(words.get("usage"))
        for inner in ("message", "response"):
            self._take_usage(_object(words.get(inner)).get("usage"))
        if not kind and _has_finished(words):
            self.is_whole = True
        if kind in _LAST_EVENTS:
            self.is_whole = self.is_last = True
        failed = _object(words.get("response")) if kind == "response.failed" else words
        if kind in {"error", "response.failed"} or (not kind and words.get("error")):
            self.is_whole = self.is_last = True
            self._error = _refusal(_status_of(failed), failed, data)

    def _take_usage(self, found: object) -> None:
        usage = _object(found)
        for name, spellings in _USAGE:
            for spelling in spellings:
                number = usage.get(spelling)
                if isinstance(number, int) and not isinstance(number, bool):
                    self.usage[name] = number
        for place in _CACHED:
            number = _object(usage.get(place)).get("cached_tokens")
            if isinstance(number, int) and not isinstance(number, bool):
                self.usage["cache_read_input_tokens"] = number


def _has_finished(words: Json) -> bool:
    choices = words.get("choices")
    if not isinstance(choices, list):
        return False
    return any(
        _object(one).get("finish_reason") for one in cast("list[object]", choices)
    )


def _is_content(kind: str, words: Json) -> bool:
    if kind.startswith("content_block") or kind.endswith(".delta"):
        return True
    return not kind and bool(words.get("choices"))


def _refusal(status: int, words: Json, body: bytes) -> tuple[CallEnd, str]:
    error = _object(words.get("error")) or words
    message = error.get("message", words.get("detail", ""))
    if not isinstance(message, str) or not message:
        message = body[:REASON_CHARACTERS_MAX].decode("utf-8", "replace")
    reason = f"{status}: {message[:REASON_CHARACTERS_MAX]}"
    codes = {str(error.get("code")), str(error.get("type"))}
    is_refusal = 400 <= status < 500 and status not in _REFUSALS
    if codes & _TOO_LONG_CODES or (is_refusal and _TOO_LONG.search(message)):
        return CallEnd.CONTEXT_LENGTH, reason
    if is_refusal:
        return CallEnd.REQUEST_REFUSED, reason
    return _REFUSALS.get(status, CallEnd.UPSTREAM_FAILED), reason


def _status_of(words: Json) -> int:
    """Return the status that an error event stands for."""
    error = _object(words.get("error")) or words
    kinds = {str(error.get("type")), str(error.get("code"))}
    if kinds & {"rate_limit_error", "rate_limit_exceeded"}:
        return 429
    if kinds & {"invalid_request_error", "invalid_prompt", *_TOO_LONG_CODES}:
        return 400
    return 500


def _words(text: bytes) -> Json:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return _object(found)


def _object(found: object) -> Json:
    return cast("Json", found) if isinstance(found, dict) else {}
