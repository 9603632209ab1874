# SPDX-License-Identifier: Apache-2.0
"""A latch: set once, and whoever waits for it goes on then.

What `anyio.Event` is, but with nothing to wait with until somebody waits. An open session
has two of them for as long as it is open, nearly nobody ever waits, and an event takes
0.8 KiB. Who comes when it is set goes on without a turn of the loop.
"""

import anyio
import attrs


@attrs.define(eq=False)
class Latch:
    """Not set at first."""

    _is_set: bool = attrs.field(default=False, init=False)
    _waited_for: anyio.Event | None = attrs.field(default=None, init=False)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and let those go on who wait."""
        self._is_set = True
        if self._waited_for is not None:
            self._waited_for.set()

    async def wait(self) -> None:
        """Return when it is set."""
        if self._is_set:
            return
        if self._waited_for is None:
            self._waited_for = anyio.Event()
        await self._waited_for.wait()
