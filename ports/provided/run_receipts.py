# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a supervisor tells of a run, as values of ours.

A run is absent, forbidden, running, finished with its receipt, or vanished: its
supervisor was killed, what carried the run's mark was ended, and how the
command ended is unknown.
"""

import math
from enum import StrEnum
from typing import ClassVar, NewType, cast

import attrs

from ..required.faults import Fault
from ..required.harness import EarlyEnd
from ..required.sandbox import (
    Exited,
    ExitUnknown,
    NotStarted,
    Signalled,
    TimedOut,
)
from .sandbox_programs import Unreadable, Words

RunId = NewType("RunId", str)
"""Names one start of one command in a sandbox, for good."""


@attrs.frozen
class Cancelled:
    """The run was stopped before its command had ended."""

    reason: str
    asked: bool = True
    """Whether that was asked for from outside the sandbox."""


@attrs.frozen
class EndedEarly:
    """The run was ended because its watch said so; its processes were seen gone."""

    cause: EarlyEnd
    after_seconds: float


RunHow = (
    Exited | Signalled | TimedOut | NotStarted | Cancelled | EndedEarly | ExitUnknown
)


@attrs.frozen(kw_only=True)
class Captured:
    """How much of an output was kept, and where it was cut."""

    size: int = 0
    """True size in bytes."""
    head: int = 0
    tail: int = 0
    """How many bytes of the beginning and of the end are in the file."""
    fault: str = ""
    """Why less was kept than was allowed: a full disk, say."""

    @property
    def dropped(self) -> int:
        """How many bytes between the two were not kept."""
        return self.size - self.head - self.tail


@attrs.frozen(kw_only=True)
class Receipt:
    """The durable record of a run's end."""

    run: RunId
    how: RunHow
    started_at: float | None
    """Unix seconds, by the sandbox's clock."""
    ended_at: float | None
    duration_seconds: float
    stdout: Captured
    stderr: Captured
    leftovers_ended: int
    seen_gone: bool
    """Whether every process of the run was seen dead."""


@attrs.frozen
class Absent:
    """No run of that id was ever launched or forbidden."""


@attrs.frozen
class Forbidden:
    """The run has not started and never will."""


@attrs.frozen
class Running:
    """The supervisor lives."""


@attrs.frozen
class Finished:
    """The run is over."""

    receipt: Receipt


@attrs.frozen
class Vanished:
    """The supervisor ended without a receipt; what it left was ended by its mark."""

    receipt: Receipt
    """Made from what was found: how it ended is unknown."""


RunState = Absent | Forbidden | Running | Finished | Vanished


class Launched(StrEnum):
    """What a launch came to."""

    STARTED = "started"
    EXISTS = "exists"
    """It is there; whether this launch made it is not known."""
    EARLIER = "earlier"
    """It was there before this launch, which changed nothing."""


@attrs.frozen
class LaunchFailed(Fault):
    """The command of a run did not start, and never will under this id."""

    kind: ClassVar[str] = "launch_failed"
    message: ClassVar[str] = "Run {run} did not start: {reason}."
    can_retry: ClassVar[bool] = True

    run: str
    reason: str


@attrs.frozen
class CommandMissing(Fault):
    """The sandbox has no such program as a run was to be, or none that it can execute."""

    kind: ClassVar[str] = "command_missing"
    message: ClassVar[str] = (
        "Harness {harness} cannot be started in the sandbox: {reason}."
        " Correct its command, or have the sandbox's image bring the program."
    )

    harness: str
    reason: str
    """It names the program."""


@attrs.frozen
class RunLost(Fault):
    """The sandbox knows nothing of a run that was to be waited for."""

    kind: ClassVar[str] = "run_lost"
    message: ClassVar[str] = "The sandbox has no run {run}."

    run: str


@attrs.frozen
class RunStuck(Fault):
    """A run goes on beyond all its bounds."""

    kind: ClassVar[str] = "run_stuck"
    message: ClassVar[str] = (
        "Run {run} goes on after {seconds:g} seconds and cannot be stopped."
    )

    run: str
    seconds: float


