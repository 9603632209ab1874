# SPDX-License-Identifier: Apache-2.0
"""`livery config`: whether a settings file is right, and what one can say."""

from pathlib import Path

import click

from ..example_settings import example, example_names
from ..plug_ins import Surroundings
from ..settings_check import check_starts
from ..settings_reading import FILE_NAME
from ..settings_schema import shipped_schema
from .shared import NamedPath, Shared, settings_of, state_of


@click.group()
def config() -> None:
    """Look at settings files."""


@config.command("check")
@click.argument("file", type=NamedPath(), required=False, metavar="[FILE]")
@click.pass_obj
def check_config(shared: Shared, file: Path | None) -> None:
    """Find all that a start by a settings file would refuse, without starting anything.

    Names, plug-ins' options, sandboxes and secrets are looked at as a run does it, and
    as the servers do that the file has a section of; nobody is asked over a network.

    FILE is livery.toml in this folder when it is left out; where there is none, the
    defaults are checked.
    """
    read = settings_of(file)
    state = state_of(None, read.settings)
    check_starts(read, Surroundings(name="", state=state, secrets=shared.secrets))
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
