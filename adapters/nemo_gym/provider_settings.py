# SPDX-License-Identifier: Apache-2.0
"""How a provider for NeMo Gym carries out its calls."""

from collections.abc import Mapping
from typing import Final

import attrs

from ...ports.required.sandbox import Command

BASH_OR_SH: Final = (
    'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; fi;'
    ' exec /bin/sh -c "$1"'
)
"""What sources conda needs bash, and not every image has it."""


@attrs.frozen(kw_only=True)
class Probe:
    """What a new sandbox must answer before it is handed out."""

    command: str
    expected_stdout: str | None = None
    timeout_s: float = 30.0
    deadline_s: float = 60.0
    stable_count: int = 1
    stable_delay_s: float = 1.0


@attrs.frozen(kw_only=True)
class GymProviderSettings:
    """How calls are carried out."""

    name: str
    """NeMo Gym's name for the provider."""
    block: str
    """The provider's block, as claims and accesses carry it."""
    default_timeout_s: float = 180.0
    transfer_timeout_s: float = 300.0
    exec_shell: str | None = None
    """None: bash where the sandbox has it, else `/bin/sh`."""
    output_bytes_max: int = 8 * 1024 * 1024
    probe: Probe | None = None
    close_timeout_s: float = 60.0
    releases_at_end: bool = False
    """Whether closing the provider releases what is still claimed."""

    def command(
        self,
        text: str,
        *,
        cwd: str | None,
        env: Mapping[str, str],
        timeout_s: float | None,
        user: str | int | None,
        detaches: bool,
    ) -> Command:
        """Return the command that has the shell read `text`."""
        argv: tuple[str, ...] = ("/bin/sh", "-c", BASH_OR_SH, "sh", text)
        if self.exec_shell is not None:
            argv = (self.exec_shell, "-c", text)
        seconds = self.default_timeout_s if timeout_s is None else float(timeout_s)
        return Command(
            argv=argv,
            timeout_seconds=seconds,
            cwd=cwd,
            env=env,
            user=None if user is None else str(user),
            output_bytes_max=self.output_bytes_max,
            detaches=detaches,
        )
