# SPDX-License-Identifier: Apache-2.0
"""Browsers are refused: no page that somebody opens drives a server of this host.

The servers ask nobody who they are, so a page could send them a form's request, which
a browser lets out unasked, or be their own page by a name that leads to loopback. A
browser says where such a request comes from, in `Origin`; programs do not send it.
"""

from typing import Final

import attrs
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import refused

FORBIDDEN: Final = 403
KIND: Final = "browser_refused"
_DETAIL: Final = (
    "The request has an Origin header, as a browser's has, and this server"
    " serves no browser; send it from a program, without that header."
)


@attrs.frozen
class BrowsersRefused:
    """An application that no browser gets to."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request that says what page it comes from; pass on any other."""
        if scope["type"] == "http" and "origin" in Headers(scope=scope):
            await refused(FORBIDDEN, KIND, _DETAIL)(scope, receive, send)
            return
        await self.app(scope, receive, send)
