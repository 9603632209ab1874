# SPDX-License-Identifier: Apache-2.0
"""A runtime is opened by several at once: each finds what another has made."""

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livery.adapters.agent_sandbox import opening

from ..worker_scripts.raced_mkdir import path_with_raced_mkdir

SCRIPT = str(vars(opening)["_OPEN"])


@pytest.fixture
def key() -> Iterator[str]:
    """What tells the folders of this test; its scratch is taken away again."""
    key = secrets.token_hex(6)
    yield key
    for parent in ("/tmp", "/var/tmp", "/dev/shm"):
        scratch = Path(parent, f".run-{key}")
        if scratch.exists():
            scratch.rmdir()


def test_folders_that_another_has_made_meanwhile_are_taken(
    tmp_path: Path, key: str
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    words = (str(base / "work"), key, "sh", "porter.py", "no", "/none")

    def opened(path: str) -> list[str]:
        return subprocess.run(
            ["/bin/sh", "-c", SCRIPT, "sandbox", *words],
            cwd=base,
            env={"PATH": path},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout.splitlines()

    second = opened(path_with_raced_mkdir(tmp_path / "bin"))
    later = opened("/usr/bin:/bin")

    assert second == ["ready", f"/tmp/.run-{key}", f"{base}/.livery-{key}", "no", "no"]
    assert later == second, "all have one scratch"
