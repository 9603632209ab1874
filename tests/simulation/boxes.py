# SPDX-License-Identifier: Apache-2.0
"""Simulated sandboxes: what is in them goes on whether or not anybody looks.

A box lives from its making to its end, its expiry or its sudden death. Its runs are
supervised as the supervisor does it: one start per folder, a forbidden one never,
a receipt at the end. Everything is worked out from the time, so nothing runs.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from livery.domain.claims import ClaimId, OwnerId
from livery.ports.required.sandbox_provider import ClaimLabel

NEVER = float("inf")


@attrs.define
class Run:
    """One supervised run of a harness."""

    episode: str
    started_at: float
    ends_at: float
    how: str
    """As the receipt says when nobody stops it."""
    status: int
    stopped_at: float = NEVER

    def over(self, now: float) -> bool:
        """Tell whether every process of it is dead."""
        return now >= min(self.ends_at, self.stopped_at)

    def solved(self, now: float) -> bool:
        """Tell whether it did its work: it came to its own good end."""
        by_itself = self.how == "exited" and self.ends_at <= min(now, self.stopped_at)
        return by_itself and self.status == 0

    def receipt(self) -> dict[str, object]:
        """Return what the supervisor writes at the end."""
        cut = self.stopped_at < self.ends_at
        ended_at = min(self.ends_at, self.stopped_at)
        size = len(OUTPUT)
        return {
            "how": "cancelled" if cut else self.how,
            "number": self.status,
            "reason": "stopped" if cut else "",
            "leader_seconds": ended_at - self.started_at,
            "seconds": ended_at - self.started_at,
            "started_at": self.started_at,
            "ended_at": ended_at,
            "gone": True,
            "leftovers": 0,
            "outputs": {
                "stdout": {"size": size, "kept": [size, 0]},
                "stderr": {"size": 0, "kept": [0, 0]},
            },
        }


OUTPUT = b"done\n"
FORBIDDEN = "forbidden"
OUT_OF_MEMORY = 9
"""The signal by which the kernel ends what takes too much."""


@attrs.define(eq=False)
class Box:
    """One sandbox that was made."""

    number: int
    claim: ClaimId
    owner: OwnerId
    ready_at: float
    expires_at: float
    dies_at: float
    late: bool
    """Made when nobody waited for it any more."""
    word: str
    """What its claim is called where chance is asked, as `Outside.word` has it."""
    on_start: Callable[[str], None]
    end: str = "it is gone"
    """How its provider tells of an end that nobody asked for."""
    memory_until: float = NEVER
    """How many seconds of a harness its memory is enough for."""
    ended_at: float = NEVER
    files: dict[str, bytes] = attrs.field(factory=dict[str, bytes])
    starved: list[str] = attrs.field(factory=list[str])
    """Episodes whose harness ran out of memory here."""
    solved_before: bool = False
    """Whether the workspace was unpacked here with the work done."""
    runs: dict[str, Run | str] = attrs.field(factory=dict[str, Run | str])
    on_the_way: list[tuple[float, str, Mapping[str, Any]]] = attrs.field(
        factory=list[tuple[float, str, Mapping[str, Any]]]
    )
    """Launches that arrive later, each with its moment."""

    @property
    def name(self) -> str:
        return f"box-{self.number}"

    @property
    def label(self) -> ClaimLabel:
        return ClaimLabel(claim=self.claim, owner=self.owner)

    @property
    def gone_at(self) -> float:
        return min(self.ended_at, self.expires_at, self.dies_at)

    def alive(self, now: float) -> bool:
        return now < self.gone_at

    def catch_up(self, now: float) -> None:
        """Let what was on its way arrive."""
        due = sorted(each[:2] for each in self.on_the_way if each[0] <= now)
        requests = {folder: request for _, folder, request in self.on_the_way}
        self.on_the_way[:] = [each for each in self.on_the_way if each[0] > now]
        for moment, folder in due:
            if self.alive(moment):
                self.launch(folder, requests[folder], moment)

    def launch(self, folder: str, request: Mapping[str, Any], now: float) -> str:
        standing = self.runs.get(folder)
        if standing is not None:
            return "failed" if standing == FORBIDDEN else "exists"
        _, episode, seconds, how, status = request["argv"]
        lasts = min(float(seconds), request["timeout_seconds"])
        timed_out = float(seconds) >= request["timeout_seconds"]
        if lasts > self.memory_until:
            lasts, how, status, timed_out = self.memory_until, "signalled", 9, False
        ends_at = now + lasts
        self.runs[folder] = Run(
            episode=episode,
            started_at=now,
            ends_at=ends_at,
            how="timed_out" if timed_out else how,
            status=int(status),
        )
        self.on_start(episode)
        if how == "signalled" and int(status) == OUT_OF_MEMORY:
            self.starved.append(episode)
        return "started"

    def state(self, folder: str, now: float) -> dict[str, object]:
        run = self.runs.get(folder)
        if run is None:
            return {"state": "absent"}
        if isinstance(run, str):
            return {"state": run}
        if not run.over(now):
            return {"state": "running"}
        self.files[f"{folder}/stdout"] = OUTPUT
        return {"state": "finished", "receipt": run.receipt()}

    def forbid(self, folder: str, now: float) -> dict[str, object]:
        self.runs.setdefault(folder, FORBIDDEN)
        return self.state(folder, now)

    def stop(self, folder: str, now: float) -> dict[str, object]:
        run = self.runs.get(folder)
        if isinstance(run, Run):
            run.stopped_at = min(run.stopped_at, now)
        return self.state(folder, now)

    def stop_all(self, now: float) -> None:
        """End what runs here, while the box itself stays."""
        for run in self.runs.values():
            if isinstance(run, Run):
                run.stopped_at = min(run.stopped_at, now)

    def is_written_to(self, now: float) -> bool:
        """Tell whether something of a harness can still write here."""
        runs = [run for run in self.runs.values() if isinstance(run, Run)]
        return self.alive(now) and any(not run.over(now) for run in runs)

    def is_solved(self, now: float) -> bool:
        """Tell whether the workspace holds the finished work."""
        runs = [run for run in self.runs.values() if isinstance(run, Run)]
        return self.solved_before or any(run.solved(now) for run in runs)

    def packed(self, now: float) -> bytes:
        return json.dumps({"solved": self.is_solved(now)}).encode()

    def unpack(self, tar: bytes) -> None:
        self.solved_before = json.loads(tar)["solved"]
