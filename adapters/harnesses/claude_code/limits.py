# SPDX-License-Identifier: Apache-2.0
"""The program's inner limits, made from the outer one.

Left alone it aborts commands after two minutes and waits for a model for hours. No
inner limit is below the budget of the run, but for the watch over silence: what
waits in silence is given up by the program itself before the watch ends the run.
"""

from typing import Final

import attrs

from .config import ClaudeCodeConfig

STALL_MARGIN_SECONDS: Final = 30.0
"""A silent command or model call is given up so long before the watch acts."""


@attrs.frozen(kw_only=True)
class Limits:
    """All in seconds."""

    run: float
    command: float
    """One call of the shell tool."""
    model: float
    """Of one call to the model: before its answer begins, and between its pieces."""
    stall: float | None
    """None: the run's own deadline comes first."""


def limits_of(config: ClaudeCodeConfig, asked_seconds: float | None) -> Limits:
    """Return the limits of a run for which the request asks `asked_seconds`."""
    run = min(config.timeout_seconds, asked_seconds or config.timeout_seconds)
    stall = config.stall_seconds
    if stall is not None and stall >= run:
        stall = None
    inner = run
    if stall is not None:
        inner = max(stall - STALL_MARGIN_SECONDS, stall / 2)
    return Limits(
        run=run,
        command=min(run, config.command_timeout_seconds or inner),
        model=min(run, config.model_timeout_seconds or inner),
        stall=stall,
    )
