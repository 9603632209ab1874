# SPDX-License-Identifier: Apache-2.0
"""A contract suite as parameters of a test: whole, with reasons for what is skipped.

A case that a provider does not owe is skipped by its reason and stands for no
field case; every other one stands for those that it names.
"""

from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from livery.ports.contracts.cases import Case
from livery.ports.required.sandbox_provider import Capabilities

ContextT = TypeVar("ContextT")


def parameters(
    cases: tuple[Case[ContextT], ...],
    *,
    capabilities: Capabilities,
    hooks: frozenset[str],
) -> list[ParameterSet]:
    """Return every case of the suite under its name."""
    return [
        pytest.param(case, id=case.name, marks=_marks(case, capabilities, hooks))
        for case in cases
    ]


def _marks(
    case: Case[ContextT], capabilities: Capabilities, hooks: frozenset[str]
) -> list[pytest.MarkDecorator]:
    if reason := case.lacking(capabilities=capabilities, hooks=hooks):
        return [pytest.mark.skip(reason=reason)]
    return [pytest.mark.case(*case.field_cases)] if case.field_cases else []
