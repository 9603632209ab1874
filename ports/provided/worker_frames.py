# SPDX-License-Identifier: Apache-2.0
"""The frames that the worker in a sandbox and its host exchange.

A frame is a kind (one byte), the number of the call it belongs to (four) and
the length of its payload (four), then the payload: JSON or bytes of a file. The
worker's end of the same rules is in the worker scripts.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import cast

import attrs

HEADER = struct.Struct(">BII")
CHUNK_BYTES = 256 * 1024
"""The most bytes of content that one frame carries."""
WINDOW_BYTES = 4 * CHUNK_BYTES
"""How much content of one call may be under way without a credit for it."""
FRAME_BYTES_MAX = 8 * 1024 * 1024
"""The longest payload; a command with a longer argument list is none."""


class FrameKind(IntEnum):
    """What a frame says."""

    EXEC = 1
    PUT = 2
    GET = 3
    STAT = 4
    RENAME = 5
    CHUNK = 8
    CREDIT = 9
    END = 10
    KILL = 11
    HELLO = 16
    OPENED = 17
    ANSWER = 18
    FAILED = 19


@attrs.frozen
class Frame:
    """One message of either end."""

    kind: FrameKind
    call: int
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the frame as it goes over the stream."""
        return HEADER.pack(self.kind, self.call, len(self.payload)) + self.payload


class FramesBroken(Exception):
    """What came is no frame: the other end is not a worker of ours."""


class FrameReader:
    """Puts frames together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield every frame that is complete now.

        Raises:
            FramesBroken: The kind is unknown, or the payload too long.
        """
        self._held += piece
        begin = 0
        try:
            while len(self._held) - begin >= HEADER.size:
                kind, call, length = HEADER.unpack_from(self._held, begin)
                end = begin + HEADER.size + length
                if kind not in _KINDS or length > FRAME_BYTES_MAX:
                    raise FramesBroken(
                        f"a frame of kind {kind} with {length} bytes came"
                    )
                if end > len(self._held):
                    return
                payload = bytes(memoryview(self._held)[begin + HEADER.size : end])
                begin = end
                yield Frame(FrameKind(kind), call, payload)
        finally:
            del self._held[:begin]


_KINDS = frozenset(FrameKind)


def to_payload(words: Mapping[str, object]) -> bytes:
    """Return `words` as the payload of a frame."""
    # Lone surrogates stand for bytes that are no UTF-8; they must come through.
    return json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogatepass")


def from_payload(payload: bytes) -> dict[str, object]:
    """Return the words that a payload holds.

    Raises:
        FramesBroken: It holds something else.
    """
    try:
        words = json.loads(payload.decode("utf-8", "surrogatepass"))
    except ValueError as fault:
        raise FramesBroken(f"a payload is no JSON: {fault}") from None
    if not isinstance(words, dict):
        raise FramesBroken("a payload is no JSON object")
    return cast("dict[str, object]", words)  # JSON knows text keys alone
