# SPDX-License-Identifier: Apache-2.0
"""Clients of simulated servers: they retry, leave, and come back with something else.

What they were told is compared: the same thing each time, and only one activation.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import attrs

from livery.domain.digests import Json
from livery.domain.tasks import EpisodeId, TaskId

from .doors import Door, Failed, Turned
from .outside import Outside
from .served import Server

TRIES_MAX: Final = 600
"""How often a client asks for one thing, before it is held to be stuck."""
PAUSE_SECONDS: Final = 11.0
CALL_SECONDS: Final = 900.0
"""How long a client waits for one reply."""
REQUESTS_MAX: Final = 3


class Stuck(AssertionError):
    """What was asked for never came."""


@attrs.define(eq=False, kw_only=True)
class Client:
    """Who has one session, and asks whichever server there is."""

    outside: Outside
    servers: Sequence[Server]
    number: int
    rough_until: float
    replies: dict[str, str] = attrs.field(factory=dict[str, str])
    """What each thing was first answered."""
    refused: set[str] = attrs.field(factory=set[str])

    @property
    def session(self) -> str:
        return f"session-{self.number}"

    @property
    def episode(self) -> EpisodeId:
        return EpisodeId(f"rollout-{self.number}", 0)

    async def live(self) -> None:
        """Seed, activate in some ways, and close."""
        chance = self.outside.chance
        await self.outside.clock.sleep(chance.between(f"{self.session} comes", 0, 300))
        task = TaskId("simulated", str(self.number))
        if not chance.happens(f"{self.session} is closed only", 0.05):
            await self._ask("seed", lambda d: d.seed(self.session, self.episode, task))
            async with anyio.create_task_group() as group:
                times = 1 + int(chance.number(f"{self.session} asks") * REQUESTS_MAX)
                for time in range(times):
                    group.start_soon(self._activate, time)
        await self._close("close")
        await self._close("close again")
        told = [name for name in self.replies if name.startswith("run ")]
        if len(told) > 1:
            self.outside.broken(1, f"{self.session} ran {sorted(told)}")
        self.outside.served += 1

    async def _activate(self, time: int) -> None:
        chance, name = self.outside.chance, f"{self.session} ask {time}"
        await self.outside.clock.sleep(chance.between(name, 0, 200) * (time > 0))
        which = chance.one_of(name, "run A", "run A", "run A", "run B")
        parameters: dict[str, Json] = {"input": which}
        reply = await self._ask(which, lambda d: d.activate(self.session, parameters))
        self._compare(which, reply)

    async def _close(self, name: str) -> None:
        reply = await self._ask(name, lambda d: d.close(self.session, self.episode))
        if reply is None:
            self.outside.broken(7, f"{self.session} cannot be closed")
        self._compare("close", reply)

    def _compare(self, name: str, reply: str | None) -> None:
        if reply is not None and self.replies.setdefault(name, reply) != reply:
            self.outside.broken(7, f"{self.session}: {name} is answered otherwise")

    async def _ask(
        self, what: str, ask: Callable[[Door], Awaitable[str]]
    ) -> str | None:
        """Return the reply; None when a rule says no."""
        chance, clock = self.outside.chance, self.outside.clock
        name = f"{self.session} {what}"
        for _ in range(TRIES_MAX):
            server = chance.one_of(name, *self.servers)
            wrong = None
            if clock.monotonic() < self.rough_until:
                share = self.outside.roughness
                kinds = ("request lost", "reply lost", "client leaves")
                wrong = chance.mishap(name, share, *kinds)
            await clock.sleep(chance.between(f"{name} travels", 0, 0.5))
            if server.door is None or wrong == "request lost":
                await clock.sleep(PAUSE_SECONDS)
                continue
            leaves = wrong == "client leaves"
            patience = chance.between(name, 0, 200) if leaves else CALL_SECONDS
            try:
                reply = await self._called(server, ask, patience)
            except Turned as turned:
                self.outside.note(f"{name}: {turned}")
                if wrong != "reply lost":
                    return None
            except Failed as failed:
                self.outside.note(f"{name}: {failed}")
            else:
                if reply is not None and wrong != "reply lost":
                    return reply
            await clock.sleep(PAUSE_SECONDS)
        raise Stuck(f"{name} was never answered")

    async def _called(
        self, server: Server, ask: Callable[[Door], Awaitable[str]], patience: float
    ) -> str | None:
        """Ask; None when the client left or the server ended."""
        door = server.door
        assert door is not None, "it was looked at just now"
        with anyio.move_on_after(patience) as scope:
            server.calls[scope] = self.session
            try:
                return await ask(door)
            except RuntimeError:
                if server.door is door:
                    raise
            finally:
                del server.calls[scope]
        return None
