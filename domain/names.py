# SPDX-License-Identifier: Apache-2.0
"""Names: how ids become names that other systems accept.

One rule for every provider. A name is made of lower-case letters, digits and
hyphens, starts with a letter and has at most 63 characters (DNS-1123 and
RFC 1035 labels, which Docker accepts too). An id that is such a name already
is used as it is; any other is cleaned and gets twelve hex digits of its
digest, so two different ids never share a name and the same id always finds
its own again.
"""

import hashlib
import re

NAME_CHARACTERS_MAX = 63
DIGEST_CHARACTERS = 12
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")


def to_name(prefix: str, identity: str) -> str:
    """Return the name of `identity` under `prefix` ("livery", say)."""
    plain = f"{prefix}-{identity}"
    if _NAME.fullmatch(plain) and not _looks_digested(plain):
        return plain
    cleaned = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if not cleaned or not cleaned[0].isalpha():
        cleaned = f"x-{cleaned}".strip("-")
    room = NAME_CHARACTERS_MAX - DIGEST_CHARACTERS - 1
    return f"{cleaned[:room].rstrip('-')}-{_digest(plain)}"


def to_label_value(text: str) -> str:
    """Return `text` as a label value: at most 63 of `A-Z a-z 0-9 . _ -`.

    A legal value stays as it is; the original of any other belongs into our own
    record, since cleaning loses it.
    """
    if LABEL_VALUE.fullmatch(text) and not _looks_digested(text):
        return text
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    room = NAME_CHARACTERS_MAX - DIGEST_CHARACTERS - 1
    return f"{cleaned[:room]}-{_digest(text)}".lstrip("-._")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[
        :DIGEST_CHARACTERS
    ]


def _looks_digested(name: str) -> bool:
    """A plain name that ends like a digested one would make two ids share it."""
    tail = name.rsplit("-", 1)[-1]
    return len(tail) == DIGEST_CHARACTERS and all(c in "0123456789abcdef" for c in tail)
