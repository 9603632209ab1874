# SPDX-License-Identifier: Apache-2.0
"""What stands open in a journal, over all of its categories."""

from typing import Final

from livery.ports.required.journal import Journal

CATEGORIES: Final = (
    "agent_sessions",
    "claims",
    "episodes",
    "lent_sandboxes",
    "places",
    "resources_sessions",
    "runtimes",
)


async def still_open(journal: Journal) -> tuple[str, ...]:
    """Return the streams that have not ended, each as its category and key."""
    return tuple(
        [
            f"{category}/{key}"
            for category in CATEGORIES
            for key in await journal.open_streams(category)
        ]
    )
