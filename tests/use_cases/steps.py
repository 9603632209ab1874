# SPDX-License-Identifier: Apache-2.0
"""How many lines of a module run meanwhile: what grows with how much is there.

Lines are counted and no time is measured, so a slow machine counts the same.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType, ModuleType

import attrs


@attrs.define
class Steps:
    """The lines that ran."""

    count: int = 0


@contextmanager
def steps_in(module: ModuleType) -> Generator[Steps]:
    """Count the lines of `module` that run inside the block, in this thread."""
    steps = Steps()

    def trace_line(frame: FrameType, event: str, _: object) -> object:
        steps.count += event == "line"
        return trace_line

    def trace_call(frame: FrameType, event: str, _: object) -> object:
        return trace_line if frame.f_code.co_filename == module.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield steps
    finally:
        sys.settrace(before)
