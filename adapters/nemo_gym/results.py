# SPDX-License-Identifier: Apache-2.0
"""From how a command ended to NeMo Gym's result.

A program's own end is its return code, with no error type. What was no end of the
program is the return code 125: `timeout`, with what was written until then, or
`sandbox`, when the sandbox or the way to it failed. A command that could not begin
(no such folder, no such user) is the caller's own 125, without an error type.
"""

from typing import assert_never

import attrs

from ...ports.required.sandbox import (
    Ended,
    Exited,
    ExitUnknown,
    Liveness,
    Lost,
    NotStarted,
    Signalled,
    Status,
    TimedOut,
)
from .gym import RUNTIME_RETURN_CODE, SANDBOX, TIMEOUT

SIGNAL_BASE = 128
"""A shell's way to tell the signal that ended a program."""


@attrs.frozen(kw_only=True)
class Told:
    """The result in words that need no NeMo Gym."""

    stdout: str
    stderr: str
    return_code: int
    error_type: str | None = None


def told(ended: Ended) -> Told:
    """Return the result of a command; bytes that are no UTF-8 are replaced."""
    stdout = ended.stdout.kept.decode(errors="replace")
    stderr = ended.stderr.kept.decode(errors="replace")
    match ended.how:
        case Exited(code):
            return Told(stdout=stdout, stderr=stderr, return_code=code)
        case Signalled(number):
            return Told(stdout=stdout, stderr=stderr, return_code=SIGNAL_BASE + number)
        case TimedOut(after):
            words = f"The command was ended after {after:g} s."
            return _sentinel(stdout, _with(stderr, words), TIMEOUT)
        case NotStarted(reason):
            return _sentinel(stdout, _with(stderr, f"It was not started: {reason}"))
        case ExitUnknown(reason) | Lost(reason):
            return _sentinel(stdout, _with(stderr, reason), SANDBOX)
        case _:
            assert_never(ended.how)


def failed(reason: str) -> Told:
    """Return the result of a command that the sandbox failed at."""
    return _sentinel("", reason, SANDBOX)


def gym_status(status: Status) -> str:
    """Return NeMo Gym's word for how a sandbox is."""
    match status.liveness:
        case Liveness.RUNNING:
            return "running"
        case Liveness.FROZEN:
            return "paused"
        case Liveness.ENDED:
            return "error" if status.out_of_memory else "stopped"
        case Liveness.UNKNOWN:
            return "unknown"
        case _:
            assert_never(status.liveness)


def _sentinel(stdout: str, stderr: str, error_type: str | None = None) -> Told:
    return Told(
        stdout=stdout,
        stderr=stderr,
        return_code=RUNTIME_RETURN_CODE,
        error_type=error_type,
    )


def _with(stderr: str, words: str) -> str:
    return f"{stderr}{'' if stderr.endswith(chr(10)) or not stderr else chr(10)}{words}"
