# SPDX-License-Identifier: Apache-2.0
"""docs/livery.toml.md has every key, with its default, and no other."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import get_args, get_origin

import attrs
import pytest

from livery.entrypoints.agent_sandbox_options import AgentSandboxOptions
from livery.entrypoints.built_in import CommandOptions, DockerOptions, LocalOptions
from livery.entrypoints.claude_code_options import ClaudeCodeOptions
from livery.entrypoints.composition import read_options
from livery.entrypoints.opensandbox_options import OpenSandboxOptions
from livery.entrypoints.settings import Settings
from livery.entrypoints.settings_reading import SettingsFile, structured
from livery.entrypoints.simple_options import SimpleOptions
from livery.entrypoints.strict_converter import Form, attrs_class

PAGE = Path(__file__).parent.parent.parent / "docs" / "livery.toml.md"
OPTIONS: dict[str, type[attrs.AttrsInstance]] = {
    "agent_sandbox": AgentSandboxOptions,
    "claude_code": ClaudeCodeOptions,
    "command": CommandOptions,
    "docker": DockerOptions,
    "local": LocalOptions,
    "opensandbox": OpenSandboxOptions,
    "simple": SimpleOptions,
}


def rows() -> dict[str, str]:
    """Return the default of each key that the page has."""
    found: dict[str, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            key = cells[0].strip("` ")
            assert key not in found, f"{key} is there twice"
            found[key] = cells[2]
    return found


def keys(kind: type[attrs.AttrsInstance], at: str = "") -> Iterator[tuple[str, object]]:
    """Tell the keys below a class with their defaults; tables go on inside."""
    for field in attrs.fields(kind):
        form: Form = field.type
        key = f"{at}.{field.name}".lstrip(".")
        inner = get_args(form)[-1] if get_origin(form) is Mapping else form
        if attrs_class(inner):
            named = ".NAME" if inner is not form else ""
            yield from keys(inner, f"{key}{named}")
            continue
        default = field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = default.factory()  # type: ignore[union-attr]
        yield key, default
        if get_origin(form) is tuple and attrs_class(get_args(form)[0]):
            yield from keys(get_args(form)[0], key)


def written(default: object) -> str:
    """Return a default as the page writes it."""
    if default is attrs.NOTHING:
        return "needed"
    if default is None:
        return '"none"'
    if isinstance(default, Enum):
        return json.dumps(default.value)
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, tuple):
        return json.dumps(list(default))  # pyright: ignore[reportUnknownArgumentType]
    return json.dumps(default)


def test_the_page_has_every_key_with_its_default() -> None:
    expected = dict(keys(Settings))
    for name, kind in OPTIONS.items():
        expected |= dict(keys(kind, name))

    assert rows() == {key: written(default) for key, default in expected.items()}


@pytest.mark.case("FC-260")
def test_each_timeout_has_its_own_name_and_tells_its_error() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    told = {
        line.split("`")[1].rpartition(".")[2]: line
        for line in lines
        if line.startswith("| `") and re.search("he (?:error|outcome) is `", line)
    }

    assert set(told) == {
        "close_timeout_seconds",
        "lease_seconds",
        "disconnect_grace_seconds",
        "gateway_ready_timeout_seconds",
        "idle_timeout_seconds",
        "seed_wait_seconds",
        "episode_timeout_seconds",
        "turn_timeout_seconds",
        "lifetime_seconds",
        "create_timeout_seconds",
        "pull_timeout_seconds",
        "ready_timeout_seconds",
        "session_timeout_seconds",
        "call_timeout_seconds",
        "silence_timeout_seconds",
    }


def test_the_example_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]

    settings = structured(Settings, tomllib.loads(text))

    block = settings.harness["agent"]
    (read,) = read_options(
        SettingsFile(settings=settings),
        (CommandOptions, "harness", "agent", block.options),
    )
    assert read == CommandOptions(command=("my-agent", "--fast"))
