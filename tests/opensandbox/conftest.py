# SPDX-License-Identifier: Apache-2.0
"""Providers over the real server and over the one in this process."""

from collections.abc import AsyncIterator, Iterator

import pytest

from livery.adapters.opensandbox import OpenSandboxProvider

from ..docker_engine.engines import Owners, new_owners
from . import providers, real_server
from .real_server import RealServer
from .stand_in_server import StandInServer


@pytest.fixture(scope="session")
def real(test_image: str) -> Iterator[RealServer]:
    """The one real server of all tests."""
    server = real_server.set_up(test_image)
    try:
        server.start()
        yield server
        server.stop()
    finally:
        real_server.take_down(server)


@pytest.fixture
def owners() -> Owners:
    return new_owners()


@pytest.fixture
async def real_provider(
    real: RealServer, owners: Owners
) -> AsyncIterator[OpenSandboxProvider]:
    async with providers.over_real(real) as opened:
        yield opened
    left = owners.left()
    assert left == []


@pytest.fixture
def stand_in() -> Iterator[StandInServer]:
    """A server in this process, with sandboxes that are processes of this host."""
    with StandInServer() as server:
        yield server
        assert server.sandboxes == {}, "sandboxes were left"


@pytest.fixture
async def provider(stand_in: StandInServer) -> AsyncIterator[OpenSandboxProvider]:
    async with providers.over_stand_in(stand_in) as opened:
        yield opened
