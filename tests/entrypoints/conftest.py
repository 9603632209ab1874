# SPDX-License-Identifier: Apache-2.0
"""Command lines run in a folder of their own, with a state folder of their own."""

from pathlib import Path

import pytest

from .command_lines import InProcess, Livery


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "home" / "livery"


@pytest.fixture
def livery(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    state: Path,
) -> Livery:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent))
    monkeypatch.delenv("LIVERY_IMAGE", raising=False)
    return InProcess(capsys, state)
