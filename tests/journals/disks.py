# SPDX-License-Identifier: Apache-2.0
"""Disks that are soon full, where one may be mounted."""

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, *, mebibytes: int = 1) -> Generator[Path]:
    """Mount a disk of this size, or skip the test."""
    place.mkdir()
    size = f"size={mebibytes}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "livery-test", str(place)]
    mounted = shutil.which("mount") and subprocess.run(
        mount, capture_output=True, text=True, check=False
    )
    if not mounted or mounted.returncode:
        reason = mounted.stderr.strip() if mounted else "there is no mount"
        pytest.skip(f"a disk of its own cannot be mounted: {reason}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
