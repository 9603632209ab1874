# SPDX-License-Identifier: Apache-2.0
"""Addresses of servers, as settings and options give them."""

from typing import ClassVar
from urllib.parse import urlsplit

import attrs

from ..ports.required.faults import Fault


@attrs.frozen
class UrlRefused(Fault):
    """An address of a server is none that can be asked."""

    kind: ClassVar[str] = "url_refused"
    message: ClassVar[str] = "{field} is {url!r}: {reason}."

    field: str
    url: str
    reason: str


def to_url(field: str, url: str) -> str:
    """Return the address of a server without a slash at its end.

    Raises:
        UrlRefused: It is none, or holds more than an address.
    """
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        # What is no address may hold a secret anywhere, so it is not shown.
        raise UrlRefused(field, "…", "it is no address that can be read") from None
    if parts.scheme not in ("http", "https") or not has_place:
        shown = "…" if "@" in url else url
        raise UrlRefused(field, shown, "it is no http:// or https:// address")
    if parts.username or parts.password or parts.query or parts.fragment:
        # What is refused may hold a secret, so it is not shown.
        raise UrlRefused(field, f"{parts.scheme}://…", "it is more than an address")
    return url.rstrip("/")
