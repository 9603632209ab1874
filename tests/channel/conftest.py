# SPDX-License-Identifier: Apache-2.0
"""A worker for each test, on this Python and on the oldest that is here."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .. import peers
from .worker_process import RunningWorker, worker_in


@pytest.fixture(params=["own", "oldest"])
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter of the sandbox."""
    # Read anew: while coverage is on, another program stands for our own.
    return sys.executable if request.param == "own" else str(peers.oldest_python())


@pytest.fixture
async def worker(tmp_path: Path, python: str) -> AsyncIterator[RunningWorker]:
    async with worker_in(str(tmp_path), python=python) as running:
        yield running
