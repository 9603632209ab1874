# SPDX-License-Identifier: Apache-2.0
"""Refusals: what the rules say no to.

A refusal is an exception with fields. Its `message` is a template over those
fields, kept beside them so that a log line, a failure's reason and a terminal
all say the same. `kind` is the stable code that a machine reads.
"""

from typing import ClassVar

import attrs


def told(message: str, fact: attrs.AttrsInstance) -> str:
    """Fill the template `message` with the fields of `fact`."""
    return message.format_map(attrs.asdict(fact, recurse=False))


@attrs.frozen
class Refusal(Exception):
    """A rule says no; the fields of the subclass say to what and why."""

    kind: ClassVar[str] = "refused"
    message: ClassVar[str] = "refused"

    def __str__(self) -> str:
        return told(self.message, self)
