# SPDX-License-Identifier: Apache-2.0
"""Which processes are alive that hold claims."""

from typing import Protocol

from ...domain.claims import Holder


class Holders(Protocol):
    """Tells the living from the dead, also after a kill."""

    @property
    def own(self) -> Holder:
        """The name of this process; no other has or had it."""
        ...

    async def alive(self, holder: Holder) -> bool:
        """Whether that process lives.

        One that was said to be dead once can write to the journal no more.

        Raises:
            JournalUnusable: Nobody can tell.
        """
        ...
