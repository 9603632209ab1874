# SPDX-License-Identifier: Apache-2.0
"""What the commands share: where the settings are, and how words reach the user.

Results go to standard output, everything else to standard error. A fault or refusal
is told in its own words, without a traceback; secrets are covered in all of it.
"""

import io
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TextIO, cast

import attrs
import click
from rich.console import Console

from ...domain.refusals import Refusal
from ...ports.provided.secret_values import SecretValues
from ...ports.required.faults import Fault
from ..logs import logging_to
from ..settings import Settings
from ..settings_reading import FILE_NAME, SettingsFile, read_settings
from ..state_folder import state_path
from ..visible_text import visible

CAUSES_MAX: Final = 5
PIPE_COLUMNS: Final = 120
"""How wide tables are where there is no terminal to ask."""


class Status(IntEnum):
    """What the process ends with."""

    GRADED = 0
    """All that was asked for is done; in a run, all is graded."""
    LEFT = 1
    """Something failed, is masked or is left to do."""
    BAD_USE = 2
    """It could not begin: what was asked for is wrong, or something is not there."""
    KILLED = 130
    """Ended at once by a second signal."""


class NamedPath(click.Path):
    """A path with something in it: an unset variable must not mean this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path; fail for an empty text."""
        if value == "":
            more = "" if param is not None and param.required else ", or leave it out"
            self.fail(f"it is empty; name a path{more}.", param, ctx)
        return super().convert(value, param, ctx)


class Words(click.types.StringParamType):
    """A text with something in it: an unset variable must not mean the default."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the text; fail for one of blanks alone."""
        if not str(value).strip():
            self.fail("it is empty; fill it in, or leave it out.", param, ctx)
        return super().convert(value, param, ctx)


config_option = click.option(
    "--config",
    type=NamedPath(),
    metavar="FILE",
    help=f"The settings file; {FILE_NAME} in this folder when there is one.",
)
state_option = click.option(
    "--state",
    type=NamedPath(),
    metavar="DIR",
    help="The state folder; else [state] folder, else $XDG_STATE_HOME/livery.",
)


@attrs.define
class Shared:
    """What a command finds around it."""

    debug: bool = False
    secrets: SecretValues = attrs.field(factory=SecretValues)
    results: Path | None = None
    """Where the results are kept that are printed, if any are."""

    def say(self, text: str) -> None:
        """Tell the user something beside the results."""
        click.echo(visible(self.secrets.masked(text)), err=True)

    def out(self) -> Console:
        """Return where results are printed."""
        wide = None if sys.stdout.isatty() else PIPE_COLUMNS
        return Console(file=sys.stdout, width=wide)


def settings_of(config: Path | None) -> SettingsFile:
    """Read the chosen settings file, or the one of this folder, or none.

    Raises:
        SettingsRefused: With every mistake.
    """
    if config is not None:
        return read_settings(config)
    here = Path(FILE_NAME)
    return read_settings(here) if here.exists() else SettingsFile()


def state_of(chosen: Path | None, settings: Settings) -> Path:
    """Return the state folder's place."""
    return state_path(chosen if chosen is not None else settings.state.folder)


@contextmanager
def logging_as(file: SettingsFile, shared: Shared) -> Generator[None]:
    """Log as the settings say, inside the block."""
    log = file.settings.log
    # The parts of a text stream that a log handler uses are there.
    stream = cast("TextIO", _StandardError())
    with logging_to(
        stream,
        level=log.level,
        layout=log.format,
        secrets=shared.secrets,
    ):
        yield


class _StandardError(io.TextIOBase):
    """Standard error as it is at each write: a progress bar takes it over."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def tell(error: Exception, shared: Shared) -> int:
    """Tell what ended the command; a mistake of ours is told apart."""
    found = list(leaves(error))
    ours = [one for one in found if not isinstance(one, Fault | Refusal)]
    for words in dict.fromkeys(told(one) for one in found if one not in ours):
        shared.say(f"livery: {words}")
    for one in ours:
        shared.say(
            f"livery: unexpected {type(one).__name__}: {one}\n"
            "This is a mistake in Livery or in a plug-in; `livery --debug …` shows"
            " where."
        )
    return Status.LEFT if ours else Status.BAD_USE


def tell_unprinted(failure: OSError, shared: Shared) -> None:
    """Tell that standard output could not be written to, and where results are."""
    where = (
        f" The results are in {shared.results}; `livery report {shared.results}`"
        " prints them."
        if shared.results is not None
        else ""
    )
    shared.say(
        f"livery: Standard output could not be written to: {failure.strerror or failure}."
        f" What it was told is not whole.{where}"
    )


def told(error: BaseException) -> str:
    """Return a fault or refusal in words, with the causes that add to them."""
    lines = [_one(error)]
    cause = error.__cause__
    for _ in range(CAUSES_MAX):
        if cause is None:
            break
        words = _one(cause)
        if not any(words in line for line in lines) and _adds(cause):
            lines.append(f"  because: {words}")
        cause = cause.__cause__
    return "\n".join(lines)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Tell what a group of exceptions consists of, or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield from leaves(one)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error


def _one(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _adds(cause: BaseException) -> bool:
    """Whether a cause is one of our own words; a library's are told by its fault."""
    return isinstance(cause, Fault | Refusal)
