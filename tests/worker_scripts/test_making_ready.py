# SPDX-License-Identifier: Apache-2.0
"""A sandbox is made ready by several at once: each finds what another has made."""

import os
import subprocess
from pathlib import Path

from livery.adapters.worker_scripts import MAKE_READY

from .raced_mkdir import path_with_raced_mkdir


def test_a_folder_that_another_has_made_meanwhile_is_taken(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    words = (tmp_path / "work", f"{os.getuid()}:{os.getgid()}", scratch, "", "")

    told = subprocess.run(
        ["/bin/sh", "-c", MAKE_READY, "sandbox", *map(str, words), "echo", "on"],
        env={"PATH": path_with_raced_mkdir(tmp_path / "bin")},
        capture_output=True,
        check=True,
        text=True,
    )

    assert told.stdout.splitlines()[0].startswith("ready ")
    assert told.stdout.splitlines()[-1] == "on"
    assert scratch.stat().st_mode & 0o777 == 0o700
