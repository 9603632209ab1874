# SPDX-License-Identifier: Apache-2.0
"""What a close that takes too long is answered with, at every server."""

from typing import ClassVar

import attrs

from ..required.faults import Fault


@attrs.frozen
class CloseLate(Fault):
    """A session is not closed yet; what was begun goes on when it is asked again."""

    kind: ClassVar[str] = "close_late"
    message: ClassVar[str] = (
        "Session {session} is not closed after {seconds:g} seconds; close it again."
    )
    can_retry: ClassVar[bool] = True

    session: str
    seconds: float
