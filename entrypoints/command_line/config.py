# SPDX-License-Identifier: Apache-2.0
"""`livery config`: whether a settings file is right, and what one can say."""

from pathlib import Path

import click

from ...ports.required.faults import Fault
from ..built_in import HARNESSES, PROVIDERS
from ..composition import read_options
from ..example_settings import example, example_names
from ..plug_ins import HarnessPlugIn, ProviderPlugIn, find
from ..run_plan import plan_of
from ..settings_reading import FILE_NAME, SettingsFile, SettingsRefused
from ..settings_schema import shipped_schema
from .shared import NamedPath, settings_of


@click.group()
def config() -> None:
    """Look at settings files."""


@config.command("check")
@click.argument("file", type=NamedPath(), required=False, metavar="[FILE]")
def check_config(file: Path | None) -> None:
    """Read a settings file as a run would, plug-ins' options and secrets included.

    FILE is livery.toml in this folder when it is left out; where there is none, the
    defaults are checked.
    """
    read = settings_of(file)
    _check_blocks(read)
    plan_of(read, {})
    blocks = [
        *(f"sandbox.{name}" for name in read.settings.sandbox),
        *(f"harness.{name}" for name in read.settings.harness),
    ]
    found = file or Path(FILE_NAME)
    if found.exists():
        told = f"{found} is right"
    else:
        told = f"There is no {FILE_NAME} in this folder, and the defaults are right"
    click.echo(f"{told}. Blocks: {', '.join(blocks) or 'none'}.")


@config.command("schema")
def show_schema() -> None:
    """Print the JSON Schema of settings files."""
    click.echo(shipped_schema(), nl=False)


@config.command("example")
@click.argument("name", type=click.Choice(example_names()))
def show_example(name: str) -> None:
    """Print a settings file that is ready but for what is yours in it."""
    click.echo(example(name), nl=False)


def _check_blocks(read: SettingsFile) -> None:
    """Read the options of each block as its plug-in does; tell all that is wrong."""
    options: list[tuple[type[object], str, str, dict[str, object]]] = []
    unknown: list[str] = []
    for name, sandbox in read.settings.sandbox.items():
        try:
            provider = find(ProviderPlugIn, sandbox.provider or name, PROVIDERS)
            options.append((provider.options, "sandbox", name, {**sandbox.options}))
        except Fault as fault:
            unknown.append(f"  sandbox.{name}: {fault}")
    for name, block in read.settings.harness.items():
        try:
            harness = find(HarnessPlugIn, block.harness or name, HARNESSES)
            options.append((harness.options, "harness", name, {**block.options}))
        except Fault as fault:
            unknown.append(f"  harness.{name}: {fault}")
    mistakes = ""
    try:
        read_options(read, *options)
    except SettingsRefused as refused:
        mistakes = refused.mistakes
    if unknown or mistakes:
        lines = [*unknown, *filter(None, [mistakes])]
        raise SettingsRefused(where=read.where, mistakes="\n".join(lines))
