# SPDX-License-Identifier: Apache-2.0
"""A provider over the real engine, with owners who own nothing at the end."""

from collections.abc import AsyncIterator, Iterator

import pytest

from livery.adapters.docker_engine import DockerSandboxProvider, open_docker_engine

from . import raw_engine
from .engines import Owners, make_plain_image, new_owners


@pytest.fixture
def owners() -> Iterator[Owners]:
    owners = new_owners()
    yield owners
    left = owners.left()
    for found in left:
        if found.startswith("container /"):
            raw_engine.remove(found.split()[1].removeprefix("/"))
    assert left == []


@pytest.fixture
async def provider(owners: Owners) -> AsyncIterator[DockerSandboxProvider]:
    async with open_docker_engine() as opened:
        yield opened


@pytest.fixture(scope="session")
def plain_image(test_image: str) -> Iterator[str]:
    """An image without Python: a stand-in for Alpine."""
    name = make_plain_image(test_image)
    yield name
    raw_engine.remove_image(name)
