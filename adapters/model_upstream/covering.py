# SPDX-License-Identifier: Apache-2.0
"""A secret that an upstream repeats is covered on its way to the sandbox.

What covers it is as long as it is, so sizes that were announced stay true. Bytes
are held back only while they may be the beginning of the secret.
"""

import json
import re

COVER = b"*"


class Cover:
    """Covers secrets in one stream of bytes."""

    def __init__(self, *secrets: str) -> None:
        """Look for each secret as it is, and as JSON spells it."""
        spelled = {text for secret in secrets if secret for text in _spellings(secret)}
        longest_first = sorted(spelled, key=len, reverse=True)
        self._spellings = longest_first
        self._any = re.compile(b"|".join(map(re.escape, longest_first)) or b"(?!)")
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can go on now.

        What may be the beginning of a spelling waits, a whole shorter one included.
        """
        text, at, out = self._held + piece, 0, bytearray()
        while True:
            ahead = len(text) - at
            held = max(
                (_overlap(text, one, ahead) for one in self._spellings), default=0
            )
            found = self._any.search(text, at)
            if found is None or found.start() >= len(text) - held:
                self._held = text[len(text) - held :]
                return bytes(out + text[at : len(text) - held])
            out += text[at : found.start()] + _cover(found)
            at = found.end()

    def end(self) -> bytes:
        """Return what was held back."""
        held, self._held = self._held, b""
        return self.covered(held)

    def covered(self, text: bytes) -> bytes:
        """Return a whole text with the secrets covered."""
        return self._any.sub(_cover, text)


def _cover(found: re.Match[bytes]) -> bytes:
    return COVER * len(found[0])


def _spellings(secret: str) -> tuple[bytes, bytes]:
    return secret.encode(), json.dumps(secret)[1:-1].encode()


def _overlap(text: bytes, secret: bytes, most: int) -> int:
    """Return how much of the end of `text` may be the beginning of `secret`."""
    for size in range(min(most, len(secret) - 1), 0, -1):
        if text.endswith(secret[:size]):
            return size
    return 0
