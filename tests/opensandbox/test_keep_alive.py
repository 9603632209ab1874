# SPDX-License-Identifier: Apache-2.0
"""What keeps execd alive takes nothing else for it."""

import subprocess
from pathlib import Path

from livery.adapters.opensandbox.keep_alive import FIND


def found(folder: Path) -> str:
    """Return what is taken for the execd in `folder`."""
    script = f'folder={folder}\n{FIND}echo "$pid"'
    told = subprocess.run(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, check=True, text=True
    )
    return told.stdout.strip()


def test_an_execd_that_has_not_begun_is_not_found(tmp_path: Path) -> None:
    """Taken for it, the search itself would soon be gone, and a second one begun."""
    assert found(tmp_path) == ""


def test_an_execd_is_found_by_its_path(tmp_path: Path) -> None:
    program = tmp_path / "execd"
    program.write_text("#!/bin/sh\nread -r _\n")
    program.chmod(0o755)

    with subprocess.Popen([program], stdin=subprocess.PIPE) as execd:
        pid = found(tmp_path)

    assert pid == str(execd.pid)
