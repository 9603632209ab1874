# SPDX-License-Identifier: Apache-2.0
"""`livery report`: what a run's results come to."""

from pathlib import Path

import click

from ...adapters.results_folder import RESULTS, read_rows, read_run
from ..summaries import summarise
from ..summary_texts import to_markdown, to_tables
from .shared import NamedPath, Shared


@click.command()
@click.argument("folder", type=NamedPath(), metavar="DIR")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "markdown"]),
    default="table",
    show_default=True,
)
@click.pass_obj
def report(shared: Shared, folder: Path, layout: str) -> None:
    """Show the scores of a run, also while it is going on.

    DIR is the folder that the run was given with --out.
    """
    card = read_run(folder)
    summary = summarise(card, read_rows(folder / RESULTS))
    shared.results = folder
    if layout == "markdown":
        click.echo(to_markdown(summary), nl=False)
    else:
        shared.out().print(to_tables(summary))
