# SPDX-License-Identifier: Apache-2.0
"""What only counts the sandbox's time is left; whoever only looks like it is not."""

import os
import subprocess
from pathlib import Path

import pytest

from livery.adapters.worker_scripts import program
from livery.adapters.worker_scripts.stopper import FIRST, is_pulse

from .. import peers


def test_the_first_process_s_own_sleep_is_left() -> None:
    assert is_pulse(b"sleep", FIRST, FIRST)


@pytest.mark.parametrize(
    ("program", "parent", "session"),
    [
        (b"sleep", FIRST, 43),  # An agent's, whose parent has ended.
        (b"sleep", 43, FIRST),
        (b"evil", FIRST, FIRST),
    ],
    ids=["of another session", "of another parent", "another program"],
)
def test_every_other_process_is_ended(
    program: bytes, parent: int, session: int
) -> None:
    assert not is_pulse(program, parent, session)


@pytest.mark.peer("namespaces")
@pytest.mark.parametrize(
    ("mark", "told"),
    [
        ("", '{"state": "unmarked", "left": []}\nother\nmarked\n'),
        ("ours", '{"state": "still", "left": []}\nother\n'),
    ],
)
def test_without_a_mark_of_its_own_it_ends_nobody(
    tmp_path: Path, python: str, mark: str, told: str
) -> None:
    # In a namespace: one that ends too much has nobody else's processes to end.
    script = tmp_path / "stopper.py"
    script.write_bytes(program("stopper"))
    shell = """
        sleep 60 & other=$!
        LIVERY_SANDBOX=ours sleep 60 & marked=$!
        if [ -n "$3" ]; then export LIVERY_SANDBOX="$3"; fi
        "$1" -I -S "$2" LIVERY_SANDBOX
        lives() { read -r _ _ state _ <"/proc/$1/stat" && [ "$state" != Z ]; }
        lives $other && echo other
        lives $marked && echo marked
        exit 0
    """

    ended = subprocess.run(
        [*peers.namespaces(), "/bin/sh", "-c", shell, "sh", python, script, mark],
        capture_output=True,
        text=True,
        timeout=60.0,
        env={"PATH": os.environ["PATH"]},
    )

    assert ended.stdout == told, ended
