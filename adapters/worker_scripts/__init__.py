# SPDX-License-Identifier: Apache-2.0
"""The programs of ours that run inside a sandbox, as text to be put there.

Each is written as modules of this package and handed out as one file that needs
nothing but Python 3.8 or newer on Linux. The modules are clean for that Python;
nothing else of Livery is imported by them.
"""

import ast
import functools
from importlib.resources import files

from .making_ready import COUNT_OOM_KILLS, MAKE_READY

__all__ = [
    "COUNT_OOM_KILLS",
    "MAKE_READY",
    "PROGRAMS",
    "PYTHON_OLDEST",
    "bootstrap",
    "keyed",
    "program",
]

PYTHON_OLDEST = (3, 8)
PROGRAMS = (
    "worker",
    "supervisor",
    "archive",
    "relay",
    "mailbox",
    "porter",
    "runtimes",
    "stopper",
    "tool_servers",
    "door",
)

_BUNDLE = """\
# SPDX-License-Identifier: Apache-2.0
import gc
import sys
import types

if sys.version_info < {oldest!r}:
    sys.exit("Python {oldest_told} or newer is needed, this is " + sys.version.split()[0])


def load(name, source):
    module = types.ModuleType("livery_program." + name)
    module.__package__ = "livery_program"
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(source, "livery/" + name + ".py", "exec", dont_inherit=True), module.__dict__)
    return module


package = types.ModuleType("livery_program")
package.__path__ = []
sys.modules["livery_program"] = package
gc.disable()  # Nothing of what is loaded here is ever garbage.
{loads}
main = load({name!r}, {source!r}).main
gc.enable()
sys.exit(main(sys.argv[1:]))
"""

_BOOTSTRAP = """\
import os
text = b""
while len(text) < {length}:
    piece = os.read(0, {length} - len(text))
    if not piece:
        raise SystemExit(3)
    text += piece
exec(compile(text, "livery", "exec"))
"""

_FROM_FILE = """\
import os, sys
with open(sys.argv[1], "rb") as file:
    key, text = file.read().split(b"\\n", 1)
os.unlink(sys.argv[1])
sys.argv = ["livery", key.decode()]
exec(compile(text, "livery", "exec"))
"""


@functools.cache
def program(name: str) -> bytes:
    """Return the program `name` of `PROGRAMS` as one file of Python."""
    assert name in PROGRAMS, f"there is no worker script {name!r}"
    *parts, main = _with_parts(name)
    loads = "\n".join(f"load({part!r}, {_source(part)!r})" for part in parts)
    text = _BUNDLE.format(
        oldest=PYTHON_OLDEST,
        oldest_told=".".join(map(str, PYTHON_OLDEST)),
        loads=loads,
        name=main,
        source=_source(main),
    )
    return text.encode()


def bootstrap(
    python: str, *options: str, name: str = "worker"
) -> tuple[tuple[str, ...], bytes]:
    """Return the argv that starts a program, and what its stream holds first.

    The first bytes are the program itself. What it says begins with its hello;
    nothing else is to be sent before that.
    """
    text = program(name)
    starter = _BOOTSTRAP.format(length=len(text))
    return (python, "-I", "-S", "-c", starter, *options), text


def keyed(
    python: str, path: str, *, name: str, key: str
) -> tuple[tuple[str, ...], bytes]:
    """Return the argv that starts a program with a key, and the file it starts from.

    The file is put down at `path` for that one start, which removes it: so the key
    is in no command line, and in no variable.
    """
    assert "\n" not in key
    content = key.encode() + b"\n" + program(name)
    return (python, "-I", "-S", "-c", _FROM_FILE, path), content


def _source(name: str) -> str:
    return files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")


def _with_parts(name: str) -> list[str]:
    """Return `name` and the modules that it imports, each after its own."""
    found: list[str] = []
    for node in ast.walk(ast.parse(_source(name))):
        if not isinstance(node, ast.ImportFrom) or node.level != 1:
            continue
        names = [node.module] if node.module else [alias.name for alias in node.names]
        for imported in names:
            found += [part for part in _with_parts(imported) if part not in found]
    return [*found, name]
