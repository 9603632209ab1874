# SPDX-License-Identifier: Apache-2.0
"""Stop processes: end whatever runs in a sandbox, so that what is in it stands still."""

import logging
from typing import Final

import attrs

from ...domain.activations import Stillness
from ..required.sandbox import Sandbox
from .sandbox_programs import RuntimeMissing, SandboxProgram, Unreadable

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 30.0
STOPPER: Final = "stopper"


@attrs.frozen(kw_only=True)
class StopProcesses:
    """The use case, for the sandboxes of one provider."""

    program: bytes
    """The worker script that does it."""
    mark: str | None = None
    """The variable that marks a sandbox's processes, where it shares them with a host."""

    async def __call__(self, sandbox: Sandbox) -> Stillness | None:
        """End all processes; None when they were not seen to end.

        Raises:
            SandboxLost: There is none any more.
        """
        asked = SandboxProgram(sandbox=sandbox, name=STOPPER, text=self.program)
        words = () if self.mark is None else (self.mark,)
        try:
            told = await asked.ask(*words, timeout_seconds=STOP_SECONDS)
        except (Unreadable, RuntimeMissing) as reason:
            log.warning("Nobody saw that the sandbox is still: %s", reason)
            return None
        if told.get("state") == "still":
            return Stillness.PROCESSES_SEEN_DEAD
        if told.get("state") == "unmarked":
            log.warning("No process was ended: the one that does it has no mark")
        else:
            log.warning("Processes did not end: %s", told.get("left"))
        return None
