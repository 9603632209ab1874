# SPDX-License-Identifier: Apache-2.0
"""Send a packed program into a sandbox, in parts that each arrive whole or not.

In the whole process a few parts are on their way at a time, and only these are in
memory. Whoever waits for a lane is served in the order of coming, and each transfer
waits for few: many transfers go on side by side, none starves. A part that did not
arrive is sent again, alone.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import anyio
import attrs

from ..required.runtime_source import PackedBytes
from ..required.sandbox import Sandbox, SandboxFailed, TransferCut

PART_BYTES: Final = 768 * 1024
"""Below what providers move as bulk: that takes steps which pay for large files alone."""
LANES: Final = 4
LANES_OF_ONE: Final = 2
"""How many parts one transfer has on their way; two stuck ones leave no lane."""
PART_SECONDS: Final = 60.0
PART_ATTEMPTS_MAX: Final = 4
PAUSE_SECONDS: Final = 0.2
PART_MODE: Final = 0o600


@attrs.define(eq=False)
class PartLanes:
    """The lanes of this process."""

    lanes: int = LANES
    part_seconds: float = PART_SECONDS
    most: int = 0
    """How many were ever taken at the same time."""
    sent: int = 0
    """How many parts arrived."""
    _free: anyio.Semaphore = attrs.field(init=False)
    _taken: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._free = anyio.Semaphore(self.lanes)

    async def send(
        self, sandbox: Sandbox, path: str, packed: PackedBytes, offset: int, size: int
    ) -> None:
        """Send one part, read once it has a lane.

        Raises:
            SandboxFailed, TransferCut: It did not arrive.
            Fault: As `Sandbox.put` says.
        """
        async with self._free:
            self._taken += 1
            self.most = max(self.most, self._taken)
            try:
                with anyio.fail_after(self.part_seconds):
                    piece = await packed.piece(offset, size)
                    await sandbox.put(path, _once(piece), size=size, mode=PART_MODE)
            except TimeoutError:
                provider, told = sandbox.access().provider, sandbox.sandbox_id
                reason = f"a part did not arrive within {self.part_seconds:g} s"
                raise SandboxFailed(provider, told, "put", reason) from None
            finally:
                self._taken -= 1
            self.sent += 1


async def send_parts(
    sandbox: Sandbox,
    packed: PackedBytes,
    *,
    folder: str,
    packed_size: int,
    present: Sequence[int],
    lanes: PartLanes,
    pause_seconds: float = PAUSE_SECONDS,
) -> None:
    """Send the parts that are not `present`; cancelling ends what is on its way.

    Raises:
        SandboxFailed, TransferCut: A part did not arrive in `PART_ATTEMPTS_MAX` tries.
        Fault: As `Sandbox.put` says.
    """
    there = frozenset(present)
    count = -(-packed_size // PART_BYTES)
    missing = iter([number for number in range(count) if number not in there])
    fault: Exception | None = None

    async def send_next() -> None:
        nonlocal fault
        try:
            for number in missing:
                await _sent(
                    sandbox, packed, folder, number, packed_size, lanes, pause_seconds
                )
        except Exception as broken:  # Told once, alone, when all have stopped.
            fault = fault or broken
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(LANES_OF_ONE):
            tasks.start_soon(send_next)
    if fault is not None:
        raise fault


async def _sent(
    sandbox: Sandbox,
    packed: PackedBytes,
    folder: str,
    number: int,
    packed_size: int,
    lanes: PartLanes,
    pause_seconds: float,
) -> None:
    offset = number * PART_BYTES
    size = min(PART_BYTES, packed_size - offset)
    path = f"{folder}/{number:06d}"
    for attempt in range(1, PART_ATTEMPTS_MAX + 1):
        try:
            await lanes.send(sandbox, path, packed, offset, size)
        except (SandboxFailed, TransferCut):
            if attempt == PART_ATTEMPTS_MAX:
                raise
            await anyio.sleep(pause_seconds * 2 ** (attempt - 1))
        else:
            return


async def _once(piece: bytes) -> AsyncIterator[bytes]:
    yield piece
