# SPDX-License-Identifier: Apache-2.0
"""The way into one sandbox: its door, and what is started behind it.

A door that is there is used again; where it has gone, execd makes another.
"""

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import attrs

from ...ports.provided.worker_channel import ChannelEnded, WorkerChannel, WorkerHello
from ...ports.required.byte_stream import ByteStream
from .berths import Berth
from .bulk_reading import download
from .execd import Execd, ExecdGone
from .opening import Wishes, open_door
from .places import Places
from .tunnel import DoorAddress, NoDoor, open_tunnel

ANSWERING_SECONDS = 10.0
"""How long execd of a sandbox that was ready before may take to answer again."""
LOOK_SECONDS = 0.1

_log = logging.getLogger(__name__)


@attrs.define(kw_only=True, eq=False)
class WayIn:
    """Opens workers and programs in one sandbox; channels run in `tasks`."""

    berth: Berth
    places: Places
    tasks: anyio.abc.TaskGroup
    python: str
    trust: ssl.SSLContext | None
    _door: DoorAddress | None = attrs.field(default=None, init=False)
    _execd: Execd | None = attrs.field(default=None, init=False)
    """Where it answered last: ports are given to others after a sandbox's end."""

    async def execd(self) -> Execd:
        """Return the sandbox's execd; whether it answers is not asked."""
        if self._execd is None:
            berth = self.berth
            self._execd = await self.places.execd(berth.sandbox_id, berth.token)
        return self._execd

    async def open_worker(
        self, *, patience: float, forget: Callable[[WorkerChannel], None]
    ) -> WorkerChannel:
        """Start a worker; `forget` is called when its channel has ended.

        Raises:
            NoDoor, ChannelEnded, ExecdGone, StreamBroken, ApiRefused, OpeningFailed:
                None was started.
        """
        if self._door is not None:
            try:
                return await self._open_channel(self._door, forget)
            except (NoDoor, ChannelEnded) as gone:
                _log.info("%s: another door: %s", self.berth.sandbox_id, gone)
                self._door = None
        door = await self._made_door(await self.execd(), patience)
        channel = await self._open_channel(door, forget)
        self._door = door
        return channel

    async def open_program(self, argv: tuple[str, ...]) -> ByteStream:
        """Start a program with its streams attached, once a worker was.

        Raises:
            NoDoor: The door has gone meanwhile.
        """
        if self._door is None:
            raise NoDoor(0, "the door has gone")
        user = self.berth.user
        return await open_tunnel(self._door, argv=argv, user=user, trust=self.trust)

    @asynccontextmanager
    async def download(self, path: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a large file as `bulk_reading` does."""
        async with download(await self.execd(), path, trust=self.trust) as pieces:
            yield pieces

    async def _made_door(self, execd: Execd, patience: float) -> DoorAddress:
        wishes = Wishes(
            workdir=self.berth.workdir,
            user=self.berth.user,
            scratch=self.berth.scratch,
            python=self.python,
        )
        until = anyio.current_time() + patience
        while True:
            try:
                return await open_door(
                    execd, wishes, has_frames=self.places.through_server
                )
            except ExecdGone:
                self._execd = None
                # It reads as running before execd listens, and after it was killed.
                if anyio.current_time() > until:
                    raise
            await anyio.sleep(LOOK_SECONDS)

    async def _open_channel(
        self, door: DoorAddress, forget: Callable[[WorkerChannel], None]
    ) -> WorkerChannel:
        channel = WorkerChannel(await open_tunnel(door, trust=self.trust))
        try:
            await self.tasks.start(self._run_channel, channel, forget)
        except BaseException:
            await channel.aclose()  # The task may not have begun, nor will it.
            raise
        return channel

    async def _run_channel(
        self,
        channel: WorkerChannel,
        forget: Callable[[WorkerChannel], None],
        *,
        task_status: anyio.abc.TaskStatus[WorkerHello],
    ) -> None:
        try:
            await channel.run(task_status=task_status)
        finally:
            forget(channel)
            with anyio.CancelScope(shield=True):
                await channel.aclose()
