# SPDX-License-Identifier: Apache-2.0
"""A local provider in a folder of its own, which must be empty at the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from livery.adapters.local_host import LocalHostSandboxProvider

from .places import provider_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sandboxes"


@pytest.fixture
async def provider(root: Path) -> AsyncIterator[LocalHostSandboxProvider]:
    async with provider_in(root) as opened:
        yield opened
    assert list(root.iterdir()) == []
