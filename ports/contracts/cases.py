# SPDX-License-Identifier: Apache-2.0
"""Cases: what a contract suite is made of.

A suite is a tuple of cases over one context. It knows no test runner: whoever
runs it, with pytest or without, calls `run` and takes an `AssertionError` for a
broken promise. A case that asks for more than every adapter can do says so in
`needs` (capabilities) and `hooks` (fields of the context that may be None). Both
are known before anything runs, so that a case is left out with its reason and
never passes by looking at nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs

from ..required.sandbox_provider import Capabilities, Capability

ContextT = TypeVar("ContextT")


@attrs.frozen(kw_only=True)
class Case(Generic[ContextT]):
    """One promise of a port, as something that can be run."""

    name: str
    """A sentence in small letters, unique within its suite."""
    run: Callable[[ContextT], Awaitable[None]]
    needs: frozenset[Capability] = frozenset()
    hooks: frozenset[str] = frozenset()
    """Fields of the context that must be filled in for the case."""
    field_cases: tuple[str, ...] = ()
    """Reported failures that the case keeps from coming back: "FC-024"."""

    def lacking(
        self, *, capabilities: Capabilities, hooks: frozenset[str]
    ) -> str | None:
        """Return why the case cannot run with these, or None when it can."""
        unable = sorted(need.value for need in self.needs - capabilities)
        absent = sorted(self.hooks - hooks)
        reasons = [f"the provider does not claim {', '.join(unable)}"] * bool(unable)
        reasons += [f"the context has no {', '.join(absent)}"] * bool(absent)
        return "; ".join(reasons) or None


def check_cases(cases: tuple[Case[ContextT], ...]) -> tuple[Case[ContextT], ...]:
    """Return `cases` when no two share a name; a suite is built through this."""
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"two cases share a name: {', '.join(twice)}"
    return cases
