# SPDX-License-Identifier: Apache-2.0
"""Answers, read whole and within bounds: what is asked may stand in a sandbox.

An agent can put a server of its own in the place of the one that is meant. What that
one answers, however long, slow or packed, costs a failed call and no more.
"""

from typing import Final

import anyio
import attrs
import httpx

from .retries import Delivery

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""How long an answer may be, unpacked."""
ANSWER_SECONDS: Final = 120.0
"""How long the body of an answer may take to come, from its head on."""
NOT_DECODED: Final = "its answer cannot be decoded"

_PACKED: Final = ("content-encoding", "content-length", "transfer-encoding")
"""What is said of a body as it was on its way."""


@attrs.frozen
class AnswerUnusable(Exception):
    """The other side answered, and the answer cannot be used; nor would another."""

    reason: str

    @property
    def delivery(self) -> Delivery:
        """How far the request got."""
        return Delivery.DELIVERED

    def __str__(self) -> str:
        return self.reason


async def whole_answer(
    head: httpx.Response,
    *,
    bytes_max: int = ANSWER_BYTES_MAX,
    seconds_max: float = ANSWER_SECONDS,
) -> httpx.Response:
    """Return the answer with its body read, its connection free again.

    Raises:
        AnswerUnusable: It is too long, does not end or cannot be decoded.
        httpx.TransportError: It was cut off.
    """
    body = bytearray()
    try:
        with anyio.fail_after(seconds_max):
            async for piece in head.aiter_bytes():
                body += piece
                if len(body) > bytes_max:
                    raise AnswerUnusable(f"its answer is longer than {bytes_max} bytes")
    except httpx.DecodingError as fault:
        raise AnswerUnusable(NOT_DECODED) from fault
    except TimeoutError as late:
        told = f"its answer did not end within {seconds_max:g} s"
        raise AnswerUnusable(told) from late
    finally:
        with anyio.CancelScope(shield=True):
            await head.aclose()
    kept = [(n, v) for n, v in head.headers.multi_items() if n.lower() not in _PACKED]
    return httpx.Response(
        head.status_code, headers=kept, content=bytes(body), request=head.request
    )
