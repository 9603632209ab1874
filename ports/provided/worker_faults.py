# SPDX-License-Identifier: Apache-2.0
"""How the exec channel fails; a provider tells these as its own faults."""

from typing import ClassVar

import attrs

from ..required.faults import Fault


@attrs.frozen
class ChannelEnded(Fault):
    """The worker's stream ended; how the commands under way ended is unknown."""

    kind: ClassVar[str] = "channel_ended"
    message: ClassVar[str] = "The worker in the sandbox does not answer: {reason}."
    can_retry: ClassVar[bool] = True

    reason: str


@attrs.frozen
class WorkerFailed(Fault):
    """The worker is there and could not do one thing, or did not answer in time."""

    kind: ClassVar[str] = "worker_failed"
    message: ClassVar[str] = (
        "The worker in the sandbox failed to {operation}: {reason}."
    )
    can_retry: ClassVar[bool] = True

    operation: str
    reason: str
