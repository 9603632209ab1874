# SPDX-License-Identifier: Apache-2.0
"""Options of the harness `claude_code`, as `livery.toml` writes them.

The names are those of NeMo Gym's agent where it has the option. How the model is
reached with a real credential is not here: that is the model gateway's.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import attrs

from ..adapters.harnesses.claude_code import ClaudeCodeConfig, Thinking, Wire
from ..adapters.harnesses.claude_code.config import (
    GLIBC_LEAST,
    MODEL,
    MODEL_RETRIES,
    RESULT_GRACE_SECONDS,
    RUNTIME,
    STALL_SECONDS,
    TURNS_MAX,
)
from ..ports.required.harness import Delivery, RuntimeNeed
from .setting_words import Name, Range, Seconds, doc

MODEL_RETRIES_MAX: Final = 10


@attrs.frozen(kw_only=True)
class ClaudeCodeOptions:
    """Options of the harness `claude_code`."""

    model: Name = attrs.field(
        default=MODEL, metadata=doc("The model, where the request names none.")
    )
    anthropic_base_url: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "A model server that the sandbox reaches and that needs no credential. A"
            " session's access through the gateway goes first."
        ),
    )
    wire: Wire = attrs.field(
        default=Wire.NATIVE,
        metadata=doc(
            "native: all that the program can say. conservative: user and assistant"
            " messages alone, few betas, four tools."
        ),
    )
    max_turns: Annotated[int, Range(least=1)] | None = attrs.field(
        default=TURNS_MAX,
        metadata=doc(
            "How many turns it has; the outcome is incomplete. none: no limit."
        ),
    )
    system_prompt: str | None = attrs.field(
        default=None,
        metadata=doc("Added to the program's own; the request's comes after it."),
    )
    tools: str | None = attrs.field(
        default=None,
        metadata=doc("Exactly the tools that are offered, comma-separated."),
    )
    allowed_tools: str | None = attrs.field(
        default=None, metadata=doc("Tools that are used unasked, comma-separated.")
    )
    disallowed_tools: str | None = attrs.field(
        default=None,
        metadata=doc(
            "Tools that are denied, comma-separated, beside WebFetch and WebSearch,"
            " which are denied unless allowed_tools or tools names them."
        ),
    )
    thinking: Thinking | None = attrs.field(
        default=None, metadata=doc("none: as the program sees fit.")
    )
    max_thinking_tokens: Annotated[int, Range(least=0)] | None = attrs.field(
        default=None, metadata=doc("How much it may think.")
    )
    bare: bool = attrs.field(
        default=True,
        metadata=doc(
            "No hooks, no CLAUDE.md, no memory, and Bash, Edit and Read alone. Off by"
            " itself when there are skills."
        ),
    )
    mcp_config: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "A JSON file of this host with tool servers; granted ones go first."
        ),
    )
    settings: Name | None = attrs.field(
        default=None,
        metadata=doc("A JSON file of this host, laid over Livery's settings."),
    )
    skills_path: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "A folder of this host with skills, where the request names none."
        ),
    )
    skills_roots: tuple[Name, ...] = attrs.field(
        default=(),
        metadata=doc("Folders of this host below which a request may name its skills."),
    )
    claude_code_version: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "The exact version that is brought into the sandbox. none: the program on"
            " its PATH."
        ),
    )
    sandbox_local_executable_path: Name | None = attrs.field(
        default=None,
        metadata=doc("The program as a file of this host, instead of the registry's."),
    )
    sandbox_executable_path: Name | None = attrs.field(
        default=None, metadata=doc("The program as a file that the sandbox has.")
    )
    sandbox_executable_sha256: Name | None = attrs.field(
        default=None, metadata=doc("Of that file; needed with either path.")
    )
    runtime_delivery: Delivery = attrs.field(
        default=Delivery.AUTO,
        metadata=doc(
            "auto: this host's verified file is mounted read-only where that can be,"
            " else sent. mount, transfer: that alone."
        ),
    )
    extra_arguments: tuple[str, ...] = attrs.field(
        default=(), metadata=doc("More words of the command line.")
    )
    env: Mapping[str, str] = attrs.field(
        factory=dict[str, str],
        metadata=doc("More of the environment. No secrets: the sandbox sees it."),
    )
    model_retries: Annotated[int, Range(least=0, most=MODEL_RETRIES_MAX)] = attrs.field(
        default=MODEL_RETRIES,
        metadata=doc("How often a failed call to the model is repeated."),
    )
    model_timeout_seconds: Seconds | None = attrs.field(
        default=None,
        metadata=doc(
            "How long a call to the model may be silent. none: made from the run's"
            " budget and stall_seconds."
        ),
    )
    command_timeout_seconds: Seconds | None = attrs.field(
        default=None,
        metadata=doc("How long one shell command may take. none: made the same way."),
    )
    stall_seconds: Seconds | None = attrs.field(
        default=STALL_SECONDS,
        metadata=doc("How long it may show no sign of life. none: to its deadline."),
    )
    result_grace_seconds: Seconds = attrs.field(
        default=RESULT_GRACE_SECONDS,
        metadata=doc("How long it may take to exit after it told its result."),
    )
    context_tokens: Annotated[int, Range(least=1)] | None = attrs.field(
        default=None,
        metadata=doc("The model's window. none: what the program assumes, a million."),
    )
    output_tokens: Annotated[int, Range(least=1)] | None = attrs.field(
        default=None, metadata=doc("How much the model may say at once.")
    )

    def __attrs_post_init__(self) -> None:
        """Refuse what does not go together.

        Raises:
            ValueError: It says what.
        """
        self.config(timeout_seconds=1.0)

    def config(self, *, timeout_seconds: float) -> ClaudeCodeConfig:
        """Return what the harness understands.

        Raises:
            ValueError: Some options do not go together.
        """
        return ClaudeCodeConfig(
            model=self.model,
            base_url=self.anthropic_base_url,
            wire=self.wire,
            max_turns=self.max_turns,
            timeout_seconds=timeout_seconds,
            system_prompt=self.system_prompt,
            tools=self.tools,
            allowed_tools=self.allowed_tools,
            disallowed_tools=self.disallowed_tools,
            thinking=self.thinking,
            max_thinking_tokens=self.max_thinking_tokens,
            bare=self.bare,
            mcp_config=self.mcp_config,
            settings=self.settings,
            skills_path=self.skills_path,
            skills_roots=self.skills_roots,
            extra_arguments=self.extra_arguments,
            env=self.env,
            model_retries=self.model_retries,
            model_timeout_seconds=self.model_timeout_seconds,
            command_timeout_seconds=self.command_timeout_seconds,
            stall_seconds=self.stall_seconds,
            result_grace_seconds=self.result_grace_seconds,
            context_tokens=self.context_tokens,
            output_tokens=self.output_tokens,
            runtime=self._runtime(),
        )

    def _runtime(self) -> RuntimeNeed | None:
        host, inside = self.sandbox_local_executable_path, self.sandbox_executable_path
        if self.claude_code_version is None and host is None and inside is None:
            if self.sandbox_executable_sha256 is not None:
                raise ValueError("sandbox_executable_sha256 needs an executable's path")
            return None
        return RuntimeNeed(
            name=RUNTIME,
            version=self.claude_code_version,
            host_path=host,
            sandbox_path=inside,
            sha256=self.sandbox_executable_sha256,
            glibc_least=GLIBC_LEAST,
            delivery=self.runtime_delivery,
        )
