# SPDX-License-Identifier: Apache-2.0
"""State diagrams, drawn from the tables of transitions.

`python -m tests.architecture.diagrams` tells whether the pages in docs/diagrams/ say
what the tables say; `--write` renews them. A test compares, so they stay true.
"""

import re
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType

from livery.domain import agent_sessions, claims, episodes, resources_sessions, runtimes

FOLDER = Path(__file__).parents[2] / "docs" / "diagrams"
MODULES = (agent_sessions, claims, episodes, resources_sessions, runtimes)
BEGINNING = "absent"


def pages() -> dict[str, str]:
    """Return file name → text, for every module with a table."""
    return {f"{_name(module)}.md": _page(module) for module in MODULES}


def stale() -> list[str]:
    """Return the files that do not say what the tables say, or should not be there."""
    wanted = pages()
    there = {path.name for path in FOLDER.glob("*.md")}
    return sorted(
        name
        for name in wanted.keys() | there
        if name not in wanted or name not in there or _read(name) != wanted[name]
    )


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _name(module: ModuleType) -> str:
    return module.__name__.rsplit(".", 1)[-1]


def _page(module: ModuleType) -> str:
    doc = module.__doc__
    assert doc is not None, "a module opens by saying what is true in it"
    first, _, about = doc.strip().partition("\n")
    title, _, sentence = first.partition(": ")
    lines = [
        f"# {title}",
        "",
        f"<!-- Drawn from livery.domain.{_name(module)}: `python -m"
        " tests.architecture.diagrams --write` renews it. -->",
        "",
        sentence[:1].upper() + sentence[1:],
        "",
        about.strip(),
        "",
        "```mermaid",
        *_diagram(module),
        "```",
        "",
    ]
    return "\n".join(lines)


def _diagram(module: ModuleType) -> list[str]:
    lines = ["stateDiagram-v2"]
    (phases,) = {type(phase) for phase in module.TRANSITIONS.values()}
    lines += [
        f'    state "{phase}" as {_state(phase)}'
        for phase in phases
        if phase != BEGINNING and _state(phase) != phase
    ]
    arrows: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (before, event), after in module.TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(_words(event))
    for (before, after), events in arrows.items():
        told = ", ".join(events)
        lines.append(f"    {_state(before)} --> {_state(after)}: {told}")
    leaving = {before for before, _ in module.TRANSITIONS}
    lines += [f"    {_state(each)} --> [*]" for each in phases if each not in leaving]
    return lines


def _state(phase: StrEnum) -> str:
    return "[*]" if phase == BEGINNING else str(phase).replace(" ", "_")


def _words(event: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", event.__name__).lower()


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if arguments == ["--write"]:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in stale():
            if name in pages():
                (FOLDER / name).write_text(pages()[name], encoding="utf-8")
            else:
                (FOLDER / name).unlink()
    for name in stale():
        print(f"docs/diagrams/{name} does not say what its table says.")
    return 1 if stale() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
