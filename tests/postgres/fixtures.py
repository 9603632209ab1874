# SPDX-License-Identifier: Apache-2.0
"""The server as a fixture: one for a whole run of tests, and running for each.

A test that takes `postgres` is marked `peer("postgres")`. What speaks to a server is
loaded for those alone: the others run without psycopg.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .. import peers

if TYPE_CHECKING:
    from .server import Postgres


@pytest.fixture(scope="session")
def running_postgres(own_temporary_folder: Path) -> "Iterator[Postgres]":
    """The one server of the run; started at its first use."""
    if reason := peers.absence("postgres"):
        pytest.skip(reason)
    from .server import open_postgres

    own_temporary_folder.chmod(0o711)  # The server is another user's.
    with open_postgres() as server:
        yield server


@pytest.fixture
def own_postgres(own_temporary_folder: Path) -> "Iterator[Postgres]":
    """A server of the test's own, which it may stop."""
    from .server import open_postgres

    own_temporary_folder.chmod(0o711)
    with open_postgres() as server:
        yield server


@pytest.fixture
def postgres(running_postgres: "Postgres") -> "Postgres":
    """The server, for schemas of the test's own."""
    return running_postgres
