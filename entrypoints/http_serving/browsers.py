# SPDX-License-Identifier: Apache-2.0
"""Browsers are refused: no page that somebody opens drives a server of this host.

The servers ask nobody who they are, so a page could send them a form's request, which
a browser lets out unasked, or be their own page by a name that leads to loopback. A
browser says where such a request comes from, in `Origin`; programs do not send it.
"""

from typing import Final

import attrs
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

FORBIDDEN: Final = 403
_REFUSED: Final = {
    "detail": "The request has an Origin header, as a browser's has, and this server"
    " serves no browser; send it from a program, without that header.",
    "kind": "browser_refused",
}


@attrs.frozen
class BrowsersRefused:
    """An application that no browser gets to."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request that says what page it comes from; pass on any other."""
        if scope["type"] == "http" and "origin" in Headers(scope=scope):
            await JSONResponse(_REFUSED, FORBIDDEN)(scope, receive, send)
            return
        await self.app(scope, receive, send)
