# SPDX-License-Identifier: Apache-2.0
"""What `livery.toml` says of the reaper that runs beside each server."""

import attrs

from ..ports.provided.sweep_claims import (
    GRACE_SECONDS,
    INTERVAL_SECONDS,
    SWEEP_SECONDS,
)
from .setting_words import Seconds, doc


@attrs.frozen(kw_only=True)
class ReaperSettings:
    """How often, how long and after what grace a server sweeps the claims."""

    interval_seconds: Seconds | None = attrs.field(
        default=INTERVAL_SECONDS,
        metadata=doc(
            "How long after a sweep, or after the server's start, the next one begins."
            " none: there is no sweep; `livery claims reap` is the only one."
        ),
    )
    sweep_seconds: Seconds = attrs.field(
        default=SWEEP_SECONDS,
        metadata=doc("How long a sweep may take; what is left is the next one's."),
    )
    grace_seconds: Seconds = attrs.field(
        default=GRACE_SECONDS,
        metadata=doc(
            "How long what a dead process held is kept for callers who come back. What"
            " was being released already is not kept."
        ),
    )
