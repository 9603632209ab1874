# SPDX-License-Identifier: Apache-2.0
"""The words that settings are declared with: what is allowed and what it is for.

A setting's type carries its bounds and its field carries its description, so the
reader, the JSON Schema and the test of the reference page read the same source.
"""

from typing import Annotated, Final

import attrs

DAYS_MAX: Final = 31
SECONDS_MAX: Final = DAYS_MAX * 24 * 3600.0
"""No duration is longer: beyond it a slip of the pen is likelier than an intent."""
NONE_WORD: Final = "none"
"""How a setting that may be absent is switched off in TOML, which has no null."""


@attrs.frozen(kw_only=True)
class Range:
    """The bounds of a number; `above` is exclusive, the others inclusive."""

    above: float | None = None
    least: float | None = None
    most: float | None = None
    unit: str = ""

    def mistake(self, value: float) -> str | None:
        """Return what is wrong with `value`; NaN lies in no range."""
        fits = (
            (self.above is None or value > self.above)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and value - value == 0  # Neither an infinity nor NaN.
        )
        return None if fits else self.told

    @property
    def told(self) -> str:
        """The bounds in words."""
        bounds = [
            f"{word} {bound:,.15g}"
            for word, bound in (
                ("above", self.above),
                ("at least", self.least),
                ("at most", self.most),
            )
            if bound is not None
        ]
        unit = f" {self.unit}" if self.unit else ""
        return f"a number{unit} {' and '.join(bounds)}"


@attrs.frozen(kw_only=True)
class NonEmpty:
    """Text with something in it."""


@attrs.frozen(kw_only=True)
class Length:
    """A list with at least so many items."""

    least: int


@attrs.frozen(kw_only=True)
class Shape:
    """Text that a pattern, one that JSON Schema knows as well, matches as a whole."""

    pattern: str
    told: str
    """What is wanted, in words."""
    may_hold_secret: bool = False
    """Whether what is refused is not shown."""


Seconds = Annotated[float, Range(above=0, most=SECONDS_MAX, unit="of seconds")]
Name = Annotated[str, NonEmpty()]
Token = Annotated[
    str,
    Shape(
        pattern=r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+",
        told="a name of letters, digits and !#$%&'*+-.^_`|~ alone",
    ),
]
"""A name of HTTP: a cookie's or a header's."""
Address = Annotated[
    str,
    Shape(
        pattern=r"[Hh][Tt][Tt][Pp][Ss]?://"
        r"(\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]]+)(:[0-9]{1,5})?(/[^\s?#]*)?",
        told="an address like http://host:8200 or https://host/path, without a user,"
        " a query or a fragment",
        may_hold_secret=True,
    ),
]
"""Where a server is."""
FilePath = Annotated[
    str,
    Shape(
        pattern=r"(?!([^\0]*/)?(\.\./|\.{1,2}$))[^\0]*[^/\0]",
        told="a file's path, below the workdir or absolute, without '..'",
    ),
]
"""A file in a sandbox."""


def doc(text: str) -> dict[str, str]:
    """Return the metadata of a setting: its description in the JSON Schema."""
    return {"doc": text}
