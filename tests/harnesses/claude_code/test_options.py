# SPDX-License-Identifier: Apache-2.0
"""Options as configuration writes them become what the harness understands."""

import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest

from livery.adapters.harnesses.claude_code import (
    ClaudeCodeConfig,
    ClaudeCodeHarness,
    Thinking,
    Wire,
)
from livery.entrypoints.built_in import HARNESSES
from livery.entrypoints.claude_code_options import ClaudeCodeOptions
from livery.entrypoints.composition import read_options
from livery.entrypoints.plug_ins import HarnessPlugIn, Surroundings, find
from livery.entrypoints.settings import Settings
from livery.entrypoints.settings_reading import (
    SettingsFile,
    SettingsRefused,
    structured,
)
from livery.ports.required.harness import RuntimeNeed

PAGE = Path(__file__).parents[3] / "docs" / "harnesses" / "claude-code.md"

RENAMED = {"anthropic_base_url": "base_url"}
OF_RUNTIME = {
    "claude_code_version",
    "sandbox_executable_path",
    "sandbox_executable_sha256",
    "sandbox_local_executable_path",
    "runtime_delivery",
}
GIVEN: dict[str, Any] = {
    "model": "m",
    "anthropic_base_url": "http://x",
    "wire": "conservative",
    "max_turns": 3,
    "system_prompt": "s",
    "tools": "Bash",
    "allowed_tools": "Read",
    "disallowed_tools": "Edit",
    "thinking": "enabled",
    "max_thinking_tokens": 5,
    "bare": False,
    "mcp_config": "/m.json",
    "settings": "/s.json",
    "skills_path": "/skills",
    "skills_roots": ["/roots"],
    "extra_arguments": ["--effort", "low"],
    "env": {"A": "b"},
    "model_retries": 0,
    "model_timeout_seconds": 5.0,
    "command_timeout_seconds": 6.0,
    "stall_seconds": "none",
    "result_grace_seconds": 1.0,
    "context_tokens": 1000,
    "output_tokens": 10,
}


def options(given: dict[str, Any]) -> ClaudeCodeOptions:
    (found,) = read_options(
        SettingsFile(settings=Settings()),
        (ClaudeCodeOptions, "harness", "claude_code", given),
    )
    assert isinstance(found, ClaudeCodeOptions)
    return found


def test_every_option_reaches_the_harness() -> None:
    config = options(GIVEN).config(timeout_seconds=7.0)

    names = {field.name for field in attrs.fields(ClaudeCodeOptions)}
    assert names == GIVEN.keys() | OF_RUNTIME
    read: dict[str, Any] = {
        "wire": Wire.CONSERVATIVE,
        "thinking": Thinking.ENABLED,
        "stall_seconds": None,
        "skills_roots": ("/roots",),
        "extra_arguments": ("--effort", "low"),
    }
    expected = {RENAMED.get(k, k): read.get(k, v) for k, v in GIVEN.items()}
    assert attrs.asdict(config) == {**expected, "timeout_seconds": 7.0, "runtime": None}


def test_the_defaults_of_both_are_the_same() -> None:
    assert options({}).config(timeout_seconds=3600.0) == ClaudeCodeConfig()


def test_a_version_or_a_path_is_a_runtime_to_bring() -> None:
    by_version = options({"claude_code_version": "2.1.332"})
    by_path = options(
        {"sandbox_executable_path": "/x", "sandbox_executable_sha256": "ab"}
    )

    assert by_version.config(timeout_seconds=1).runtime == RuntimeNeed(
        name="claude_code", version="2.1.332", glibc_least=(2, 26)
    )
    assert by_path.config(timeout_seconds=1).runtime == RuntimeNeed(
        name="claude_code", sandbox_path="/x", sha256="ab", glibc_least=(2, 26)
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sandbox_executable_path": "/x"}, "sha256"),
        ({"sandbox_executable_sha256": "ab"}, "sandbox_executable_sha256"),
        ({"extra_arguments": ["--resume"]}, "--resume"),
        ({"env": {"ANTHROPIC_AUTH_TOKEN": "x"}}, "ANTHROPIC_AUTH_TOKEN"),
        ({"max_turns": 0}, "max_turns"),
        ({"model_retries": 11}, "model_retries"),
        ({"thinking": "much"}, "thinking"),
        ({"stall_seconds": 0}, "stall_seconds"),
        ({"max_turn": 3}, "max_turns"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(SettingsRefused, match=told):
        options(given)


def test_the_harness_is_found_by_its_name(tmp_path: Path) -> None:
    plug_in = find(HarnessPlugIn, "claude_code", HARNESSES)
    surroundings = Surroundings(
        name="claude_code", state=tmp_path, turn_timeout_seconds=5.0
    )

    made = plug_in.make(surroundings, options({"model": "m"}))

    config = ClaudeCodeConfig(model="m", timeout_seconds=5.0)
    assert made == ClaudeCodeHarness(config=config)


def test_the_example_of_the_page_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]

    settings = structured(Settings, tomllib.loads(text), environ={"MODEL_KEY": "x"})

    found = options(dict(settings.harness["claude_code"].options))
    assert found.claude_code_version == "2.1.332"
    assert found.context_tokens == 200000
