# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests are taken in to their end, whether anybody wants them or not."""

from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DRAIN_SECONDS: Final = 10.0
"""How long the rest of a body that nobody wants is taken in."""
CLOSING_HEADER: Final = (b"connection", b"close")


def read_to_the_end(app: ASGIApp, drain_seconds: float = DRAIN_SECONDS) -> ASGIApp:
    """Return `app`, with what it leaves of a body taken in and dropped.

    That is done before the answer goes out: Hypercorn closes a connection whose answer
    is complete before its request, and the client's next request would meet the end of
    it. One whose body does not end in time is told that the connection will be closed.

    An answer that tells that by itself goes out at once. What comes of the body after
    it is taken in all the same: a client that still sends would lose the answer.
    """

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        ended = at_once = False

        async def noted() -> Message:
            nonlocal ended
            message = await receive()
            ended = ended or not message.get("more_body", False)
            return message

        async def drained() -> None:
            with anyio.move_on_after(drain_seconds):
                while not ended:
                    await noted()

        async def held_back(start: Message) -> None:
            await drained()
            if not ended:
                start["headers"] = [*start["headers"], CLOSING_HEADER]

        async def answered(message: Message) -> None:
            nonlocal at_once
            if not ended and message["type"] == "http.response.start":
                at_once = CLOSING_HEADER in message["headers"]
                if not at_once:
                    await held_back(message)
            elif at_once and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await drained()
                message = {"type": "http.response.body"}
            await send(message)

        await app(scope, noted, answered)
        if not ended:
            await drained()

    return reading
