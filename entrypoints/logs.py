# SPDX-License-Identifier: Apache-2.0
"""Log lines: as text or as JSON, with the ids at hand and without secrets.

Every line names the episode, session and claim that it belongs to, where they
are known. Secret values are covered in the message, its arguments, exceptions
and every field; records themselves are never changed, so other handlers and
callers see what was there. A message cannot forge a second line.
"""

import datetime
import json
import logging
import math
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TextIO, cast

import attrs

from ..ports.provided.log_context import log_context
from ..ports.provided.secret_values import SecretValues
from .visible_text import visible

TEXT_CHARACTERS_MAX = 4 * 1024
"""Of one message or field; what is cut is told."""
FAILURE_CHARACTERS_MAX = 16 * 1024
"""Of one traceback."""
FIELD_DEPTH_MAX = 6

_IDS = ("episode", "session", "claim")
_OWN = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", *_IDS}
)

Shown = str | int | float | bool | list["Shown"] | dict[str, "Shown"] | None


class Layout(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """The least grave line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@contextmanager
def logging_to(
    stream: TextIO, *, level: Level, layout: Layout, secrets: SecretValues
) -> Generator[None, None, None]:
    """Write this process's log lines to `stream` inside the block.

    `level` is for our own lines; those of libraries are written from WARNING on,
    since they tell URLs and headers at lower levels.
    """
    root, ours = logging.getLogger(), logging.getLogger("livery")
    before = root.level, ours.level
    handler = LineHandler(stream)
    handler.setFormatter(
        JsonLines(secrets) if layout is Layout.JSON else TextLines(secrets)
    )
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    ours.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])
        handler.close()


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines; a line that cannot be written is told without its content."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Say that a line was lost, where standard error still takes words."""
        failure = sys.exc_info()[0]
        name = failure.__name__ if failure else "unknown"
        try:
            sys.stderr.write(f"livery: a log line could not be written ({name})\n")
        except (OSError, ValueError):
            return  # Closed as well: there is nowhere left to say it.


@attrs.frozen(eq=False)
class _Lines(logging.Formatter):
    """What both layouts share: the covered parts of a record."""

    secrets: SecretValues

    def said(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:
            # Wrong arguments or a failing __str__: the line is still worth having.
            text = f"{record.msg!r} (its arguments do not fit)"
        return self._short(text)

    def failure(self, record: logging.LogRecord) -> str:
        parts: list[str] = []
        if record.exc_info and record.exc_info[0] is not None:
            parts += traceback.format_exception(*record.exc_info)
        if record.stack_info:
            parts.append(record.stack_info)
        text = "".join(parts).rstrip("\n")
        return self._short(text, characters_max=FAILURE_CHARACTERS_MAX)

    def fields(self, record: logging.LogRecord) -> dict[str, Shown]:
        return {
            name: self._shown(value, depth=0)
            for name, value in vars(record).items()
            if name not in _OWN
        }

    def ids(self, record: logging.LogRecord) -> dict[str, str]:
        # A line is formatted where it is logged, so the context is that line's own.
        found = {**attrs.asdict(log_context()), **_given_ids(record)}
        return {
            name: self._short(str(value))
            for name, value in found.items()
            if value is not None
        }

    def _shown(self, value: object, *, depth: int) -> Shown:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and math.isfinite(value):
            plain = str(value)
            return value if self.secrets.masked(plain) == plain else self._short(plain)
        if depth < FIELD_DEPTH_MAX:
            if isinstance(value, Mapping):
                return {
                    self._short(_text(key)): self._shown(item, depth=depth + 1)
                    for key, item in cast("Mapping[object, object]", value).items()
                }
            if isinstance(value, list | tuple):
                items = cast("Sequence[object]", value)
                return [self._shown(item, depth=depth + 1) for item in items]
        return self._short(_text(value))

    def _short(self, text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
        """Cover first and cut then: half a secret is not found any more."""
        covered = self.secrets.masked(text)
        dropped = len(covered) - characters_max
        if dropped <= 0:
            return covered
        return f"{covered[:characters_max]} [... {dropped} characters dropped]"


class JsonLines(_Lines):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Shown] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.said(record),
            **self.ids(record),
        }
        if failure := self.failure(record):
            line["exception"] = failure
        if fields := self.fields(record):
            line["fields"] = fields
        return json.dumps(line)


class TextLines(_Lines):
    """One line for the eye; what continues it is indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        words = {**self.ids(record), **self.fields(record)}
        told = "".join(f" {name}={_plain(value)}" for name, value in words.items())
        line = f"{_time(record)} {record.levelname} {record.name}: {self.said(record)}{told}"
        if failure := self.failure(record):
            line = f"{line}\n{failure}"
        return visible(line).replace("\n", "\n    ")


def _time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _given_ids(record: logging.LogRecord) -> dict[str, object]:
    """Return the ids that the line itself was given, by `extra`."""
    return {name: vars(record)[name] for name in _IDS if name in vars(record)}


def _plain(value: Shown) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as failure:
        return (
            f"({type(value).__name__} that cannot be shown: {type(failure).__name__})"
        )
