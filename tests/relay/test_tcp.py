# SPDX-License-Identifier: Apache-2.0
"""A connection that breaks is an `OSError`, in each direction."""

import anyio
import anyio.abc
import pytest

from livery.adapters.host_ports import dial_tcp

from .far_ends import serving

pytestmark = pytest.mark.anyio


async def test_a_connection_that_was_closed_breaks_and_nobody_there_is_told() -> None:
    async def leave(stream: anyio.abc.SocketStream) -> None:
        await stream.aclose()

    async with serving(leave) as dial:
        stream = await dial()
        assert await stream.receive() == b""
        await stream.aclose()
        with pytest.raises(OSError, match="broke"):
            await stream.send(b"x")
        with pytest.raises(OSError, match="broke"):
            await stream.receive()

    with pytest.raises(OSError, match=r"failed|refused|Connect"):
        await dial_tcp("127.0.0.1", 1)()
