# SPDX-License-Identifier: Apache-2.0
"""Image names as every registry and engine reads them: a place, a path, a tag, a digest.

`registry.example:5000/group/name:tag@sha256:…`; all but the path may be left out. An
engine's own id of an image, `sha256:…`, reads as one too.
"""

import re
from typing import Final

NAME_CHARACTERS_MAX: Final = 255
"""Of place and path together, as engines have it."""

_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PLACE: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_DIGEST: Final = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_IMAGE: Final = re.compile(
    rf"(?P<name>(?:{_PLACE}/)?{_PART}(?:/{_PART})*)"
    rf"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@{_DIGEST})?"
)


def is_image_name(text: str) -> bool:
    """Tell whether a text can be the name of an image."""
    found = _IMAGE.fullmatch(text)
    return found is not None and len(found["name"]) <= NAME_CHARACTERS_MAX


def no_image_name(text: str) -> str:
    """Return the reason for which a text that is none is refused."""
    return f"{text!r} is no image's name, like registry.example/group/name:tag"
