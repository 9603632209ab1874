# SPDX-License-Identifier: Apache-2.0
"""What the tests of crash points share: one process that all of theirs are forked from."""

from collections.abc import Iterator

import pytest

from .forks import Forks, open_forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with open_forks() as forks:
        yield forks
