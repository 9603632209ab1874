# SPDX-License-Identifier: Apache-2.0
"""The command line and the environment of one run, as they were measured to work.

The prompt comes from a file on standard input and the system prompt from a file, so
neither is ever a word of the command, whatever its length or its first character.
"""

import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs

from ....ports.required.harness import Place
from .config import EXECUTABLE, ClaudeCodeConfig, Thinking, Wire
from .limits import Limits

NO_CREDENTIAL: Final = "livery-none"
"""What the credential variables hold for a model server that needs none."""
TOOLS: Final = "Bash,Edit,Glob,Grep,NotebookEdit,Read,Skill,Task,TodoWrite,Write"
"""What may be used unasked where permissions are not skipped."""
CALLING_OUT: Final = ("WebFetch", "WebSearch")
"""Tools that ask the vendor's hosts; denied unless they are allowed by name."""
CONNECT_SECONDS: Final = 60.0
"""How long a tool server may take to answer at first, before it counts as failed."""
CONSERVATIVE_TOOLS: Final = "Bash,Read,Write,Edit"

_SESSIONS: Final = uuid.UUID("5d0b8f0e-8a39-4f5c-a7e0-2c6a3f1f6d0b")
_CONSERVATIVE: Final[Mapping[str, str]] = {
    "CLAUDE_CODE_MODEL_CAPABILITIES": (
        "*=-mid_conv_system,-mid_conv_tool_change,-effort,-adaptive_thinking"
    ),
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    "CLAUDE_CODE_DISABLE_THINKING": "1",
}


@attrs.frozen(kw_only=True)
class Paths:
    """Where a run's own things are, all below its scratch folder."""

    scratch: str
    workdir: str

    @property
    def config(self) -> str:
        """The program's configuration folder, of this run alone."""
        return f"{self.scratch}/claude"

    @property
    def temporary(self) -> str:
        """Where it puts what its commands print, instead of a folder of all users."""
        return f"{self.scratch}/tmp"

    @property
    def prompt(self) -> str:
        """What it reads on standard input."""
        return f"{self.scratch}/prompt.txt"

    @property
    def system_prompt(self) -> str:
        """What is added to its system prompt."""
        return f"{self.scratch}/system-prompt.txt"

    @property
    def settings(self) -> str:
        """The settings of ours."""
        return f"{self.scratch}/settings.json"

    @property
    def servers(self) -> str:
        """The tool servers."""
        return f"{self.scratch}/mcp.json"

    @property
    def session(self) -> str:
        """The program's id of the conversation: the same for the same run."""
        return str(uuid.uuid5(_SESSIONS, self.scratch))

    @property
    def transcripts(self) -> str:
        """The folder of what it writes down about its conversations."""
        return f"{self.config}/projects"

    @property
    def transcript(self) -> str:
        """What it writes down about this one as it goes."""
        slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in self.workdir)
        return f"{self.transcripts}/{slug}/{self.session}.jsonl"


@attrs.frozen(kw_only=True)
class Wanted:
    """What a command line is made from, beside the configuration."""

    model: str
    has_system_prompt: bool
    has_servers: bool
    has_skills: bool


def argv_of(
    config: ClaudeCodeConfig, place: Place, paths: Paths, wanted: Wanted
) -> tuple[str, ...]:
    """Return the command line."""
    words = [
        place.runtime_path or EXECUTABLE,
        "-p",
        *("--output-format", "stream-json", "--verbose"),
        *("--model", wanted.model),
        *("--session-id", paths.session),
        *("--settings", paths.settings),
        "--strict-mcp-config",
        *_permissions(config, place),
    ]
    if wanted.has_servers:
        words += ["--mcp-config", paths.servers]
    if wanted.has_system_prompt:
        words += ["--append-system-prompt-file", paths.system_prompt]
    if config.max_turns is not None:
        words += ["--max-turns", str(config.max_turns)]
    tools = config.tools
    if tools is None and config.wire is Wire.CONSERVATIVE:
        tools = CONSERVATIVE_TOOLS
    if tools is not None:
        words += ["--tools", tools]
    if config.thinking is not None and config.wire is not Wire.CONSERVATIVE:
        words += ["--thinking", config.thinking.value]
    if config.max_thinking_tokens is not None:
        words += ["--max-thinking-tokens", str(config.max_thinking_tokens)]
    if config.bare and not wanted.has_skills:
        words.append("--bare")
    return (*words, *config.extra_arguments)


def environment_of(
    config: ClaudeCodeConfig, place: Place, paths: Paths, model: str, limits: Limits
) -> dict[str, str]:
    """Return the variables that the program is given beside the sandbox's own.

    Nothing of this process's environment is among them.
    """
    grant = place.model
    base_url = grant.base_url if grant is not None else config.base_url
    assert base_url is not None, "it was looked for before"
    credential = grant.placeholder if grant is not None else NO_CREDENTIAL
    host = urlsplit(base_url).hostname or ""
    straight = ",".join(dict.fromkeys(filter(None, (host, "127.0.0.1", "localhost"))))
    found = {
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": credential,
        "ANTHROPIC_AUTH_TOKEN": credential,
        "CLAUDE_CONFIG_DIR": paths.config,
        "CLAUDE_CODE_TMPDIR": paths.temporary,
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "CLAUDE_CODE_SUBAGENT_MODEL": model,
        "CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(config.model_retries),
        "API_TIMEOUT_MS": _ms(limits.model),
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": _ms(limits.model),
        "BASH_DEFAULT_TIMEOUT_MS": _ms(limits.command),
        "BASH_MAX_TIMEOUT_MS": _ms(limits.command),
        # It would send even calls to its own loopback through a proxy.
        "NO_PROXY": straight,
        "no_proxy": straight,
    }
    # Otherwise its first call goes out after a few seconds, without the tools of a
    # server that is slow to answer: a model would be judged that never had them.
    found["MCP_CONNECTION_NONBLOCKING"] = "0"
    found["MCP_CONNECT_TIMEOUT_MS"] = found["MCP_TIMEOUT"] = _ms(CONNECT_SECONDS)
    if config.context_tokens is not None:
        found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(config.context_tokens)
    if config.output_tokens is not None:
        found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(config.output_tokens)
    if config.wire is Wire.CONSERVATIVE:
        found |= _CONSERVATIVE
    if config.thinking is Thinking.DISABLED:
        found["CLAUDE_CODE_DISABLE_THINKING"] = "1"
    if place.is_boundary:
        # As root the program skips no permissions without it.
        found["IS_SANDBOX"] = "1"
    return {**found, **config.env}


def _permissions(config: ClaudeCodeConfig, place: Place) -> list[str]:
    """Return what may be done unasked: all behind a boundary, else what is named."""
    skipped = place.is_boundary or config.env.get("IS_SANDBOX") == "1"
    words = ["--dangerously-skip-permissions"] if skipped else []
    allowed = config.allowed_tools
    if allowed is None and not skipped:
        allowed = TOOLS
    if allowed is not None:
        words += ["--allowedTools", allowed]
    named = _names(config.allowed_tools) | _names(config.tools)
    denied = [name for name in CALLING_OUT if name not in named]
    if config.disallowed_tools:
        denied.append(config.disallowed_tools)
    return [*words, "--disallowedTools", ",".join(denied)] if denied else words


def _names(tools: str | None) -> frozenset[str]:
    words = (tools or "").replace(",", " ").split()
    return frozenset(word.partition("(")[0] for word in words)


def _ms(seconds: float) -> str:
    return str(int(seconds * 1000))
