# SPDX-License-Identifier: Apache-2.0
"""Headers, sizes, names and words of the files."""

import ast
import re
from pathlib import Path

import pytest

from .tree import FOLDERS, ROOT, files, parsed, python_files, told

HEADER = "# SPDX-License-Identifier: Apache-2.0\n"
LINES_MAX = 400
ONE_AGGREGATE = "one aggregate: commands, events, table and decision read together"
ONE_PROTOCOL = "one protocol over one thing, whose short methods share its state"
ONE_COURSE = "one course of steps, whose order is the promise"
EXCUSED: dict[str, str] = {
    "adapters/docker_engine/engine.py": ONE_PROTOCOL,
    "adapters/docker_engine/sandbox.py": ONE_PROTOCOL,
    "domain/agent_sessions.py": ONE_AGGREGATE,
    "domain/claims.py": ONE_AGGREGATE,
    "domain/episodes.py": ONE_AGGREGATE,
    "domain/resources_sessions.py": ONE_AGGREGATE,
    "ports/provided/agent_sessions.py": ONE_PROTOCOL,
    "ports/provided/resources_sessions.py": ONE_PROTOCOL,
    "ports/provided/serve_sessions.py": ONE_PROTOCOL,
    "ports/provided/activate_harness.py": ONE_COURSE,
    "ports/provided/run_episode.py": ONE_COURSE,
}
"""Longer files, each with the reason why no seam was found."""

UNTRUE_WORDS = {
    "a path of one machine": r"/work/(?:main|shared)\b",
    "a registry's host": r"pypi\.org|pythonhosted|deb\.debian\.org|npmjs\.org|nodejs\.org/dist|ghcr\.io|quay\.io",
    "an unfinished place": r"\b(?:FIXME|XXX)\b",
}
VAGUE_PARTS = {"manager", "managers", "helper", "helpers", "util", "utils", "impl"}
VAGUE_NAMES = {"base", "data", "handle", "info", "process", "common", "misc"}
TWINS = {
    "box": "sandbox",
    "rollout": "episode",
    "trajectory": "episode",
    "backend": "provider",
}
"""Another word for a thing that the glossary has a word for."""
TWINS_ALLOWED = {"rollout_id"}

GLOSSARY = ROOT / "docs" / "GLOSSARY.md"
DESIGN = ROOT.parent / "shared" / "design" / "DESIGN.md"
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".cfg", ".json", ".sh", ""}


def glossary() -> list[str]:
    """Return the words of the glossary, a line each."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line.startswith("|")]
    return [word.strip() for _, word, *_ in rows[2:]]


@pytest.mark.parametrize("path", python_files(*FOLDERS, "tests"), ids=told)
def test_a_file_opens_with_its_licence_and_what_is_true_in_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8").removeprefix("#!/usr/bin/env python3\n")

    assert text.startswith(HEADER)
    assert ast.get_docstring(ast.parse(text))


def test_scripts_name_their_licence() -> None:
    scripts = [ROOT / "Makefile", *(ROOT / ".ci").iterdir()]

    assert all(HEADER in path.read_text(encoding="utf-8") for path in scripts)


def test_long_files_are_excused_with_a_reason() -> None:
    long = {
        told(path): lines
        for path in python_files(*FOLDERS)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }

    assert not {name: lines for name, lines in long.items() if name not in EXCUSED}
    assert not [name for name in EXCUSED if name not in long], "no longer long"
    assert all(EXCUSED.values())


@pytest.mark.parametrize("fault", UNTRUE_WORDS)
def test_no_file_holds(fault: str) -> None:
    pattern = re.compile(UNTRUE_WORDS[fault])
    found = [
        f"{told(path)}:{number}: {line.strip()}"
        for path in files()
        if path.suffix in TEXT_SUFFIXES and path != Path(__file__)
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if pattern.search(line)
    ]

    assert not found


def declared(path: Path) -> set[str]:
    """Return the names of the classes, functions and module of a file."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in ast.walk(parsed(path)) if isinstance(node, kinds)}
    return {name for name in (*names, path.stem) if not name.startswith("__")}


def words_of(name: str) -> list[str]:
    """Return the words of a name in either spelling, in lower case."""
    return re.findall(
        r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    )


def test_names_say_what_a_thing_is() -> None:
    vague = [
        f"{told(path)}: {name}"
        for path in python_files(*FOLDERS)
        for name in declared(path)
        if set(words_of(name)) & VAGUE_PARTS
        or name.lower() in VAGUE_NAMES
        or (name[0].isupper() and name.endswith("Error"))
    ]

    assert not vague


def test_one_thing_has_one_word() -> None:
    twins = [
        f"{told(path)}: {name} ({TWINS[word]} is the word)"
        for path in python_files(*FOLDERS)
        for name in declared(path) - TWINS_ALLOWED
        for word in words_of(name)
        if word in TWINS
    ]

    assert not twins


def test_the_glossary_has_one_line_for_each_word() -> None:
    words = glossary()

    assert words == sorted(set(words), key=str.lower)
    assert not set(words) & set(TWINS)


def test_the_glossary_has_the_words_of_the_design() -> None:
    if not DESIGN.exists():
        pytest.skip("the design page is not beside this checkout")
    table = DESIGN.read_text(encoding="utf-8").split("## 1. Words")[1].split("## 2.")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    words = {word.strip() for row in rows[2:] for word in row.split(",")}

    assert words <= set(glossary())
