# SPDX-License-Identifier: Apache-2.0
"""`livery run`: what the words of the command line ask for."""

import datetime
import os
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click
from click.core import ParameterSource

from ...ports.required.sandbox_provider import Network
from ..run_plan import RunPlan, plan_of
from ..setting_words import NONE_WORD
from ..settings import (
    CONCURRENCY_MAX,
    LIMIT_MAX,
    REPEATS_MAX,
    HarnessSettings,
    MountSettings,
)
from ..settings_reading import SettingsFile
from .running import Begin, GoOn, carry_out
from .shared import (
    NamedPath,
    Shared,
    Words,
    config_option,
    logging_as,
    settings_of,
    state_of,
    state_option,
)

WORDS: Final = "livery.command_words"
OUT_FOLDER: Final = "out"
COMMAND: Final = "command"


class RunCommand(click.Command):
    """A command whose words after `--` are the harness's, not its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words after `--` aside."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[WORDS] = args[:at], tuple(args[at + 1 :])
            if not any(ctx.meta[WORDS]):
                # An unset variable must not become a run of another harness.
                raise click.UsageError("There is no command after --.", ctx=ctx)
        return super().parse_args(ctx, args)


def to_mounts(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[MountSettings, ...]:
    """Return the mounts `HOST:INSIDE`, read-only, or `HOST:INSIDE:rw`.

    A relative path of this host is made absolute.
    """
    found: list[MountSettings] = []
    for value in values:
        source, _, rest = value.partition(":")
        target, _, mode = rest.partition(":")
        if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
            raise click.BadParameter(
                f"{value!r} is not HOST:INSIDE or HOST:INSIDE:rw, INSIDE being an"
                " absolute path."
            )
        path = os.path.abspath(source)
        found.append(MountSettings(source=path, target=target, read_only=mode != "rw"))
    return tuple(found)


def to_limit(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """Return the number, or the word for no limit; None when nothing was said."""
    if value is None or value == NONE_WORD:
        return value
    # As a float, which takes a number of any length.
    if not value.isdecimal() or not 1 <= float(value) <= LIMIT_MAX:
        raise click.BadParameter(
            f"{value!r:.40} is not 1 or more, at most {LIMIT_MAX:,}, or {NONE_WORD}."
        )
    return int(value)


@click.command(cls=RunCommand)
@click.argument("source", type=Words(), required=False)
@click.option(
    "--harness",
    type=Words(),
    metavar="NAME",
    help="oracle, nop, command, claude_code, simple, or a block.",
)
@click.option(
    "--sandbox",
    type=Words(),
    metavar="NAME",
    help="local, docker, opensandbox, agent_sandbox, or a block.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, CONCURRENCY_MAX),
    metavar="N",
    help="How many episodes run at once.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, REPEATS_MAX),
    metavar="K",
    help="How many rollouts each task gets.",
)
@click.option(
    "--limit",
    metavar="N",
    callback=to_limit,
    help="Take the first N tasks; none: all.",
)
@click.option(
    "--out",
    type=NamedPath(),
    metavar="DIR",
    help=f"A new folder for the results; {OUT_FOLDER}/NAME-TIME when left out.",
)
@click.option(
    "--image",
    type=Words(),
    metavar="NAME",
    help="The image of the sandboxes; none: the default.",
)
@click.option(
    "--network",
    type=click.Choice([one.value for one in Network]),
    help="none: the sandboxes reach nothing; listed: what their block names.",
)
@click.option(
    "--mount",
    "mounts",
    metavar="HOST:INSIDE[:rw]",
    multiple=True,
    callback=to_mounts,
    help="Show a path of this host inside; once for each.",
)
@click.option(
    "--command",
    metavar="TEXT",
    help="What the harness `command` has a shell run in each sandbox.",
)
@click.option(
    "--model-url",
    type=Words(),
    metavar="URL",
    help="The model's server, without /v1.",
)
@click.option("--model", type=Words(), metavar="NAME", help="The model that is asked.")
@click.option(
    "--claude-code-version",
    type=Words(),
    metavar="V",
    help="The exact version that the harness claude_code brings into sandboxes.",
)
@click.option(
    "--policy",
    type=Words(),
    metavar="TEXT",
    help="What says the next thing in the harness simple: model, scripted:PATH or"
    " scripted:solutions.",
)
@click.option(
    "--via",
    type=Words(),
    metavar="URL",
    help="Have the environment server at URL run the episodes.",
)
@click.option(
    "--resume",
    type=NamedPath(),
    metavar="DIR",
    help="Go on with the run whose results are in DIR.",
)
@click.option(
    "--retry-masked", is_flag=True, help="With --resume: run the masked ones again."
)
@config_option
@state_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    source: str | None,
    resume: Path | None,
    retry_masked: bool,
    config: Path | None,
    state: Path | None,
    out: Path | None,
    **chosen: Any,
) -> int:
    """Run a harness on each task of SOURCE, and grade what it did.

    SOURCE is humaneval, the path of a file TASKS.jsonl, or the name of another
    source. The words after -- are the command line of the harness `command`:

        livery run tasks.jsonl --sandbox docker -- my-agent --fast

    Exit status: 0 when every episode was graded, passed or failed; 1 when one is
    masked, broken or left to do; 2 when the run could not begin.
    """
    shared = ctx.find_object(Shared)
    assert shared is not None, "main gives it"
    words: tuple[str, ...] = ctx.meta.get(WORDS, ())
    file = settings_of(config)
    order: Begin | GoOn
    if resume is not None:
        _refuse_with_resume(ctx)
        order = GoOn(
            folder=resume,
            retry_masked=retry_masked,
            concurrency=chosen["concurrency"],
            state=state,
        )
    else:
        if retry_masked:
            raise click.UsageError("--retry-masked goes with --resume DIR.")
        if source is None:
            raise click.UsageError(
                "Name the tasks: humaneval, or a file TASKS.jsonl (or --resume DIR)."
            )
        order = Begin(
            source=_absolute(source),
            plan=_plan(file, _over(file, chosen, words)),
            out=out or _fresh_folder(source),
            state=state_of(state, file.settings),
            file=file,
        )
    with logging_as(file, shared):
        return anyio.run(carry_out, order, shared)


def _plan(file: SettingsFile, given: dict[str, Any]) -> RunPlan:
    """Return the plan; what a server chooses cannot be chosen for it."""
    via = given.pop("via", None)
    plan = plan_of(file, given)
    chosen = set(given) - {"concurrency", "repeats", "limit"}
    if via is not None and chosen:
        raise click.UsageError(
            "With --via the server chooses harness, model and sandbox; leave out what"
            " says them here."
        )
    return attrs.evolve(plan, via=via)


def _refuse_with_resume(ctx: click.Context) -> None:
    """A run goes on as it was begun; only its pace can be another."""
    allowed = {"resume", "retry_masked", "config", "state", "concurrency"}
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name not in allowed
        and ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        and ctx.params.get(str(parameter.name))
    ]
    given += ["the words after --"] if ctx.meta.get(WORDS) else []
    if given:
        raise click.UsageError(
            f"--resume goes on as the run was begun; leave out {', '.join(given)}."
        )


def _over(
    file: SettingsFile, chosen: dict[str, Any], words: tuple[str, ...]
) -> dict[str, Any]:
    """Return what the command line lays over the settings."""
    given = {
        name: _meant(chosen[name])
        for name in ("harness", "sandbox", "concurrency", "repeats", "limit", "via")
        if chosen[name] is not None
    }
    command = _command(chosen["command"], words)
    if command:
        harness = given.setdefault("harness", COMMAND)
        block = file.settings.harness.get(harness, HarnessSettings())
        if (block.harness or harness) != COMMAND:
            raise click.UsageError(
                f"Harness {harness} takes no command; --harness {COMMAND} does."
            )
        given["harness_block"] = {"options": {COMMAND: list(command)}}
    options = {
        name: chosen[name]
        for name in ("model", "claude_code_version", "policy")
        if chosen[name] is not None
    }
    if options:
        block_over = given.setdefault("harness_block", {})
        block_over["options"] = {**block_over.get("options", {}), **options}
    if chosen["model_url"] is not None:
        given["model"] = {"url": _meant(chosen["model_url"])}
    sandbox: dict[str, Any] = {}
    if chosen["image"]:
        sandbox["image"] = _meant(chosen["image"])
    if chosen["network"]:
        sandbox["network"] = Network(chosen["network"])
    if chosen["mounts"]:
        name = given.get("sandbox", file.settings.run.sandbox)
        before = file.settings.sandbox.get(name)
        sandbox["mounts"] = (*(before.mounts if before else ()), *chosen["mounts"])
    return given | ({"sandbox_block": sandbox} if sandbox else {})


def _meant(value: Any) -> Any:
    """The word that switches a setting off means the same here as in the file."""
    return None if value == NONE_WORD else value


def _command(text: str | None, words: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return words
    if words:
        raise click.UsageError("Give --command or the words after --, not both.")
    if not text.strip():
        raise click.UsageError("--command is empty: there is nothing to run.")
    return ("/bin/sh", "-c", text)


def _absolute(source: str) -> str:
    """A path is kept absolute, so that the run can go on from another folder."""
    return (
        os.path.abspath(source) if "/" in source or os.path.exists(source) else source
    )


def _fresh_folder(source: str) -> Path:
    now = datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    name = Path(source.partition(":")[0]).stem or "run"
    return Path(OUT_FOLDER) / f"{name}-{now}-{os.getpid()}"
