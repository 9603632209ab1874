# SPDX-License-Identifier: Apache-2.0
"""What is put down and run for a request, and what is refused with its field."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from livery.adapters.harnesses.claude_code import ClaudeCodeConfig, Thinking, Wire
from livery.adapters.harnesses.claude_code import skills as skills_module
from livery.adapters.harnesses.claude_code.limits import limits_of
from livery.domain.digests import Json
from livery.ports.required.harness import (
    EarlyEnd,
    Harness,
    HarnessRequest,
    Launch,
    Place,
    RequestRefused,
    Run,
    RuntimeHarness,
    RuntimeNeed,
    ToolAccess,
    ToolTransport,
)

from .captures import PLACE, asking, harness

pytestmark = pytest.mark.anyio

SECRET = "token-that-nobody-may-see"


async def prepared(
    request: HarnessRequest | None = None, *, place: Place = PLACE, **config: Any
) -> Launch:
    return await harness(**config).prepare(request or asking(), place)


def run_of(launch: Launch) -> Run:
    assert launch.run is not None
    return launch.run


def file(launch: Launch, name: str) -> bytes | None:
    found = [one for one in launch.files if one.path == f"/s/run/{name}"]
    return found[0].content if found else None


def settings(launch: Launch) -> Any:
    return json.loads(file(launch, "settings.json") or b"")


def value_of(argv: tuple[str, ...], flag: str) -> str | None:
    return argv[argv.index(flag) + 1] if flag in argv else None


def test_it_is_a_harness_that_may_need_a_runtime() -> None:
    need = RuntimeNeed(name="claude_code", version="2.1.332")
    plain: Harness = harness()
    one: RuntimeHarness = harness(runtime=need)

    assert (plain.name, plain.stepwise, plain.needs) == (
        "claude_code",
        False,
        frozenset(),
    )
    assert one.runtime == need


async def test_the_command_is_the_one_that_was_measured() -> None:
    launch = await prepared(place=attrs.evolve(PLACE, runtime_path="/opt/claude"))

    run = run_of(launch)
    session = value_of(run.argv, "--session-id")
    assert run.argv == (
        "/opt/claude",
        "-p",
        *("--output-format", "stream-json", "--verbose"),
        *("--model", "claude-sonnet-4-6"),
        *("--session-id", session),
        *("--settings", "/s/run/settings.json"),
        "--strict-mcp-config",
        "--dangerously-skip-permissions",
        *("--disallowedTools", "WebFetch,WebSearch"),
        *("--max-turns", "30"),
        "--bare",
    )
    assert run.stdin_path == "/s/run/prompt.txt"
    assert run.env["IS_SANDBOX"] == "1"
    assert launch.folders == ("/s/run", "/s/run/claude", "/s/run/tmp")
    assert run.env["CLAUDE_CONFIG_DIR"] == "/s/run/claude"
    assert run.env["CLAUDE_CODE_TMPDIR"] == "/s/run/tmp"
    assert {one.mode for one in launch.files} == {0o600}
    (collected,) = launch.collected
    assert collected.path == f"/s/run/claude/projects/-workspace/{session}.jsonl"


async def test_a_launch_is_the_same_when_it_is_asked_for_again() -> None:
    assert await prepared() == await prepared()


@pytest.mark.case("FC-192")
async def test_everything_that_calls_out_is_off() -> None:
    launch = await prepared()

    env = run_of(launch).env
    assert env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    for name in ("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER"):
        assert env[name] == "1"
    assert settings(launch)["env"] == {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    assert settings(launch)["attribution"] == {"commit": "", "pr": ""}


async def test_tool_servers_are_waited_for_before_the_model_is_asked() -> None:
    env = run_of(await prepared()).env

    assert env["MCP_CONNECTION_NONBLOCKING"] == "0"
    assert env["MCP_CONNECT_TIMEOUT_MS"] == env["MCP_TIMEOUT"] == "60000"


async def test_the_model_is_reached_with_a_placeholder_and_past_any_proxy() -> None:
    env = run_of(await prepared(asking(model="own/model-1"))).env

    assert env["ANTHROPIC_BASE_URL"] == "http://gateway:8080"
    assert env["ANTHROPIC_API_KEY"] == env["ANTHROPIC_AUTH_TOKEN"] == "placeholder-1"
    assert {env[name] for name in env if name.endswith("_MODEL")} == {"own/model-1"}
    assert env["NO_PROXY"] == env["no_proxy"] == "gateway,127.0.0.1,localhost"


async def test_a_model_server_without_credentials_needs_no_grant() -> None:
    place = attrs.evolve(PLACE, model=None)

    env = run_of(await prepared(place=place, base_url="http://127.0.0.1:1")).env

    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert env["ANTHROPIC_API_KEY"] == "livery-none"
    with pytest.raises(RequestRefused, match="anthropic_base_url"):
        await prepared(place=place)


async def test_nothing_of_this_process_is_in_the_environment() -> None:
    os.environ["LIVERY_TEST_MARK"] = "here"
    try:
        env = run_of(await prepared()).env
    finally:
        del os.environ["LIVERY_TEST_MARK"]

    assert "LIVERY_TEST_MARK" not in env
    assert "PATH" not in env


@pytest.mark.case("FC-199")
async def test_permissions_are_skipped_behind_a_boundary_alone() -> None:
    outside = attrs.evolve(PLACE, is_boundary=False)

    run = run_of(await prepared(place=outside))
    chosen = run_of(await prepared(place=outside, env={"IS_SANDBOX": "1"}))

    assert "IS_SANDBOX" not in run.env
    assert "--dangerously-skip-permissions" not in run.argv
    assert "Bash" in str(value_of(run.argv, "--allowedTools")).split(",")
    assert "--dangerously-skip-permissions" in chosen.argv
    assert chosen.env["IS_SANDBOX"] == "1"


@pytest.mark.case("FC-203")
async def test_long_prompts_are_in_files_alone() -> None:
    prompt, system = "p" * 300_000, "s" * 200_000

    launch = await prepared(
        asking(
            [{"role": "system", "content": "S2"}, {"role": "user", "content": prompt}]
        ),
        system_prompt=system,
    )

    run = run_of(launch)
    assert file(launch, "prompt.txt") == prompt.encode()
    assert file(launch, "system-prompt.txt") == f"{system}\n\nS2".encode()
    path = value_of(run.argv, "--append-system-prompt-file")
    assert path == "/s/run/system-prompt.txt"
    assert sum(map(len, run.argv)) < 1000
    assert sum(map(len, run.env.values())) < 2000


@pytest.mark.case("FC-204")
@pytest.mark.parametrize("prompt", ["--help", "-p", "--", "-", "$(id)", "`id`", "a\nb"])
async def test_a_prompt_is_never_a_word_of_the_command(prompt: str) -> None:
    launch = await prepared(asking(prompt))

    assert file(launch, "prompt.txt") == prompt.encode()
    assert run_of(launch).argv == run_of(await prepared()).argv


@pytest.mark.parametrize("prompt", ["/compact", "/help me", "/etc/hosts is wrong"])
async def test_a_prompt_with_a_slash_is_no_command_of_the_programs(prompt: str) -> None:
    assert file(await prepared(asking(prompt)), "prompt.txt") == f"\n{prompt}".encode()


async def test_a_system_message_comes_before_the_prompt() -> None:
    parts: Json = [
        {"type": "input_text", "text": "one"},
        {"type": "text", "text": "two"},
    ]
    launch = await prepared(
        asking([{"role": "system", "content": parts}, {"role": "user", "content": "P"}])
    )

    assert file(launch, "system-prompt.txt") == b"one\n\ntwo"
    assert file(launch, "prompt.txt") == b"P"


USER: Mapping[str, Json] = {"role": "user", "content": "p"}


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": ""}]}, "input[0].content"),
        ({"input": [{"role": "system", "content": "s"}]}, "input[0].role"),
        ({"input": [USER, USER]}, "input[0].role"),
        ({"input": [{"role": "developer", "content": "d"}, USER]}, "input[0].role"),
        ({"input": [{"role": "assistant", "content": "a"}, USER]}, "input[0].role"),
        (
            {"input": [{"role": "system", "content": "s"}] * 2 + [USER]},
            "input",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"instructions": "x"}, "instructions"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"temperature": 0.5}, "temperature"),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"metadata": {"other": "x"}}, "metadata.other"),
        ({"metadata": {"agent_timeout_sec": 0}}, "metadata.agent_timeout_sec"),
        ({"metadata": {"agent_timeout_sec": "inf"}}, "metadata.agent_timeout_sec"),
        ({"metadata": {"agent_timeout_sec": True}}, "metadata.agent_timeout_sec"),
        ({"skills_ref": 5}, "skills_ref"),
        ({"skills_ref": {"path": 5}}, "skills_ref.path"),
        ({"skills_ref": {"path": "/etc"}}, "skills_ref.path"),
        ({"skills_ref": {"path": "/etc", "x": 1}}, "skills_ref.x"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_with_its_field(
    parameters: dict[str, Json], field: str
) -> None:
    request = attrs.evolve(asking(), parameters={"input": "p", **parameters})

    with pytest.raises(RequestRefused) as refused:
        harness().check(request)

    assert refused.value.field == f"responses_create_params.{field}"
    with pytest.raises(RequestRefused):
        await prepared(request)


async def test_what_asks_for_nothing_is_accepted() -> None:
    harness().check(
        asking(tools=[], tool_choice="auto", stream=False, metadata={}, store=True)
    )


@pytest.mark.case("FC-207")
async def test_a_limit_that_is_not_set_is_left_out() -> None:
    run = run_of(await prepared(max_turns=None, thinking=None))

    assert "--max-turns" not in run.argv
    assert "None" not in " ".join(run.argv)
    assert "None" not in run.env.values()


async def test_options_are_flags() -> None:
    run = run_of(
        await prepared(
            tools="Bash,WebFetch",
            allowed_tools="Bash(git *)",
            disallowed_tools="Edit",
            thinking=Thinking.ADAPTIVE,
            max_thinking_tokens=100,
            bare=False,
            extra_arguments=("--effort", "low"),
            env={"A": "b", "API_TIMEOUT_MS": "5"},
            context_tokens=64_000,
            output_tokens=4096,
        )
    )

    assert value_of(run.argv, "--tools") == "Bash,WebFetch"
    assert value_of(run.argv, "--allowedTools") == "Bash(git *)"
    assert value_of(run.argv, "--disallowedTools") == "WebSearch,Edit"
    assert value_of(run.argv, "--thinking") == "adaptive"
    assert value_of(run.argv, "--max-thinking-tokens") == "100"
    assert "--bare" not in run.argv
    assert run.argv[-2:] == ("--effort", "low")
    assert (run.env["A"], run.env["API_TIMEOUT_MS"]) == ("b", "5")
    assert run.env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "64000"
    assert run.env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "4096"


async def test_nothing_is_denied_that_is_allowed_by_name() -> None:
    run = run_of(await prepared(allowed_tools="WebFetch(domain:x.org) WebSearch"))

    assert "--disallowedTools" not in run.argv


async def test_the_conservative_wire_is_the_measured_one() -> None:
    run = run_of(await prepared(wire=Wire.CONSERVATIVE, thinking=Thinking.DISABLED))

    assert value_of(run.argv, "--tools") == "Bash,Read,Write,Edit"
    assert "--thinking" not in run.argv
    assert run.env["CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS"] == "1"
    assert run.env["CLAUDE_CODE_DISABLE_THINKING"] == "1"
    assert run.env["CLAUDE_CODE_MODEL_CAPABILITIES"].startswith("*=-mid_conv_system,")


@pytest.mark.case("FC-209")
@pytest.mark.parametrize(
    ("outer", "asked", "inner"),
    [(600.0, None, 600.0), (600.0, 300.0, 300.0), (600.0, 9000.0, 600.0)],
)
def test_no_inner_limit_is_below_the_outer_one(
    outer: float, asked: float | None, inner: float
) -> None:
    limits = limits_of(ClaudeCodeConfig(timeout_seconds=outer), asked)

    assert limits.run == inner
    assert (limits.command, limits.model, limits.stall) == (inner, inner, None)


def test_what_waits_in_silence_gives_up_before_the_watch_acts() -> None:
    limits = limits_of(ClaudeCodeConfig(timeout_seconds=3600.0), None)
    short = limits_of(ClaudeCodeConfig(timeout_seconds=3600.0, stall_seconds=10), None)
    chosen = limits_of(
        ClaudeCodeConfig(model_timeout_seconds=50, command_timeout_seconds=70), None
    )

    assert (limits.command, limits.model, limits.stall) == (870.0, 870.0, 900.0)
    assert (short.command, short.stall) == (5.0, 10)
    assert (chosen.model, chosen.command) == (50, 70)


@pytest.mark.case("FC-209")
async def test_the_limits_are_in_the_environment() -> None:
    run = run_of(
        await prepared(
            asking(metadata={"agent_timeout_sec": "600"}),
            stall_seconds=None,
            model_retries=0,
        )
    )

    assert run.timeout_seconds == 600
    for name in (
        "BASH_DEFAULT_TIMEOUT_MS",
        "BASH_MAX_TIMEOUT_MS",
        "API_TIMEOUT_MS",
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS",
    ):
        assert run.env[name] == "600000"
    assert run.env["CLAUDE_CODE_MAX_RETRIES"] == "0"
    assert run.watch.silence is None
    assert run.watch.last_line is not None
    assert EarlyEnd.LAST_LINE == "last_line"


async def test_granted_tool_servers_are_in_a_file_of_its_user_alone(
    tmp_path: Path,
) -> None:
    own = tmp_path / "mcp.json"
    own.write_text('{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}')
    access = ToolAccess(
        transport=ToolTransport.MCP,
        name="b",
        url="http://host/mcp",
        headers={"X-Token": SECRET},
    )

    launch = await prepared(asking(accesses=(access,)), mcp_config=str(own))

    servers = json.loads(file(launch, "mcp.json") or b"")["mcpServers"]
    assert servers == {
        "a": {"command": "x"},
        "b": {
            "type": "http",
            "url": "http://host/mcp",
            "headers": {"X-Token": SECRET},
        },
    }
    run = run_of(launch)
    assert value_of(run.argv, "--mcp-config") == "/s/run/mcp.json"
    assert SECRET not in f"{run} {access}"
    (placed,) = [one for one in launch.files if one.path.endswith("mcp.json")]
    assert placed.mode == 0o600


async def test_tools_over_plain_http_are_refused_when_required() -> None:
    def access(required: bool) -> ToolAccess:
        return ToolAccess(
            transport=ToolTransport.DIRECT_HTTP,
            name="w",
            url="http://host/",
            required=required,
        )

    launch = await prepared(asking(accesses=(access(False),)))

    assert file(launch, "mcp.json") is None
    with pytest.raises(RequestRefused, match=r"tool_accesses\[0\]\.kind"):
        harness().check(asking(accesses=(access(True),)))


async def test_a_users_settings_are_laid_over_ours(tmp_path: Path) -> None:
    own = tmp_path / "settings.json"
    own.write_text('{"env": {"A": "b"}, "includeCoAuthoredBy": true, "hooks": {}}')

    found = settings(await prepared(settings=str(own)))

    assert found["env"] == {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "A": "b"}
    assert found["includeCoAuthoredBy"] is True
    assert found["hooks"] == {}


@pytest.mark.parametrize("content", [None, "nope", "[]", '{"env": 5}', "x" * 5_000_000])
@pytest.mark.parametrize("option", ["settings", "mcp_config"])
async def test_a_host_file_that_is_none_is_refused(
    tmp_path: Path, option: str, content: str | None
) -> None:
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(RequestRefused) as refused:
        await prepared(**{option: str(path)})

    assert refused.value.field == f"options.{option}"


def skill(root: Path, name: str = "mend") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: mend\n---\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return root


def placed(launch: Launch) -> dict[str, int]:
    below = "/s/run/claude/skills/"
    return {
        one.path.removeprefix(below): one.mode
        for one in launch.files
        if one.path.startswith(below)
    }


async def test_skills_are_copied_and_switch_bare_off(tmp_path: Path) -> None:
    named = skill(tmp_path / "allowed" / "named", "one")
    own = skill(tmp_path / "own", "two")
    config: dict[str, Any] = {
        "skills_path": str(own),
        "skills_roots": (str(tmp_path / "allowed"),),
    }
    ref: Json = {"path": str(named), "hash": "0123", "skills": ["one"]}

    by_request = await prepared(asking(skills_ref=ref), **config)
    by_default = await prepared(**config)

    assert placed(by_request) == {"one/SKILL.md": 0o600, "one/run.sh": 0o700}
    assert set(placed(by_default)) == {"two/SKILL.md", "two/run.sh"}
    assert "--bare" not in run_of(by_request).argv


async def test_skills_that_are_none_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    linked = skill(tmp_path / "linked")
    (linked / "mend" / "link").symlink_to("/etc/passwd")
    big = skill(tmp_path / "big")
    with (big / "mend" / "data").open("wb") as huge:
        huge.truncate(skills_module.SKILLS_BYTES_MAX + 1)

    for folder in (tmp_path / "absent", empty, linked, big):
        with pytest.raises(RequestRefused) as refused:
            await prepared(skills_path=str(folder))
        assert refused.value.field == "options.skills_path"


async def test_a_request_does_not_leave_the_allowed_roots(tmp_path: Path) -> None:
    outside = skill(tmp_path / "outside")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)

    for path in (root / "link", root / ".." / "outside"):
        with pytest.raises(RequestRefused, match="skills_roots"):
            await prepared(
                asking(skills_ref={"path": str(path)}), skills_roots=(str(root),)
            )


async def test_a_runtime_that_is_needed_and_not_there_is_refused() -> None:
    need = RuntimeNeed(name="claude_code", version="2.1.332")

    with pytest.raises(RequestRefused, match="claude_code_version"):
        await prepared(runtime=need)

    place = attrs.evolve(PLACE, runtime_path="/x/claude")
    assert run_of(await prepared(place=place, runtime=need)).argv[0] == "/x/claude"


@pytest.mark.parametrize(
    "fields",
    [
        {"extra_arguments": ("--output-format=json",)},
        {"extra_arguments": ("-r",)},
        {"env": {"ANTHROPIC_API_KEY": "k"}},
        {"env": {"CLAUDE_CONFIG_DIR": "/x"}},
        {"runtime": RuntimeNeed(name="c", host_path="/x")},
        {
            "runtime": RuntimeNeed(
                name="c", host_path="/x", sandbox_path="/y", sha256="0"
            )
        },
    ],
)
def test_what_would_take_the_run_out_of_our_hands_is_refused(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match=r"Livery's to set|executable"):
        ClaudeCodeConfig(**fields)
