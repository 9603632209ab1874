# SPDX-License-Identifier: Apache-2.0
"""Plain text: what goes to another program as it stands, and is the same there.

A NUL ends a text early in most of them, and half of a surrogate pair is written in
no encoding: one puts a question mark there, another says no to the whole request.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

NO_TEXT: Final = "it holds a NUL or half of a surrogate pair, which is no text"


def is_plain_text(text: str) -> bool:
    """Tell whether a text is one everywhere."""
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def no_texts(value: object, at: str) -> Iterator[str]:
    """Yield where a value, which stands under `at`, holds what is no text.

    `env.NAME` is a member, `argv[1]` an item. A name that is none is told as well,
    spelled so that it can be shown.
    """
    if isinstance(value, str):
        if not is_plain_text(value):
            yield at
    elif isinstance(value, Mapping):
        for name, member in cast("Mapping[object, object]", value).items():
            shown = str(name).encode("utf-8", "backslashreplace").decode()
            place = f"{at}.{shown}" if at else shown
            yield from no_texts(name, place)
            yield from no_texts(member, place)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[object]", value)):
            yield from no_texts(item, f"{at}[{index}]")
