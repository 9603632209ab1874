# SPDX-License-Identifier: Apache-2.0
"""The results of one run, a line an episode."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import attrs

from ...domain.digests import Json
from ...domain.rollouts import Record
from .faults import Fault


@attrs.frozen
class ResultLogUnusable(Fault):
    """The results cannot be read or written."""

    kind: ClassVar[str] = "result_log_unusable"
    message: ClassVar[str] = "The results at {where} cannot be used: {reason}."

    where: str
    reason: str


@attrs.frozen
class RowRefused(Fault):
    """What an episode is written down as is no row; nothing was written."""

    kind: ClassVar[str] = "row_refused"
    message: ClassVar[str] = "What came of the episode cannot be kept: {reason}."

    reason: str


class ResultLog(Protocol):
    """A durable list of finished episodes. Methods raise `ResultLogUnusable`."""

    def records(self) -> tuple[Record, ...]:
        """Return what came of each finished attempt, in the order of their end."""
        ...

    async def append(self, row: Mapping[str, Json]) -> Record:
        """Write one episode's row, whole and durable, and return it as a record.

        Raises:
            RowRefused: It is no row; another can be written.
        """
        ...
