# SPDX-License-Identifier: Apache-2.0
"""A secret that an upstream repeats is covered on its way to the sandbox.

What covers it is as long as it is, so sizes that were announced stay true. Bytes
are held back only while they may be the beginning of the secret.
"""

import json

COVER = b"*"


class Cover:
    """Covers secrets in one stream of bytes."""

    def __init__(self, *secrets: str) -> None:
        """Look for each secret as it is, and as JSON spells it."""
        spelled = {text for secret in secrets if secret for text in _spellings(secret)}
        self._spellings = sorted(spelled, key=len, reverse=True)
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can go on now."""
        whole = self.covered(self._held + piece)
        held = max((_overlap(whole, text) for text in self._spellings), default=0)
        self._held = whole[len(whole) - held :]
        return whole[: len(whole) - held]

    def end(self) -> bytes:
        """Return what was held back."""
        held, self._held = self._held, b""
        return held

    def covered(self, text: bytes) -> bytes:
        """Return a whole text with the secrets covered."""
        for spelling in self._spellings:
            text = text.replace(spelling, COVER * len(spelling))
        return text


def _spellings(secret: str) -> tuple[bytes, bytes]:
    return secret.encode(), json.dumps(secret)[1:-1].encode()


def _overlap(text: bytes, secret: bytes) -> int:
    """Return how much of the end of `text` may be the beginning of `secret`."""
    for size in range(min(len(text), len(secret) - 1), 0, -1):
        if text.endswith(secret[:size]):
            return size
    return 0
