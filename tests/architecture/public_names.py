# SPDX-License-Identifier: Apache-2.0
"""The public names of domain and ports, with what their users rely on.

`python -m tests.architecture.public_names --write` renews docs/public-names.txt;
a change of interface is then seen as a change of that file.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from .tree import ROOT, module_name, parsed, python_files

LIST = ROOT / "docs" / "public-names.txt"
HEAD = """\
# What domain and ports offer. Renewed by
# python -m tests.architecture.public_names --write
"""


def listing() -> str:
    """Return the file's text as the sources would have it."""
    blocks = [HEAD.rstrip()]
    for path in python_files("domain", "ports"):
        if lines := list(_names(path)):
            blocks.append("\n".join((module_name(path), *lines)))
    return "\n\n".join(blocks) + "\n"


def _names(path: Path) -> Iterator[str]:
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            yield f"  class {node.name}({bases})" if bases else f"  class {node.name}"
            for member in node.body:
                yield from (f"    {line}" for line in _plain(member))
        else:
            yield from (f"  {line}" for line in _plain(node))


def _plain(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if not name.startswith("_") or name == "__call__":
                word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                yield f"{word} {name}({ast.unparse(node.args)}){returns}"
        case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
            yield f"{name}: {ast.unparse(node.annotation)}"
        case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
            yield name
        case _:
            return


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        LIST.write_text(listing(), encoding="utf-8")
    else:
        print(listing(), end="")
