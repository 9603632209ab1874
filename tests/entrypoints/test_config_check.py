# SPDX-License-Identifier: Apache-2.0
"""`livery config check` finds what a start refuses, in the same words, and starts nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from .command_lines import PROGRAM, Livery, task, task_file

SECONDS_MAX = 120.0


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        (
            '[run]\nharness = "nosuch"\n',
            "line 2: run.harness",
            "There is no harness 'nosuch'; there are",
        ),
        (
            '[run]\nsandbox = "nosuch"\n',
            "line 2: run.sandbox",
            "There is no sandbox provider 'nosuch'; there are",
        ),
        (
            '[run]\nworld = "nosuch"\n',
            "line 2: run.world",
            "There is no world 'nosuch'; there are",
        ),
        (
            '[run]\nsandbox = "local"\n[sandbox.local]\nnetwork = "none"\n',
            "line 3: sandbox.local",
            "Provider local cannot do network none",
        ),
        (
            '[run]\nsandbox = "d"\n[sandbox.d]\nprovider = "docker"\n'
            'mounts = [{source = "data", target = "/data"}]\n',
            "line 5: sandbox.d.mounts[0].source",
            "Provider d refuses mounts[0].source: an absolute path is needed",
        ),
        (
            '[run]\nsandbox = "docker"\n[sandbox.docker]\nimage = "My Image"\n',
            "line 4: sandbox.docker.image",
            "Provider docker refuses image: 'My Image' is no image's name",
        ),
        (
            '[run]\nsandbox = "docker"\n[sandbox.docker.sandbox_options]\nshm = 1\n',
            "line 4: sandbox.docker.sandbox_options.shm",
            "Provider docker refuses provider_options.shm: unknown; known are",
        ),
        (
            '[run]\nsandbox = "docker"\n'
            '[sandbox.docker.options]\naddress = "ssh://host"\n',
            "line 3: sandbox.docker",
            "'ssh://host' is not spoken here",
        ),
    ],
)
def test_what_a_run_refuses_is_found_in_the_same_words(
    livery: Livery, tmp_path: Path, text: str, place: str, told: str
) -> None:
    (tmp_path / "livery.toml").write_text(text)
    tasks = task_file(tmp_path, task("a"))

    checked = livery("config", "check")
    ran = livery("run", tasks, "--out", "o")

    assert checked.status == ran.status == 2
    assert f"  {place}: " in checked.err
    assert told in checked.err
    assert told in ran.err
    assert checked.err.count(told) == 1
    left = sorted(path.name for path in tmp_path.iterdir() if path.name != "home")
    assert left == ["livery.toml", "tasks.jsonl"]


DOCKER = "[sandbox.docker]\nlifetime_seconds = 600\n"


@pytest.mark.keeps("descriptors", reason="uvloop keeps a pipe from its first loop on")
@pytest.mark.parametrize(
    ("server", "text", "told"),
    [
        ("agent", 'harness = "nosuch"', "There is no harness 'nosuch'"),
        (
            "agent",
            'harness = "nop"\nsandbox_provider = "nosuch"',
            "There is no sandbox provider 'nosuch'",
        ),
        (
            "agent",
            'harness = "command"',
            "harness.command.options.command: is needed and missing",
        ),
        ("agent", 'harness = "simple"', "neither model_url nor [model] says where"),
        ("agent", "", "Harness claude_code has no model"),
        (
            "agent",
            f'harness = "nop"\nsandbox_provider = "docker"\n{DOCKER}',
            "is 600, and the harness's turn_timeout_seconds is 3600",
        ),
        ("resources", 'world = "nosuch"', "There is no world 'nosuch'"),
        (
            "resources",
            'sandbox_provider = "nosuch"',
            "There is no sandbox provider 'nosuch'",
        ),
        (
            "resources",
            'trusted_networks = ["10.0.0.0/99"]',
            "resources_server.trusted_networks: holds no network",
        ),
        (
            "resources",
            'sandbox_provider = "local"\nshutdown_seconds = 1',
            "resources_server.shutdown_seconds: is 1, too short",
        ),
        (
            "resources",
            'sandbox_provider = "local"\nblock_internet = true',
            "[resources_server] block_internet needs it",
        ),
        (
            "environment",
            'agent_url = "agent:8300"',
            "it is no http:// or https:// address",
        ),
    ],
)
def test_what_a_server_refuses_is_found_in_the_same_words(
    livery: Livery, tmp_path: Path, server: str, text: str, told: str
) -> None:
    path = tmp_path / "livery.toml"
    path.write_text(f"[{server}_server]\n{text}\n")

    checked = livery("config", "check")
    served = livery("serve", server)

    assert checked.status == served.status == 2
    assert "livery.toml cannot be used" in checked.err
    assert told in checked.err
    assert told in served.err


def test_all_that_is_wrong_is_told_at_once(livery: Livery, tmp_path: Path) -> None:
    (tmp_path / "livery.toml").write_text(
        '[run]\nharness = "h"\nsandbox = "s"\nworld = "w"\n'
        '[agent_server]\nharness = "h"\nsandbox_provider = "p"\n'
        '[resources_server]\nworld = "w"\nsandbox_provider = "p"\n'
    )

    lines = livery("config", "check").err.splitlines()

    assert [line.split(": There is no")[0] for line in lines[1:]] == [
        "  line 2: run.harness",
        "  line 3: run.sandbox",
        "  line 4: run.world",
        "  line 6: agent_server.harness",
        "  line 7: agent_server.sandbox_provider",
        "  line 9: resources_server.world",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[run]\nharness = "command"\n',
        '[run]\nharness = "claude_code"\n',
        '[run]\nsandbox = "agent_sandbox"\n'
        '[sandbox.agent_sandbox.options]\nimage_warmpools = {"mine:1" = "pool"}\n',
        "[sandbox.docker]\nlifetime_seconds = 600\n",
    ],
)
def test_what_the_command_line_or_the_tasks_still_say_is_not_missed(
    livery: Livery, tmp_path: Path, text: str
) -> None:
    (tmp_path / "livery.toml").write_text(text)

    assert livery("config", "check").status == 0


def checked_without(
    library: str, text: str, folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Check a settings file where a library is not installed."""
    (folder / "livery.toml").write_text(text)
    without = f"import sys; sys.modules[{library!r}] = None; "
    return subprocess.run(
        [sys.executable, "-c", without + PROGRAM, "config", "check"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


@pytest.mark.parametrize(
    ("library", "text", "told"),
    [
        (
            "psycopg",
            '[journal]\nkind = "postgres"\n',
            "line 2: journal.kind: The journal 'postgres' needs the library psycopg:"
            " pip install 'livery[postgres]' brings it.",
        ),
        (
            "starlette",
            "[environment_server]\n",
            "line 1: environment_server: The server 'environment' needs the library starlette:"
            " pip install 'livery[server]' brings it.",
        ),
        (
            "hypercorn",
            '[agent_server]\nharness = "nop"\n[resources_server]\n',
            "line 3: resources_server: The server 'resources' needs the library hypercorn",
        ),
        (
            "mcp",
            '[run]\nworld = "desk"\n',
            "line 2: run.world: The world 'desk' needs the library mcp",
        ),
        (
            "starlette",
            '[run]\nharness = "claude_code"\n[model]\nurl = "http://model:1"\n',
            "line 4: model.url: The gateway to 'model' needs the library starlette",
        ),
        (
            "docker",
            '[run]\nsandbox = "docker"\n',
            "line 2: run.sandbox: The sandbox provider 'docker' needs the library docker",
        ),
    ],
)
def test_an_extra_that_the_settings_need_and_is_not_installed_is_found(
    library: str, text: str, told: str, tmp_path: Path
) -> None:
    ended = checked_without(library, text, tmp_path)

    assert ended.returncode == 2, ended.stdout
    assert f"  {told}" in ended.stderr


@pytest.mark.parametrize("library", ["starlette", "psycopg", "docker", "mcp"])
def test_an_extra_that_nothing_needs_is_not_missed(
    library: str, tmp_path: Path
) -> None:
    ended = checked_without(library, '[run]\nharness = "nop"\n', tmp_path)

    assert ended.returncode == 0, ended.stderr