def state_from(run: RunId, words: Words) -> RunState:
    """Read how a run stands.

    Raises:
        Unreadable: The answer tells of no state.
    """
    match words:
        case {"state": "absent"}:
            return Absent()
        case {"state": "forbidden"}:
            return Forbidden()
        case {"state": "running"}:
            return Running()
        case {"state": "finished"}:
            return Finished(_receipt_from(run, _object(words.get("receipt"))))
        case {"state": "vanished"}:
            return Vanished(_receipt_of_vanished(run, words))
        case _:
            raise Unreadable(f"its answer is {str(words)[:300]}")


def _receipt_from(run: RunId, words: Words) -> Receipt:
    outputs = _object(words.get("outputs"))
    alive = words.get("alive", [])
    how = _how_from(words)
    if words.get("gone") is not True:
        how = ExitUnknown(f"processes {alive} could not be ended")
    return Receipt(
        run=run,
        how=how,
        started_at=_number(words.get("started_at")),
        ended_at=_number(words.get("ended_at")),
        duration_seconds=_number(words.get("seconds")) or 0.0,
        stdout=_captured_from(_object(outputs.get("stdout"))),
        stderr=_captured_from(_object(outputs.get("stderr"))),
        leftovers_ended=_whole(words.get("leftovers")),
        seen_gone=words.get("gone") is True,
    )


def _how_from(words: Words) -> RunHow:
    reason = str(words.get("reason", ""))
    match words.get("how"):
        case "exited":
            return Exited(_whole(words.get("number")))
        case "signalled":
            return Signalled(_whole(words.get("number")))
        case "timed_out":
            return TimedOut(_number(words.get("leader_seconds")) or 0.0)
        case "not_started":
            return NotStarted(reason, no_program=words.get("no_program") is True)
        case "cancelled":
            return Cancelled(reason, asked=words.get("asked") is not False)
        case "ended_early" if reason in {*EarlyEnd}:
            after = _number(words.get("leader_seconds")) or 0.0
            return EndedEarly(EarlyEnd(reason), after)
        case other:
            raise Unreadable(f"the receipt says that it {other!r}")


def _receipt_of_vanished(run: RunId, words: Words) -> Receipt:
    kept = _object(words.get("kept"))
    return Receipt(
        run=run,
        how=ExitUnknown("the supervisor was killed before it wrote a receipt"),
        started_at=None,
        ended_at=None,
        duration_seconds=0.0,
        stdout=_captured_of_vanished(kept.get("stdout")),
        stderr=_captured_of_vanished(kept.get("stderr")),
        leftovers_ended=_whole(words.get("ended")),
        # A process that cleaned its environment carries no mark to find it by.
        seen_gone=False,
    )


def _captured_from(words: Words) -> Captured:
    head, tail = _pair(words.get("kept"))
    return Captured(
        size=_whole(words.get("size")),
        head=head,
        tail=tail,
        fault=str(words.get("fault", "")),
    )


def _captured_of_vanished(kept: object) -> Captured:
    head, tail = _pair(kept)
    fault = "the supervisor was killed; the true size is unknown"
    return Captured(size=head + tail, head=head, tail=tail, fault=fault)


def _object(found: object) -> Words:
    return cast("Words", found) if isinstance(found, dict) else {}


def _pair(found: object) -> tuple[int, int]:
    items = cast("list[object]", found) if isinstance(found, list) else []
    return (_whole(items[0]), _whole(items[1])) if len(items) == 2 else (0, 0)


def _whole(found: object) -> int:
    return found if isinstance(found, int) else 0


def _number(found: object) -> float | None:
    """Return a number that can be kept; JSON as Python reads it has others too."""
    if not isinstance(found, int | float):
        return None
    try:
        return float(found) if math.isfinite(found) else None
    except OverflowError:  # A whole number beyond what a float holds.
        return None
