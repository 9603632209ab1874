# SPDX-License-Identifier: Apache-2.0
"""Settings files that come with Livery, each ready but for what is the user's own."""

from importlib.resources import files
from typing import Final

_SUFFIX: Final = ".toml"


def example_names() -> tuple[str, ...]:
    """Return the names of the files."""
    found = (one.name for one in files(__package__ or __name__).iterdir())
    return tuple(
        sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))
    )


def example(name: str) -> str:
    """Return a file's text."""
    path = files(__package__ or __name__) / f"{name}{_SUFFIX}"
    return path.read_text(encoding="utf-8")
