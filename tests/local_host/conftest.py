# SPDX-License-Identifier: Apache-2.0
"""A local provider in a folder of its own, which must be empty at the end."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from livery.adapters.local_host import LocalHostSandboxProvider

from .places import processes_of, provider_in


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "sandboxes"
    yield root
    assert not root.exists() or list(root.iterdir()) == []
    assert processes_of(root) == []


@pytest.fixture
async def provider(root: Path) -> AsyncIterator[LocalHostSandboxProvider]:
    async with provider_in(root) as opened:
        yield opened
