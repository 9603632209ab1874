# SPDX-License-Identifier: Apache-2.0
"""A task with eight checks of which two pass, and the model that mends it or does not."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from livery.adapters.runtime_cache import RuntimeCache, cache_path
from livery.adapters.runtime_cache.cache import Entry

from ..harnesses.claude_code.scripted_model import Choice, Turn

KEY: Final = "LIVERY_TEST_MODEL_KEY"
"""Names the environment variable with the real credential."""
REAL: Final = "sk-real-M4rk3d-credential"
FILES: Final[Mapping[str, str]] = {
    "words.py": (
        "def first(text):\n    return text[0]\n\n\n"
        "def last(text):\n    return text[-1]\n\n\n"
        "def upper(text):\n    return text\n\n\n"
        "def double(text):\n    return text\n"
    ),
    "run.sh": "#!/bin/sh\necho ran\n",
}
CHECKS: Final = """\
import os, subprocess, sys

mark = sys.stdin.readline().strip()
CHECKS = [
    "import words; assert words.first('abc') == 'a'",
    "import words; assert words.last('abc') == 'c'",
    "import words; assert words.upper('a') == 'A'",
    "import words; assert words.double('a') == 'aa'",
    "assert open('greeting.txt').read() == 'hello' + chr(10)",
    "import sums; assert sums.total([1, 2]) == 3",
    "import sums; assert sums.largest([1, 3, 2]) == 3",
    "import os; assert os.access('run.sh', os.X_OK)",
]
passed = 0
for check in CHECKS:
    words = [sys.executable, "-c", "import sys; sys.path.insert(0, '.'); " + check]
    quiet = subprocess.DEVNULL
    passed += not subprocess.run(words, stdin=quiet, stdout=quiet, stderr=quiet).returncode
print(passed, "of", len(CHECKS), "checks pass")
print(mark)
sys.exit(passed != len(CHECKS))
"""
MEND: Final = "Mend it so that all eight checks pass."
IDLE: Final = "Do nothing."
BREAK: Final = "Ask a model that fails."
TOOLS: Final = ("Bash", "Write", "Write", "Read", "Edit")


def model_at(workdir: str, *before: Turn) -> Choice:
    """Return the model that does what the prompt names, in a workspace at `workdir`."""
    edit = {
        "file_path": f"{workdir}/words.py",
        "old_string": "upper(text):\n    return text\n\n\ndef double(text):\n    return text",
        "new_string": (
            "upper(text):\n    return text.upper()\n\n\n"
            "def double(text):\n    return text * 2"
        ),
    }
    sums = (
        "def total(of):\n    return sum(of)\n\n\ndef largest(of):\n    return max(of)\n"
    )
    mending: tuple[Turn, ...] = (
        *before,
        ("Bash", {"command": "chmod +x run.sh && ./run.sh"}),
        ("Write", {"file_path": f"{workdir}/greeting.txt", "content": "hello\n"}),
        ("Write", {"file_path": f"{workdir}/sums.py", "content": sums}),
        ("Read", {"file_path": f"{workdir}/words.py"}),
        ("Edit", edit),
        "All eight are mended.",
    )

    def choice(body: dict[str, Any]) -> Turn:
        messages = body["messages"]
        asked = str(messages[0])
        if BREAK in asked:
            return 500
        if MEND not in asked:
            return "I leave it as it is."
        return mending[sum(message["role"] == "assistant" for message in messages)]

    return choice


def row(name: str, prompt: str) -> dict[str, Any]:
    """Return the row of a file of tasks."""
    return {
        "task_id": {"taskset": "mending", "task_id": name},
        "task_input": {
            "responses_create_params": {"input": prompt},
            "task_data": {
                "files": FILES,
                "grader": {
                    "files": {".grader/checks.py": CHECKS},
                    "command": ["python3", "-I", ".grader/checks.py"],
                    "timeout_seconds": 60,
                },
            },
        },
    }


def options_of(program: Path) -> dict[str, str]:
    """Return the options that bring this program: the cache's own by its version.

    Another is the file of this host that it is.
    """
    import hashlib
    import subprocess

    cached = [
        one
        for one in RuntimeCache(cache_path()).entries()
        if isinstance(one, Entry) and os.path.samefile(one.program, program)
    ]
    if cached:
        return {"claude_code_version": cached[0].record.version}
    told = subprocess.run([program, "--version"], capture_output=True, check=True)
    with program.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "claude_code_version": told.stdout.decode().split(" ")[0],
        "sandbox_local_executable_path": str(program),
        "sandbox_executable_sha256": digest,
    }


def settings(
    url: str, options: Mapping[str, str], *, image: str, more: str = ""
) -> str:
    """Return a `livery.toml` with the model at `url` and sandboxes without a network."""
    lines = "".join(f'{name} = "{value}"\n' for name, value in options.items())
    return f"""
[model]
url = "{url}"
credential = {{env = "{KEY}"}}

[run]
harness = "claude_code"
sandbox = "docker"

[harness.claude_code]
turn_timeout_seconds = 600

[harness.claude_code.options]
model = "model-1"
bare = false
model_retries = 0
{lines}
[sandbox.docker]
image = "{image}"
network = "none"
{more}
"""
