# SPDX-License-Identifier: Apache-2.0
"""File names: how the names of shelves and artifacts become names on disk.

Letters and digits of ASCII, `_`, `-` and `.` stand for themselves, except that a
name does not begin with a dot. Everything else is written as `%` and two hex digits
for each byte, so every name but the empty one is allowed, none leads out of its
folder, and two names never share a file. A name that would be too long keeps its
beginning and gets `+` and its digest. `+` never comes from a name.
"""

import hashlib
from collections.abc import Container, Iterator
from typing import Final
from urllib.parse import quote

from ...domain.tasks import BadName

FILE_NAME_CHARACTERS_MAX: Final = 200
BEGINNING_CHARACTERS: Final = 100
DIGEST_CHARACTERS: Final = 32


def to_file_name(field: str, name: str) -> str:
    """Return the one file name of `name`.

    Raises:
        BadName: It is empty; `field` says which name that is.
    """
    if not name:
        raise BadName(field=field, value=name, rule="it must not be empty")
    # quote() leaves the tilde alone, which some shells do not.
    quoted = quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= FILE_NAME_CHARACTERS_MAX:
        return quoted
    return _with_digest(quoted, name)


def free_file_name(name: str, taken: Container[str]) -> str:
    """Return a file name for an artifact that is none of `taken`.

    `taken` are casefolded: on a disk that does not tell `A` from `a`, two names
    that differ by that alone get two files as well.
    """
    return next(each for each in _choices(name) if each.casefold() not in taken)


def _choices(name: str) -> Iterator[str]:
    """Give four: one may stand for another spelling, one for what is replaced."""
    plain = to_file_name("artifact name", name)
    for each in (plain, _with_digest(plain, name)):
        yield each
        yield f"{each}+2"


def _with_digest(quoted: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{quoted[:BEGINNING_CHARACTERS]}+{digest[:DIGEST_CHARACTERS]}"
