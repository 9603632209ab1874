# SPDX-License-Identifier: Apache-2.0
"""The tree on disk and the tree that is imported stay one."""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path

import pytest

from .tree import FOLDERS, ROOT, project


def test_the_links_say_what_the_wheel_says() -> None:
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    links = {
        path.name: os.path.normpath(path.parent / os.readlink(path))
        for path in (ROOT / ".editable" / "livery").iterdir()
    }

    assert links == {folder: str(ROOT / folder) for folder in FOLDERS}
    assert wheel["only-include"] == list(FOLDERS)
    assert wheel["sources"] == {folder: f"livery/{folder}" for folder in FOLDERS}


def test_links_are_stored_as_links() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--stage", ".editable"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()

    assert len(listed) == len(FOLDERS)
    assert all(line.startswith("120000 ") for line in listed)


def test_nobody_takes_the_shared_name_for_a_body() -> None:
    assert not (ROOT / ".editable" / "livery" / "__init__.py").exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_says_that_it_is_typed(folder: str) -> None:
    assert (ROOT / folder / "py.typed").is_file()


def test_every_folder_of_modules_is_a_package() -> None:
    missing = [
        str(folder.relative_to(ROOT))
        for name in FOLDERS
        for folder in {path.parent for path in (ROOT / name).rglob("*.py")}
        if not (folder / "__init__.py").is_file()
    ]

    assert not missing


def test_the_sdist_names_what_the_wheel_needs() -> None:
    sdist = project()["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]

    assert set(FOLDERS) <= set(sdist)
    assert all((ROOT / name).exists() for name in sdist)


def test_the_version_has_one_home() -> None:
    version = project()["project"]["version"]

    assert re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version)
    assert importlib.metadata.version("livery") == version


def test_the_base_install_brings_no_provider() -> None:
    needed = {
        re.split(r"[^A-Za-z0-9_-]", requirement)[0]
        for requirement in project()["project"]["dependencies"]
    }

    assert needed == {"anyio", "attrs", "cattrs", "click", "httpx", "rich"}


def test_the_licence_is_the_one_that_is_named() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert project()["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_what_the_makefile_says_is_what_is_demanded() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    least = re.search(r"PYTHON_LEAST := (\S+)", makefile)

    assert least
    assert project()["project"]["requires-python"] == f">={least[1]}"


def test_continuous_integration_can_be_started() -> None:
    scripts = [Path(".ci/run"), Path(".ci/make-base-image")]

    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)
