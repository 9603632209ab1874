# SPDX-License-Identifier: Apache-2.0
"""Two distributions with one provider name, which NeMo Gym answers with no provider.

Its registry then refuses every name at the first look-up, whatever is asked for.
"""

import importlib.metadata
from typing import Final

from ..plug_ins import distribution

GROUP: Final = "nemo_gym.sandbox_providers"
OURS: Final = "livery"


def name_clashes() -> tuple[str, ...]:
    """Return what clashes and which distributions to remove, a sentence each."""
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return tuple(
        _told(name, entries)
        for name, entries in sorted(found.items())
        if len(entries) > 1
    )


def _told(name: str, entries: list[importlib.metadata.EntryPoint]) -> str:
    everybody = " and ".join(sorted(map(distribution, entries)))
    others = [one for one in entries if one.dist is None or one.dist.name != OURS]
    named = sorted({one.dist.name for one in others if one.dist is not None})
    if len(others) < len(entries) and named:
        remedy = f"pip uninstall {' '.join(named)}"
    else:
        remedy = "uninstall all but one"
    return (
        f"NeMo Gym's sandbox provider {name!r} is published by {everybody}, and NeMo"
        f" Gym then refuses every provider: {remedy}."
    )
