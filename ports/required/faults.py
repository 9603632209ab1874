# SPDX-License-Identifier: Apache-2.0
"""Faults: what is raised when the world outside broke.

A refusal says that a rule forbids; a fault says that something outside did not
work. Each is declared beside the port that can raise it. `kind` is the stable
code, `message` the text over the fields, `can_retry` whether the same request
may succeed later without anybody mending anything.
"""

from typing import ClassVar

import attrs

from ...domain.refusals import told


@attrs.frozen
class Fault(Exception):
    """Something outside did not work; the fields of the subclass say what."""

    kind: ClassVar[str] = "fault"
    message: ClassVar[str] = "something outside failed"
    can_retry: ClassVar[bool] = False

    def __str__(self) -> str:
        return told(self.message, self)
