# SPDX-License-Identifier: Apache-2.0
"""The sample distribution's metadata, as an installer would write it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "sample_distribution"


def install(folder: Path, *, name: str, entries: Mapping[str, str]) -> None:
    """Write the distribution's metadata into a folder for `sys.path`.

    `entries` are further entry points, group and name joined by a slash.
    """
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text())["project"]
    info = folder / f"{name.replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n"
    )
    groups: dict[str, dict[str, str]] = {
        group: dict(found) for group, found in project["entry-points"].items()
    }
    for key, value in entries.items():
        group, _, entry = key.partition("/")
        groups.setdefault(group, {})[entry] = value
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in found.items())
            for group, found in groups.items()
        )
    )
