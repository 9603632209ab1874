# SPDX-License-Identifier: Apache-2.0
"""What the end of a command means, in words that harnesses and worlds share.

A provider tells in the reason of `Lost` when the sandbox's own memory limit ended
it; that is the one thing that is read out of a reason.
"""

import re
from typing import Final, assert_never

from ..required.sandbox import (
    Exited,
    ExitUnknown,
    How,
    Lost,
    NotStarted,
    Signalled,
    TimedOut,
)

_OUT_OF_MEMORY: Final = re.compile(r"\bout of memory\b|\boom\b", re.IGNORECASE)


def is_out_of_memory(how: How) -> bool:
    """Tell whether the sandbox's memory limit ended the sandbox."""
    return isinstance(how, Lost) and bool(_OUT_OF_MEMORY.search(how.reason))


def to_words(how: How) -> str:
    """Return how a command ended, as the middle of a sentence."""
    match how:
        case Exited(code=code):
            return f"exited with status {code}"
        case Signalled(number=number):
            return f"was ended by signal {number}"
        case TimedOut(after_seconds=seconds):
            return f"ran into its deadline of {seconds:g} seconds"
        case NotStarted(reason=reason):
            return f"was not started: {reason}"
        case ExitUnknown(reason=reason):
            return f"ended unseen: {reason}"
        case Lost(reason=reason):
            return f"lost its sandbox: {reason}"
        case _:
            assert_never(how)
