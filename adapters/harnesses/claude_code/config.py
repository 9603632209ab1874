# SPDX-License-Identifier: Apache-2.0
"""How Claude Code is to be run: what the user chooses, with what is measured as default.

What decides whether a run can be read, resumed or kept apart is not the user's to
choose, so arguments and variables for that are refused.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from ....ports.required.harness import TURN_TIMEOUT_SECONDS, RuntimeNeed

RUNTIME: Final = "claude_code"
"""Its name where programs come from."""
GLIBC_LEAST: Final = (2, 26)
MODEL: Final = "claude-sonnet-4-6"
TURNS_MAX: Final = 30
EXECUTABLE: Final = "claude"
"""The program on the sandbox's own PATH, where none is brought."""
MODEL_RETRIES: Final = 2
RESULT_GRACE_SECONDS: Final = 20.0
STALL_SECONDS: Final = 900.0

_OUR_ARGUMENTS: Final = (
    "-p",
    "--print",
    "--output-format",
    "--input-format",
    "--verbose",
    "--model",
    "--session-id",
    "--settings",
    "--mcp-config",
    "--strict-mcp-config",
    "-c",
    "--continue",
    "-r",
    "--resume",
    "--no-session-persistence",
    "--max-turns",
    "--append-system-prompt",
    "--append-system-prompt-file",
    "--bg",
    "--background",
    "--version",
    "--",
)
_OUR_VARIABLES: Final = frozenset(
    {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CONFIG_DIR",
    }
)


class Wire(StrEnum):
    """How the program speaks to its model server."""

    NATIVE = "native"
    """As it speaks to its vendor's: system messages inside, thinking, every beta."""
    CONSERVATIVE = "conservative"
    """User and assistant messages alone, few betas, four tools."""


class Thinking(StrEnum):
    """What the program is told about thinking."""

    DISABLED = "disabled"
    ADAPTIVE = "adaptive"
    ENABLED = "enabled"


@attrs.frozen(kw_only=True)
class ClaudeCodeConfig:
    """One configuration of the harness. Durations are in seconds."""

    model: str = MODEL
    """Where the request names none."""
    base_url: str | None = None
    """Of a model server that needs no credential; a session's grant goes first."""
    wire: Wire = Wire.NATIVE
    max_turns: int | None = TURNS_MAX
    timeout_seconds: float = TURN_TIMEOUT_SECONDS
    system_prompt: str | None = None
    tools: str | None = None
    allowed_tools: str | None = None
    disallowed_tools: str | None = None
    thinking: Thinking | None = None
    max_thinking_tokens: int | None = None
    bare: bool = True
    mcp_config: str | None = None
    """A JSON file of this host."""
    settings: str | None = None
    """A JSON file of this host, laid over the settings of ours."""
    skills_path: str | None = None
    skills_roots: tuple[str, ...] = ()
    """Folders of this host below which a request may name its skills."""
    extra_arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    model_retries: int = MODEL_RETRIES
    model_timeout_seconds: float | None = None
    command_timeout_seconds: float | None = None
    stall_seconds: float | None = STALL_SECONDS
    result_grace_seconds: float = RESULT_GRACE_SECONDS
    context_tokens: int | None = None
    output_tokens: int | None = None
    runtime: RuntimeNeed | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse what would take the run out of our hands.

        Raises:
            ValueError: It says what is wrong.
        """
        for argument in self.extra_arguments:
            flag = argument.partition("=")[0]
            if flag in _OUR_ARGUMENTS:
                told = f"extra_arguments: {flag} is Livery's to set; see the options"
                raise ValueError(told)
        for name in self.env:
            if name in _OUR_VARIABLES:
                raise ValueError(f"env: {name} is Livery's to set")
        need = self.runtime
        if need is not None and (need.host_path or need.sandbox_path):
            if need.sha256 is None:
                raise ValueError("an executable's path needs its sha256")
            if need.host_path and need.sandbox_path:
                raise ValueError("an executable is on the host or in the sandbox")
