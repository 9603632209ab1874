# SPDX-License-Identifier: Apache-2.0
"""The event stream of a command, read as it is on the wire.

Each event is a JSON object of its own line, with or without `data:` before it, and
blank lines between. The first names the command; the last tells its end, and what
comes after it counts no more. A stream that stops before that tells no end at all.
Output comes by lines that have lost what ended them: whatever must be exact goes
another way.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import cast

import attrs

LINE_BYTES_MAX = 16 * 1024 * 1024


@attrs.frozen
class Began:
    """The command has this id."""

    command_id: str


@attrs.frozen
class Printed:
    """A line of output; what ended it is not known."""

    is_stderr: bool
    text: str


@attrs.frozen
class CommandEnded:
    """The command is over."""

    code: int | None
    """Its exit status; -1 when a signal ended it; None when it is not told."""
    reason: str = ""


@attrs.frozen
class StreamBroken(Exception):
    """The stream holds no events, or stopped before the last one."""

    reason: str

    def __str__(self) -> str:
        return self.reason


Event = Began | Printed | CommandEnded


async def events(pieces: AsyncIterable[bytes]) -> AsyncGenerator[Event]:
    """Yield the events up to the last one.

    Raises:
        StreamBroken: There is no last one; how the command ended is unknown.
    """
    held = bytearray()
    async for piece in pieces:
        held += piece
        while (end := held.find(b"\n")) >= 0:
            line = bytes(held[:end])
            del held[: end + 1]
            event = _event(line)
            if event is None:
                continue
            yield event
            if isinstance(event, CommandEnded):
                return
        if len(held) > LINE_BYTES_MAX:
            raise StreamBroken("one of its events has no end")
    event = _event(bytes(held))
    if isinstance(event, CommandEnded):
        yield event
        return
    raise StreamBroken("it ended without saying how the command did")


def _event(line: bytes) -> Event | None:
    text = line.strip().removeprefix(b"data:").strip()
    if not text or text.startswith((b"event:", b"id:", b"retry:", b":")):
        return None
    try:
        raw: object = json.loads(text)
    except ValueError as fault:
        raise StreamBroken(f"it holds what is no event: {text[:100]!r}") from fault
    if not isinstance(raw, dict):
        raise StreamBroken(f"it holds what is no event: {text[:100]!r}")
    words = cast("dict[str, object]", raw)  # JSON has text for keys.
    kind, said = words.get("type"), str(words.get("text", ""))
    if kind == "init":
        return Began(said)
    if kind in {"stdout", "stderr"}:
        return Printed(kind == "stderr", said)
    if kind == "execution_complete":
        return CommandEnded(0)
    if kind == "error":
        return _failed(words.get("error"))
    return None  # A ping, or what later servers may add.


def _failed(raw: object) -> CommandEnded:
    words = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    told = str(words.get("evalue", ""))
    traceback = words.get("traceback")
    lines = cast("list[object]", traceback) if isinstance(traceback, list) else []
    reason = "; ".join(str(line) for line in lines) or told
    try:
        return CommandEnded(int(told), reason)
    except ValueError:
        return CommandEnded(None, reason)
