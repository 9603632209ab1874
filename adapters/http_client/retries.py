# SPDX-License-Identifier: Apache-2.0
"""Retries: what may be asked again, how often and for how long.

It is decided by the kind of the fault, never by its text: did the request reach the
other side or not? A request that may have been delivered is asked again only when
asking twice does what asking once does.
"""

import email.utils
import ssl
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs
import httpx

RETRY_AFTER_SECONDS_MAX: Final = 120.0
RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})


class Delivery(StrEnum):
    """How far a failed request got."""

    NOT_SENT = "not sent"
    POSSIBLY_DELIVERED = "possibly delivered"
    DELIVERED = "delivered"


@attrs.frozen(kw_only=True)
class Patience:
    """The bounds of asking again; a value, so calls cannot share their state."""

    attempts_max: int = 4
    seconds_max: float = 60.0
    pause_seconds: float = 0.2
    """Before the second attempt; doubled each time, up to `pause_seconds_max`."""
    pause_seconds_max: float = 10.0
    connect_seconds: float = 5.0
    """How long each attempt may take to reach the other side."""

    def pause(self, attempt: int) -> float:
        """Return how long to wait after the given attempt, counted from 1."""
        doubled = self.pause_seconds * 2 ** min(attempt - 1, 30)
        return float(min(doubled, self.pause_seconds_max))


def delivery_of(fault: httpx.TransportError) -> Delivery:
    """Tell how far the request got that ended with this fault."""
    if isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return Delivery.NOT_SENT
    if isinstance(fault, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Delivery.NOT_SENT
    return Delivery.POSSIBLY_DELIVERED


def can_help(fault: httpx.TransportError) -> bool:
    """Whether asking again can end otherwise, with nobody mending anything."""
    if isinstance(fault, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return False
    return not _has_cause(fault, ssl.SSLCertVerificationError)


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """Return how long the answer asks to wait, bounded; None when it does not say.

    `now` is in Unix seconds. Both forms of the header are read: seconds and a date.
    """
    told = headers.get("retry-after", "").strip()
    if not told:
        return None
    if told.isascii() and told.isdigit():
        return min(float(told), RETRY_AFTER_SECONDS_MAX)
    try:
        at = email.utils.parsedate_to_datetime(told).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(at - now, 0.0), RETRY_AFTER_SECONDS_MAX)


def wall_clock() -> float:
    """Return the time that a date in a header is held against, in Unix seconds."""
    return time.time()


def _has_cause(fault: BaseException, kind: type[BaseException]) -> bool:
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, kind):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
