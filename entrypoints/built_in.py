# SPDX-License-Identifier: Apache-2.0
"""The plug-ins that come with Livery, by the words that configuration uses.

An adapter is imported when its plug-in is used: its library may not be installed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import attrs

from ..ports.required.harness import Harness
from ..ports.required.sandbox_provider import ProviderTerms
from ..ports.required.task_source import TaskSource, TasksRefused
from .plug_ins import (
    BuiltIn,
    HarnessPlugIn,
    NoOptions,
    Opened,
    ProviderPlugIn,
    SolutionsMissing,
    Surroundings,
    TaskSourcePlugIn,
    WorldPlugIn,
    harness_plug_in,
    provider_plug_in,
)
from .setting_words import Length, Name, doc

SANDBOXES: Final = "sandboxes"
"""The folder of the local provider's sandboxes, in the state folder."""
Pulls = Literal["missing", "never"]


@attrs.frozen(kw_only=True)
class LocalOptions:
    """Options of the provider `local`."""

    passed_on: tuple[Name, ...] = attrs.field(
        default=("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        metadata=doc("The variables of Livery's environment that commands see."),
    )
    python: Name | None = attrs.field(
        default=None,
        metadata=doc("The Python that works in the sandbox. none: Livery's own."),
    )


@attrs.frozen(kw_only=True)
class DockerOptions:
    """Options of the provider `docker`."""

    address: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "Where the engine listens: unix:///path or tcp://host:port. none:"
            " $DOCKER_HOST, else unix:///var/run/docker.sock."
        ),
    )
    pull: Pulls = attrs.field(
        default="missing",
        metadata=doc("Whether an image that is missing there is pulled, or never."),
    )
    network: Name = attrs.field(
        default="bridge",
        metadata=doc("The engine's network for sandboxes that have one."),
    )
    no_new_privileges: bool = attrs.field(
        default=True,
        metadata=doc("Whether set-user-id programs (sudo) are without effect."),
    )
    python: Name = attrs.field(
        default="python3",
        metadata=doc("The Python that is looked for in an image."),
    )


@attrs.frozen(kw_only=True)
class CommandOptions:
    """Options of the harness `command`."""

    command: Annotated[tuple[str, ...], Length(least=1)] = attrs.field(
        metadata=doc(
            "The command, word by word. On the command line: --command 'TEXT' for a"
            " shell, or the words after --."
        )
    )
    env: Mapping[str, str] = attrs.field(
        factory=dict[str, str],
        metadata=doc("Environment of the command. No secrets: the sandbox sees it."),
    )


def _local() -> ProviderPlugIn:
    from ..adapters.local_host import LocalHostConfig, open_local_host, terms_of

    def opened(surroundings: Surroundings, options: LocalOptions) -> Opened:
        config = LocalHostConfig(
            root=surroundings.state / SANDBOXES,
            name=surroundings.name,
            passed_on=options.passed_on,
        )
        if options.python is not None:
            config = attrs.evolve(config, python=options.python)
        return open_local_host(config)

    def terms(surroundings: Surroundings, options: LocalOptions) -> ProviderTerms:
        return terms_of(surroundings.name)

    return provider_plug_in(LocalOptions, opened, terms)


def _docker() -> ProviderPlugIn:
    from ..adapters.docker_engine import (
        DockerEngineConfig,
        Pull,
        open_docker_engine,
        terms_of,
    )

    def config(
        surroundings: Surroundings, options: DockerOptions
    ) -> DockerEngineConfig:
        return DockerEngineConfig(
            name=surroundings.name,
            address=options.address,
            pull=Pull(options.pull),
            network=options.network,
            no_new_privileges=options.no_new_privileges,
            python=options.python,
        )

    def opened(surroundings: Surroundings, options: DockerOptions) -> Opened:
        return open_docker_engine(config(surroundings, options))

    def terms(surroundings: Surroundings, options: DockerOptions) -> ProviderTerms:
        return terms_of(config(surroundings, options))

    return provider_plug_in(DockerOptions, opened, terms)


def _agent_sandbox() -> ProviderPlugIn:
    from ..adapters.agent_sandbox import open_agent_sandbox, terms_of
    from .agent_sandbox_options import AgentSandboxOptions

    def opened(surroundings: Surroundings, options: AgentSandboxOptions) -> Opened:
        return open_agent_sandbox(options.config(surroundings))

    def terms(
        surroundings: Surroundings, options: AgentSandboxOptions
    ) -> ProviderTerms:
        return terms_of(options.config(surroundings))

    return provider_plug_in(AgentSandboxOptions, opened, terms)


