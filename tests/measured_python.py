# SPDX-License-Identifier: Apache-2.0
"""An interpreter that measures the worker scripts which it is given to run.

Worker scripts run as `python -I -S …`, with an environment that is not ours, so
coverage cannot begin by itself. While coverage is on, tests have this program
stand for the interpreter. Called with anything else it is the interpreter: a
grader's defences, say, are tested as they are.
"""

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

_WRAPPER = """\
#!/bin/sh
case "$1 $2 $3" in
  "-I -S -c") case "$4" in *'compile(text, "livery"'*) ours=yes ;; esac ;;
  "-I -S "*) if grep -q livery_program "$3" 2>/dev/null; then ours=yes; fi ;;
esac
if [ "$ours" ]; then
  shift 2
  exec {python} -I {measure} {data} "$@"
fi
exec {python} "$@"
"""

_MEASURE = '''\
"""Run `-c TEXT WORD…` or `FILE WORD…` as Python would, measured."""

import atexit
import os
import sys

import coverage

FORKS_MEASURED = 4  # Of one process; a worker that forks 500 times does the same each time.

data, *words = sys.argv[1:]
measured = coverage.Coverage(
    data_file=data,
    data_suffix=True,
    config_file=False,
    branch=True,
    source_pkgs=["livery_program"],
    messages=False,
)
measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
measured.start()


forks = 0


def count():
    global forks
    forks += 1


@atexit.register
def save():
    measured.stop()
    measured.save()


def leave(status, leave=os._exit):
    if forks <= FORKS_MEASURED:
        save()
    leave(status)


os.register_at_fork(before=count)
os._exit = leave

if words[0] == "-c":
    text, name = words[1], "<string>"
    sys.argv = ["-c", *words[2:]]
else:
    name = words[0]
    with open(name, "rb") as file:
        text = file.read()
    sys.argv = words
module = type(sys)("__main__")
vars(module)["__file__"] = name
sys.modules["__main__"] = module
exec(compile(text, name, "exec", dont_inherit=True), vars(module))
'''


def make(folder: Path, *, data: Path = ROOT / ".coverage") -> Path:
    """Write the program into `folder` and return its path."""
    measure = folder / "measure.py"
    measure.write_text(_MEASURE, encoding="utf-8")
    words = {
        "python": sys.executable,
        "measure": str(measure),
        "data": str(data),
    }
    quoted = {name: shlex.quote(word) for name, word in words.items()}
    python = folder / "python"
    python.write_text(_WRAPPER.format(**quoted), encoding="utf-8")
    python.chmod(0o755)
    return python
