# SPDX-License-Identifier: Apache-2.0
"""Refusals: what the rules say no to.

A refusal is an exception with fields. Its `message` is a template over those
fields, kept beside them so that a log line, a failure's reason and a terminal
all say the same. `kind` is the stable code that a machine reads.
"""

from typing import ClassVar

import attrs


def told(message: str, fact: attrs.AttrsInstance) -> str:
    """Fill the template `message` with the fields of `fact`.

    A field that is a sentence already does not end a sentence twice.
    """
    fields: dict[str, object] = attrs.asdict(fact, recurse=False)
    for name, value in fields.items():
        ends = isinstance(value, str) and value.endswith(".") and value[-2:] != ".."
        if ends and f"{{{name}}}." in message:
            fields[name] = str(value)[:-1]
    return message.format_map(fields)


@attrs.frozen
class Refusal(Exception):
    """A rule says no; the fields of the subclass say to what and why."""

    kind: ClassVar[str] = "refused"
    message: ClassVar[str] = "refused"

    def __str__(self) -> str:
        return told(self.message, self)
