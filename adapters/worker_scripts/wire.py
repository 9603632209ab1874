# SPDX-License-Identifier: Apache-2.0
"""The frames that the worker and its host exchange.

A frame is a kind (one byte), the number of the call it belongs to (four) and
the length of its payload (four), then the payload: JSON or bytes of a file. The
host's end of the same rules is `ports/provided/worker_frames.py`.
"""

from __future__ import annotations

import json
import struct
from typing import Iterator, cast

HEADER = struct.Struct(">BII")
CHUNK_BYTES = 256 * 1024
"""The most bytes of content that one frame carries."""
WINDOW_BYTES = 4 * CHUNK_BYTES
"""How much content of one call may be under way without a credit for it."""
FRAME_BYTES_MAX = 8 * 1024 * 1024
"""The longest payload; a command with a longer argument list is none."""

EXEC, PUT, GET, STAT, RENAME = 1, 2, 3, 4, 5
"""Asked by the host: the payload is JSON."""
CHUNK, CREDIT, END, KILL = 8, 9, 10, 11
"""CHUNK and CREDIT go both ways; END closes a put; KILL ends any call."""
HELLO, OPENED, ANSWER, FAILED = 16, 17, 18, 19
"""Told by the worker: the payload is JSON; ANSWER or FAILED is a call's last."""


class FrameTooLong(Exception):
    """The other end does not keep to the frames."""


def frame(kind: int, call: int, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    return HEADER.pack(kind, call, len(payload)) + payload


def told(kind: int, call: int, words: dict[str, object]) -> bytes:
    """Return the bytes of a frame with a JSON payload."""
    # Lone surrogates stand for bytes that are no UTF-8; they must come through.
    text = json.dumps(words, ensure_ascii=False)
    return frame(kind, call, text.encode("utf-8", "surrogatepass"))


def words_of(payload: bytes) -> dict[str, object]:
    """Return the JSON object that a payload holds."""
    words = json.loads(payload.decode("utf-8", "surrogatepass"))
    assert isinstance(words, dict)
    return cast("dict[str, object]", words)  # JSON knows text keys alone


class FrameReader:
    """Puts frames together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the kind, call and payload of every frame that is complete now.

        Raises:
            FrameTooLong: A header announces more than `FRAME_BYTES_MAX`.
        """
        self._held += piece
        begin = 0
        try:
            while len(self._held) - begin >= HEADER.size:
                kind, call, length = HEADER.unpack_from(self._held, begin)
                if length > FRAME_BYTES_MAX:
                    raise FrameTooLong("a frame of %d bytes" % length)
                end = begin + HEADER.size + length
                if end > len(self._held):
                    return
                payload = bytes(memoryview(self._held)[begin + HEADER.size : end])
                begin = end
                yield kind, call, payload
        finally:
            del self._held[:begin]
