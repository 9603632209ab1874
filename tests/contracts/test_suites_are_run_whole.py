# SPDX-License-Identifier: Apache-2.0
"""Every provider of ours runs the shipped suites whole.

A case that somebody adds is thereby run on every provider, or skipped there by
its reason; a provider that somebody adds has a test module for both suites.
"""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case, check_cases
from livery.ports.required.sandbox_provider import Capability

ROOT = Path(__file__).parent.parent.parent
PROVIDERS = sorted(
    path.parent.name for path in (ROOT / "adapters").glob("*/sandbox_provider.py")
)
NAMES = [case.name for case in (*sandbox.CASES, *sandbox_provider.CASES)]


@functools.cache
def collected(provider: str) -> str:
    """Return the ids of the provider's contract tests, one a line."""
    module = ROOT / "tests" / provider / "test_contracts.py"
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", str(module)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, f"{module} cannot be collected: {ran.stdout}"
    return ran.stdout


def test_there_are_providers_and_every_case_has_its_own_name() -> None:
    assert "local_host" in PROVIDERS
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_case_is_left_out(provider: str) -> None:
    listed = collected(provider)

    missing = [
        name
        for name in NAMES
        if not re.search(rf"\[(?:.*-)?{re.escape(name)}(?:-.*)?\]", listed)
    ]
    assert not missing, f"{provider} does not run: {', '.join(missing)}"


async def nothing(_: object) -> None:
    return


def test_what_is_lacking_is_named() -> None:
    case = Case[object](
        name="a case",
        run=nothing,
        needs=frozenset({Capability.USERS, Capability.PORTS}),
        hooks=frozenset({"other_user"}),
    )
    all_needed = case.needs

    both = case.lacking(capabilities=frozenset(), hooks=frozenset())
    hook = case.lacking(capabilities=all_needed, hooks=frozenset())
    none = case.lacking(capabilities=all_needed, hooks=case.hooks)

    assert both == (
        "the provider does not claim published ports, users;"
        " the context has no other_user"
    )
    assert hook == "the context has no other_user"
    assert none is None


def test_two_cases_cannot_share_a_name() -> None:
    case = Case[object](name="a case", run=nothing)

    with pytest.raises(AssertionError, match="a case"):
        check_cases((case, case))
