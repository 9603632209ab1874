# SPDX-License-Identifier: Apache-2.0
"""A look at the processes of this machine, past the worker's own code.

They are no children of the test: nothing but looking tells of their end.
"""

import secrets

import anyio
import psutil

LOOK_SECONDS = 0.02
SEEN_SECONDS_MAX = 10.0


def token() -> str:
    """Return a number of seconds that no other process sleeps for."""
    return str(secrets.randbelow(900_000_000) + 100_000_000)


def with_word(word: str) -> list[psutil.Process]:
    """Return the live processes that have `word` among their arguments."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if word in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # It ended, or became a zombie, while it was looked at.
    return found


async def until_there(word: str, *, count: int = 1) -> list[psutil.Process]:
    """Wait until so many processes have `word`, and return them."""
    with anyio.move_on_after(SEEN_SECONDS_MAX):
        while len(found := with_word(word)) < count:  # noqa: ASYNC110
            await anyio.sleep(LOOK_SECONDS)
        return found
    raise AssertionError(f"fewer than {count} processes with {word} came up")


async def until_gone(word: str) -> None:
    """Wait until no process has `word`."""
    with anyio.move_on_after(SEEN_SECONDS_MAX):
        while with_word(word):  # noqa: ASYNC110
            await anyio.sleep(LOOK_SECONDS)
        return
    raise AssertionError(f"still there: {with_word(word)}")
