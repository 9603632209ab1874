# SPDX-License-Identifier: Apache-2.0
"""Clients as NeMo Gym's collector is one: they ask again until they are answered.

The same episode is asked for with the same body when a connection was lost or a server
had no answer, and again when an episode failed. Some leave and never come back; some
leave and come back; some ask once more after they were answered.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import aiohttp
import anyio
import attrs

from .workload import Episode

PATIENCE_SECONDS: Final = 900.0
PAUSE_SECONDS: Final = (0.5, 3.0)
FAILED_AGAIN_MAX: Final = 2
"""How often a client asks anew for an episode that failed."""
CALL_SECONDS: Final = 300.0
LEAVES: Final = 0.06
COMES_BACK: Final = 0.06
ASKS_ONCE_MORE: Final = 0.1
STAYS_SECONDS: Final = (0.2, 8.0)
KEPT_SECONDS: Final = 300.0
"""How long the environment server gives a result again."""
GRADED: Final = "graded"
LEFT: Final = "left by its client"


@attrs.define
class Answers:
    """What came of all clients."""

    outcomes: Counter[str] = attrs.field(factory=Counter[str])
    """How each episode ended for its client."""
    failures: Counter[str] = attrs.field(factory=Counter[str])
    """Answers that said failed or masked, whatever came after."""
    retries: Counter[str] = attrs.field(factory=Counter[str])
    """Why clients asked again."""
    graded: set[str] = attrs.field(factory=set[str])
    reasons: Counter[str] = attrs.field(factory=Counter[str])
    broken: list[str] = attrs.field(factory=list[str])
    """Promises that were not kept."""


@attrs.define
class Client:
    """Asks for one episode."""

    episode: Episode
    url: str
    http: aiohttp.ClientSession
    answers: Answers
    dice: random.Random
    calm: bool = False
    """Nothing goes wrong, so nothing may fail."""
    pause: tuple[float, float] = PAUSE_SECONDS

    async def run(self) -> None:
        """Have the episode run, and write down what came of it."""
        whim = self.dice.random()
        if whim < LEAVES + COMES_BACK:
            with anyio.move_on_after(self.dice.uniform(*STAYS_SECONDS)) as stay:
                await self._stay()
            if not stay.cancelled_caught:
                return
            if whim < LEAVES:
                self.answers.outcomes[LEFT] += 1
                return
            self.answers.retries["came back"] += 1
            await anyio.sleep(self.dice.uniform(*STAYS_SECONDS))
        await self._stay()

    async def _stay(self) -> None:
        row: dict[str, Any] | None = None
        told = ""
        with anyio.move_on_after(PATIENCE_SECONDS):
            for _ in range(1 + FAILED_AGAIN_MAX):
                row = await self._answered()
                told = self._judged(row)
                if told == GRADED:
                    break
                self.answers.failures[told] += 1
                self.answers.retries["failed"] += 1
            if told == GRADED and self.dice.random() < ASKS_ONCE_MORE:
                await self._once_more(row)
        if not told:
            self._break("had no answer")
            told = "no answer"
        self.answers.outcomes[told] += 1

    async def _answered(self) -> dict[str, Any]:
        """Ask until there is an answer."""
        while True:
            try:
                async with self.http.post(
                    f"{self.url}/run",
                    data=self.episode.body,
                    headers={"content-type": "application/json"},
                ) as answer:
                    content = await answer.read()
                    if answer.status == 200:
                        found: dict[str, Any] = json.loads(content)
                        return found
                    why = f"status {answer.status}"
                    if answer.status < 429 and answer.status != 408:
                        self._break(f"was answered {answer.status}: {content[:500]!r}")
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as cut:
                why = type(cut).__name__
            self.answers.retries[why] += 1
            await anyio.sleep(self.dice.uniform(*self.pause))

    def _judged(self, row: dict[str, Any]) -> str:
        """Return what an answer says, and hold it against what is known outside."""
        failure, result = row["failure"], row["result"]
        if failure is not None:
            reason = f"{failure['stage']}: {failure['failure_kind']}"
            self._note(reason, failure["failure_reason"])
            if failure["terminal"]:
                self._break(f"blames its request: {failure}")
            if self.calm:
                self._break(f"failed, and nothing went wrong: {failure}")
            return f"failed at {reason}"
        if result["mask_sample"]:
            kind = result["failure_kind"]
            self._note(str(kind), result["failure_reason"])
            if not kind:
                self._break(f"is masked without a kind: {result['failure_reason']}")
            if self.calm:
                self._break(f"is masked, and nothing went wrong: {result}")
            return f"masked as {kind}"
        if result["reward"] != self.episode.reward:
            why = result.get("failure_reason")
            wanted = self.episode.reward
            self._break(f"has the reward {result['reward']}, not {wanted} ({why})")
        self.answers.graded.add(self.episode.name)
        return GRADED

    def _note(self, kind: str, reason: str) -> None:
        self.answers.reasons[f"{kind}: {' '.join(str(reason).split())[:160]}"] += 1

    async def _once_more(self, row: dict[str, Any] | None) -> None:
        self.answers.retries["asked once more"] += 1
        began = anyio.current_time()
        again = await self._answered()
        same = row is not None and _but_for_times(row) == _but_for_times(again)
        if not same and anyio.current_time() - began < KEPT_SECONDS / 2:
            told = f"{json.dumps(row)[:2000]} and then {json.dumps(again)[:2000]}"
            self._break(f"was answered otherwise when it was asked once more: {told}")

    def _break(self, told: str) -> None:
        self.answers.broken.append(f"{self.episode.name} {told}")


def _but_for_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the times of serving it, which are told each time anew."""
    result = row["result"]
    if result is None:
        return row
    told = {**result["livery"], "seconds": None}
    return {**row, "result": {**result, "livery": told}}


def moments(rate: float, seconds: float, seed: int) -> list[float]:
    """Return when clients come: at random, `rate` a second on average, one at least."""
    dice, found, at = random.Random(f"{seed} arrivals"), [0.0], 0.0
    while (at := at + dice.expovariate(rate)) < seconds:
        found.append(at)
    return found


async def crowd(
    url: str, arrivals: Iterable[float], answers: Answers, seed: int, *, calm: bool
) -> None:
    """Let a client come at each moment, and wait until all are answered."""
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
        anyio.create_task_group() as group,
    ):
        began = anyio.current_time()
        for number, at in enumerate(arrivals, start=1):
            await anyio.sleep_until(began + at)
            dice = random.Random(f"{seed} client {number}")
            client = Client(Episode(number), url, http, answers, dice, calm)
            group.start_soon(client.run)
