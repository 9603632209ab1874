# SPDX-License-Identifier: Apache-2.0
"""Reading `livery.toml`: every mistake of a file at once, with its place.

References to secrets are looked at, not read. One that leads nowhere is told with
the mistakes of the file; for blocks that nobody uses it does not matter.
"""

import codecs
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import attrs

from ..ports.required.faults import Fault
from .settings import Settings
from .strict_converter import KeyPath, Mistake, Refused, converter
from .toml_places import line_of

T = TypeVar("T")

FILE_NAME: Final = "livery.toml"
FILE_BYTES_MAX: Final = 1024 * 1024
_SAVE_AS: Final = "save it as UTF-8 without a byte order mark"
_MARKS: Final = (
    (codecs.BOM_UTF8, "it begins with a byte order mark"),
    # Those of UTF-32 begin like those of UTF-16.
    (codecs.BOM_UTF32_LE, "it is UTF-32"),
    (codecs.BOM_UTF32_BE, "it is UTF-32"),
    (codecs.BOM_UTF16_LE, "it is UTF-16"),
    (codecs.BOM_UTF16_BE, "it is UTF-16"),
)
"""How files begin that editors save in another way, and what is said of them."""


@attrs.frozen
class SettingsRefused(Fault):
    """The settings cannot be used; every mistake is told at once."""

    kind: ClassVar[str] = "settings_refused"
    message: ClassVar[str] = "{where} cannot be used:\n{mistakes}"

    where: str
    mistakes: str
    """One line a mistake: the place, what is there, what would be right."""


@attrs.frozen(kw_only=True)
class SettingsFile:
    """A file as it was read, and where it was; the defaults when there is none."""

    settings: Settings = attrs.field(factory=Settings)
    where: str = "(no settings file)"
    text: str = attrs.field(default="", repr=False)
    sections: frozenset[str] = frozenset()
    """The tables that the file has: who says nothing of a server starts none."""

    def refusal(self, mistakes: tuple[Mistake, ...]) -> SettingsRefused:
        """Return the refusal that tells `mistakes` with their lines."""
        placed = [(line_of(self.text, one.path) or 0, one) for one in mistakes]
        placed.sort(key=lambda pair: pair[0])
        lines = "\n".join(
            f"  {f'line {line}: ' if line else ''}{written(one.path)}: {one.told}"
            for line, one in placed
        )
        return SettingsRefused(where=self.where, mistakes=lines)


def read_settings(path: Path) -> SettingsFile:
    """Read a file.

    Raises:
        SettingsRefused: With every mistake of the file itself; what the plug-ins say
            to their options comes when they are opened, or from `livery config check`.
    """
    read = SettingsFile(where=str(path), text=_text(path))
    try:
        content = tomllib.loads(read.text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsRefused(
            where=read.where, mistakes=f"  it is not TOML: {error}"
        ) from error
    except RecursionError as error:
        told = "  it is nested too deeply"
        raise SettingsRefused(where=read.where, mistakes=told) from error
    except ValueError as error:
        told = "  it holds a whole number of too many digits"
        raise SettingsRefused(where=read.where, mistakes=told) from error
    try:
        settings = structured(Settings, content)
        return attrs.evolve(read, settings=settings, sections=frozenset(content))
    except Refused as refused:
        raise read.refusal(refused.mistakes) from refused


def structured(
    kind: type[T],
    content: object,
    *,
    at: KeyPath = (),
    environ: Mapping[str, str] = os.environ,
) -> T:
    """Return `content` as a value of `kind`.

    Raises:
        Refused: With every mistake; their paths begin with `at`.
    """
    try:
        return converter(environ).structure(content, kind)
    except Refused as refused:
        raise refused.under(*at) from None


def written(path: KeyPath) -> str:
    """Return the path of a field in words, `sandbox.docker.mounts[0].source`."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.removeprefix(".") or "the file"


def gathered(checks: tuple[Callable[[], object], ...]) -> tuple[Mistake, ...]:
    """Make all checks, and return the mistakes of all."""
    mistakes: list[Mistake] = []
    for check in checks:
        try:
            check()
        except Refused as refused:
            mistakes += refused.mistakes
    return tuple(mistakes)


def _text(path: Path) -> str:
    def refused(reason: str) -> SettingsRefused:
        return SettingsRefused(where=str(path), mistakes=f"  {reason}")

    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise refused(f"it cannot be read: {error.strerror or error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise refused(f"it is over {FILE_BYTES_MAX} bytes")
    for mark, told in _MARKS:
        if content.startswith(mark):
            raise refused(f"{told}; {_SAVE_AS}")
    if b"\0" in content:
        raise refused(f"it holds NUL bytes, as UTF-16 does; {_SAVE_AS}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refused(f"it is not UTF-8, at byte {error.start}") from error
