# SPDX-License-Identifier: Apache-2.0
"""The interpreters that worker scripts are tried on: ours, and the oldest here."""

import sys

import pytest

from .. import peers


@pytest.fixture(params=["own", "oldest"])
def python(request: pytest.FixtureRequest) -> str:
    # Read anew: while coverage is on, another program stands for our own.
    return sys.executable if request.param == "own" else str(peers.oldest_python())