def _opensandbox() -> ProviderPlugIn:
    from ..adapters.opensandbox import open_opensandbox, terms_of
    from .opensandbox_options import OpenSandboxOptions

    def opened(surroundings: Surroundings, options: OpenSandboxOptions) -> Opened:
        return open_opensandbox(options.config(surroundings))

    def terms(surroundings: Surroundings, options: OpenSandboxOptions) -> ProviderTerms:
        return terms_of(options.config(surroundings))

    return provider_plug_in(OpenSandboxOptions, opened, terms)


def _oracle() -> HarnessPlugIn:
    from ..adapters.harnesses.oracle import OracleHarness

    def made(surroundings: Surroundings, options: NoOptions) -> Harness:
        if surroundings.solutions is None:
            raise SolutionsMissing(surroundings.name)
        return OracleHarness(surroundings.solutions)

    return harness_plug_in(NoOptions, made)


def _nop() -> HarnessPlugIn:
    from ..adapters.harnesses.nop import NopHarness

    def made(surroundings: Surroundings, options: NoOptions) -> Harness:
        return NopHarness()

    return harness_plug_in(NoOptions, made)


def _command() -> HarnessPlugIn:
    from ..adapters.harnesses.command import CommandHarness

    def made(surroundings: Surroundings, options: CommandOptions) -> Harness:
        return CommandHarness(
            argv=options.command,
            env=options.env,
            timeout_seconds=surroundings.turn_timeout_seconds,
        )

    return harness_plug_in(CommandOptions, made)


def _claude_code() -> HarnessPlugIn:
    from ..adapters.harnesses.claude_code import ClaudeCodeHarness
    from .claude_code_options import ClaudeCodeOptions

    def made(surroundings: Surroundings, options: ClaudeCodeOptions) -> Harness:
        seconds = surroundings.turn_timeout_seconds
        return ClaudeCodeHarness(config=options.config(timeout_seconds=seconds))

    return harness_plug_in(ClaudeCodeOptions, made)


def _simple() -> HarnessPlugIn:
    from .simple_options import SimpleOptions, simple_harness

    return harness_plug_in(SimpleOptions, simple_harness)


def _workspace() -> WorldPlugIn:
    from ..adapters.worlds.workspace import WorkspaceWorld

    return WorldPlugIn(make=lambda surroundings: WorkspaceWorld())


def _desk_world() -> WorldPlugIn:
    from ..adapters.worlds.desk import DeskWorld

    return WorldPlugIn(make=lambda surroundings: DeskWorld())


def _desk_tasks() -> TaskSourcePlugIn:
    from ..adapters.worlds.desk import DeskTasks

    def made(surroundings: Surroundings, argument: str) -> TaskSource:
        return DeskTasks(argument) if argument else DeskTasks()

    return TaskSourcePlugIn(make=made)


def _humaneval() -> TaskSourcePlugIn:
    from ..adapters.task_sources.humaneval import read_humaneval

    def made(surroundings: Surroundings, argument: str) -> TaskSource:
        if argument:
            told = f"{argument!r} after humaneval: means nothing; it takes no argument"
            raise TasksRefused(where="humaneval", mistakes=told)
        return read_humaneval()

    return TaskSourcePlugIn(make=made)


def _task_file() -> TaskSourcePlugIn:
    from ..adapters.task_sources.json_lines import JsonLinesTasks

    def made(surroundings: Surroundings, argument: str) -> TaskSource:
        world = surroundings.world
        assert world is not None, "what reads a file is told of the world"
        return JsonLinesTasks(Path(argument), world)

    return TaskSourcePlugIn(make=made)


PROVIDERS: Final[Mapping[str, BuiltIn[ProviderPlugIn]]] = {
    "agent_sandbox": BuiltIn(load=_agent_sandbox, extra="kubernetes"),
    "docker": BuiltIn(load=_docker, extra="docker"),
    "local": BuiltIn(load=_local),
    "opensandbox": BuiltIn(load=_opensandbox),
}
HARNESSES: Final[Mapping[str, BuiltIn[HarnessPlugIn]]] = {
    "claude_code": BuiltIn(load=_claude_code),
    "command": BuiltIn(load=_command),
    "nop": BuiltIn(load=_nop),
    "oracle": BuiltIn(load=_oracle),
    "simple": BuiltIn(load=_simple, extra="server"),
}
WORLDS: Final[Mapping[str, BuiltIn[WorldPlugIn]]] = {
    "desk": BuiltIn(load=_desk_world),
    "workspace": BuiltIn(load=_workspace),
}
TASK_SOURCES: Final[Mapping[str, BuiltIn[TaskSourcePlugIn]]] = {
    "desk": BuiltIn(load=_desk_tasks),
    "humaneval": BuiltIn(load=_humaneval),
}
TASK_FILE: Final[BuiltIn[TaskSourcePlugIn]] = BuiltIn(load=_task_file)
"""What a path on the command line is read by."""
