# SPDX-License-Identifier: Apache-2.0
"""The sample distribution, installed for one test."""

import importlib
import sys
from collections.abc import Callable, Iterator

import pytest

from ..entrypoints.conftest import livery, state
from .installing import SAMPLE, install

__all__ = ["livery", "state"]

Install = Callable[..., None]


@pytest.fixture
def installed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Install]:
    """Give what installs the sample under a name, as often as is wanted."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(SAMPLE))

    def installing(name: str = "livery-sample", **entries: str) -> None:
        folder = tmp_path_factory.mktemp("installed")
        install(folder, name=name, entries=entries)
        monkeypatch.syspath_prepend(str(folder))

    yield installing
    for module in set(sys.modules) - before:
        if module.startswith("livery_sample"):
            del sys.modules[module]
    importlib.invalidate_caches()
