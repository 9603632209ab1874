# SPDX-License-Identifier: Apache-2.0
"""Leaks: what a test must not leave behind.

A census counts this process's threads, child processes, open descriptors and
temporary files. After a test they are back to where they began, at the latest
`SETTLE_SECONDS_MAX` later. What a library opens once and keeps (`LAZY`) is
allowed. Tasks of the event loop are looked at in async tests.
"""

import asyncio
import functools
import gc
import inspect
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs

SETTLE_SECONDS_MAX = 3.0
SETTLE_STEP_SECONDS = 0.01

LAZY = ("/dev/null", "/dev/urandom", "/dev/random", "/proc/", "/sys/", "/usr/share/")
"""What a library opens at its first use and keeps, once in a process."""
LAZY_CHILDREN = (b"multiprocessing.resource_tracker",)


@attrs.frozen(kw_only=True)
class Census:
    """What this process holds at one moment, each with words to name it."""

    threads: dict[int, str]
    children: dict[int, str]
    descriptors: dict[tuple[int, str], str]
    temporary: dict[str, str]

    def surplus(self, before: "Census", *, kept: frozenset[str]) -> list[str]:
        """Return what is here and was not there before."""
        found: list[str] = []
        for kind in ("threads", "children", "descriptors", "temporary"):
            if kind in kept:
                continue
            now, then = getattr(self, kind), getattr(before, kind)
            found += [f"{kind}: {now[key]}" for key in now if key not in then]
        return found


def census() -> Census:
    """Count what this process holds now."""
    return Census(
        threads={
            thread.ident or 0: thread.name
            for thread in threading.enumerate()
            if thread.is_alive()
        },
        children=_children(),
        descriptors=_descriptors(),
        temporary={
            entry: f"{tempfile.gettempdir()}/{entry}"
            for entry in os.listdir(tempfile.gettempdir())
        },
    )


def settled_surplus(before: Census, *, kept: frozenset[str]) -> list[str]:
    """Return what stays surplus once garbage and endings had their time."""
    surplus = census().surplus(before, kept=kept)
    if not surplus:
        return []
    gc.collect()
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while surplus := census().surplus(before, kept=kept):
        if time.monotonic() > deadline:
            return surplus
        time.sleep(SETTLE_STEP_SECONDS)
    return []


def watching_tasks(
    test: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    """Return the async test with a look at the tasks that it leaves behind."""
    if getattr(test, "watches_tasks", False) or not inspect.iscoroutinefunction(test):
        return test

    @functools.wraps(test)
    async def watched(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        # What ends of itself may wait for a thread or a process on its way.
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while surplus := asyncio.all_tasks() - before:
            if time.monotonic() > deadline:
                left = ", ".join(sorted(task.get_name() for task in surplus))
                raise AssertionError(f"the test left tasks running: {left}")
            await asyncio.sleep(SETTLE_STEP_SECONDS)

    watched.watches_tasks = True  # type: ignore[attr-defined]
    return watched


def _children() -> dict[int, str]:
    pids = " ".join(_read(path) for path in Path("/proc/self/task").glob("*/children"))
    told = {int(pid): _command_line(int(pid)) for pid in pids.split()}
    return {
        pid: f"{pid} {line.decode(errors='replace')}"
        for pid, line in told.items()
        if not any(lazy in line for lazy in LAZY_CHILDREN)
    }


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # The thread ended while it was looked at.


def _command_line(pid: int) -> bytes:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"(gone)"
    return line.replace(b"\0", b" ").strip() or b"(ended, not waited for)"


def _descriptors() -> dict[tuple[int, str], str]:
    found: dict[tuple[int, str], str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # The one that listed the folder.
        if not target.startswith(LAZY) and "/.hypothesis/" not in target:
            found[int(name), target] = f"{name} -> {target}"
    return found
