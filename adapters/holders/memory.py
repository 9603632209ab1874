# SPDX-License-Identifier: Apache-2.0
"""Holders that a test or a simulation ends by hand."""

from typing import Final

import attrs

from ...domain.claims import Holder

OWN: Final = Holder("this-process")


@attrs.define
class MemoryHolders:
    """One living process among those that were."""

    own: Holder = OWN
    others: set[Holder] = attrs.field(factory=set[Holder])
    """Further living ones."""

    async def alive(self, holder: Holder) -> bool:
        """Whether that process lives."""
        return holder == self.own or holder in self.others
