# SPDX-License-Identifier: Apache-2.0
"""A mkdir that always comes second: another has made the folder since it was looked."""

import shutil
from pathlib import Path


def path_with_raced_mkdir(folder: Path) -> str:
    """Return a PATH whose mkdir is that one; `folder` is where it is put."""
    real = shutil.which("mkdir")
    assert real is not None, "a POSIX system has one"
    folder.mkdir()
    program = folder / "mkdir"
    program.write_text(f'#!/bin/sh\n{real} "$@"\nexec {real} "$@"\n')
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"
