# SPDX-License-Identifier: Apache-2.0
"""The command itself: its subcommands, and the last place where errors are told."""

import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Final

import click

from .check import check
from .claims import claims
from .config import config
from .outputs import lasting_outputs
from .report import report
from .run import run
from .runtimes import runtimes
from .serve import serve
from .shared import Shared, Status, tell, tell_unprinted

DISTRIBUTION: Final = "livery"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(importlib.metadata.version(DISTRIBUTION), prog_name=DISTRIBUTION)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.pass_obj
def livery(shared: Shared, debug: bool) -> None:
    """Run coding agents on tasks in sandboxes, and grade what they did."""
    shared.debug = debug


for _command in (run, report, claims, check, config, runtimes, serve):
    livery.add_command(_command)


def main() -> None:
    """Run the command line of this process."""
    shared, out = Shared(), lasting_outputs()
    status = carry_out(sys.argv[1:], shared)
    sys.stdout.flush()
    # Who closes it has read enough; any other failure is news.
    if out.failure is not None and not isinstance(out.failure, BrokenPipeError):
        tell_unprinted(out.failure, shared)
        status = max(status, Status.LEFT)
    sys.exit(status)


def carry_out(arguments: Sequence[str], shared: Shared) -> int:
    """Carry out a command line, and return the exit status."""
    try:
        ended: object = livery.main(
            list(arguments), prog_name=DISTRIBUTION, obj=shared, standalone_mode=False
        )
    except click.ClickException as wrong:
        wrong.show()
        return Status.BAD_USE
    except (click.Abort, KeyboardInterrupt):
        shared.say("livery: ended by a signal before anything had begun")
        return Status.LEFT
    except Exception as error:
        if shared.debug:
            raise
        return tell(error, shared)
    return ended if isinstance(ended, int) else Status.GRADED
