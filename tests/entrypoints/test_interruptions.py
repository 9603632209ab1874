# SPDX-License-Identifier: Apache-2.0
"""Signals are heeded also while nothing but the cleaning up is left to do."""

import signal
import subprocess
import sys

import pytest

PATIENCE_SECONDS = 60.0
PROGRAM = """
import sys
import anyio
from livery.entrypoints.command_line.interruptions import until_stopped

async def work(signals):
    print("ready", flush=True)
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(SECONDS)

def say(text):
    print(text, flush=True)

print(anyio.run(until_stopped, work, say))
"""


def begun(seconds: float, within: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [*within, sys.executable, "-c", PROGRAM.replace("SECONDS", str(seconds))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_second_signal_while_the_first_one_is_cleaned_up_after_is_told() -> None:
    with begun(seconds=1000) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert "Stopping" in first
    assert "`livery claims reap`" in rest
    assert process.returncode == 130


def test_a_terminal_that_is_closed_stops_in_order_however_often_it_says_so() -> None:
    with begun(seconds=1) as process:
        process.send_signal(signal.SIGHUP)
        assert process.stdout
        first = process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert "Stopping" in first
    assert rest == "None\n"
    assert process.returncode == 0


def test_work_that_is_to_outlast_its_terminal_does() -> None:
    """As `nohup` begins it."""
    with begun(0, within=("sh", "-c", 'trap "" HUP; exec "$@"', "sh")) as process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert said.splitlines()[-1] == "None"


def test_work_that_was_stopped_has_no_result() -> None:
    with begun(seconds=0) as process:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert said.splitlines()[-1] == "None"
    assert process.returncode == 0
