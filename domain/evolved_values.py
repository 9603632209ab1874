# SPDX-License-Identifier: Apache-2.0
"""Frozen values with some of their fields changed.

The same as `attrs.evolve`, which looks up the fields of a class anew each time: a
state evolves dozens of times in an episode, and thousands of episodes are replayed.
"""

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    # Its changes are checked against the fields as attrs' own are.
    from attrs import evolve as evolved
else:

    def evolved(value, **changes):
        """Return a copy of an attrs value with these fields changed."""
        kind = type(value)
        arguments = _ARGUMENTS.get(kind)
        if arguments is None:
            made_of = (field for field in attrs.fields(kind) if field.init)
            arguments = tuple((field.name, field.alias) for field in made_of)
            _ARGUMENTS[kind] = arguments
        for name, argument in arguments:
            if argument not in changes:
                changes[argument] = getattr(value, name)
        return kind(**changes)


_ARGUMENTS: Final[dict[type, tuple[tuple[str, str], ...]]] = {}
"""By class: each field that is given when one is made, and as what argument."""

__all__ = ["evolved"]
