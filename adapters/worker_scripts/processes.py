# SPDX-License-Identifier: Apache-2.0
"""The trees of processes that grow from programs.

Whoever keeps a tree is its subreaper: a process that loses its parent becomes
the keeper's child, so the tree is gone exactly when the keeper has no child
left. Where the kernel or Python cannot do that, the tree is found in /proc: by
descent and by the marker that every process of it carries in its environment.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from types import FrameType
from typing import Callable, NamedTuple, Protocol

MARKER = b"LIVERY_TREE"
DRAIN_SECONDS = 0.5
KILL_SECONDS = 10.0
"""How long killed processes are waited for before they are reported instead."""

_KILL_PASS_SECONDS = 0.02
_TURN_SECONDS_MAX = 3600.0
_STOP_PASSES_MAX = 20
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


class Seen(NamedTuple):
    """What /proc tells of a process."""

    parent: int
    state: str
    begun: int
    """Clock ticks after the machine's start: a number that comes back has another."""


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; False where that cannot be had."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def initial_environment() -> dict[bytes, bytes]:
    """Return the environment this process was given, before Python touched it."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [item.partition(b"=") for item in file.read().split(b"\0") if item]
    except OSError:
        return dict(os.environb)
    return {name: value for name, _, value in pairs}


def wake_on_child() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, _wake)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _wake(number: int, interrupted: FrameType | None) -> None:
    """Do nothing: the number in the descriptor is what wakes."""


def close_all_but(kept: set[int]) -> None:
    """Close every descriptor above 2 that is not in `kept`."""
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = list(
            range(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 65536))
        )
    for descriptor in found:
        if descriptor > 2 and descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                pass  # The one that listed the folder is closed already.


def process_table() -> dict[int, Seen]:
    """Return every process that is seen."""
    table: dict[int, Seen] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = look_at(int(name))
            if seen is not None:
                table[int(name)] = seen
    return table


def look_at(pid: int) -> Seen | None:
    """Return what is told of a process, None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return Seen(parent=int(fields[1]), state=fields[0].decode(), begun=int(fields[19]))


def is_alive(seen: Seen | None) -> bool:
    """Tell whether what `look_at` returned is a process that can still act."""
    return seen is not None and seen.state not in "ZXx"


def descendants(roots: set[int], table: dict[int, Seen]) -> set[int]:
    """Return every process below `roots`, the ended ones included."""
    children: dict[int, list[int]] = {}
    for pid, seen in table.items():
        children.setdefault(seen.parent, []).append(pid)
    found: set[int] = set()
    open_ends = list(roots)
    while open_ends:
        for child in children.get(open_ends.pop(), ()):
            if child not in found and child not in roots:
                found.add(child)
                open_ends.append(child)
    return found


def marked(mark: bytes, table: dict[int, Seen]) -> set[int]:
    """Return the processes whose first environment held `mark` ("NAME=value")."""
    found: set[int] = set()
    for pid in table:
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.add(pid)
        except OSError:
            continue  # gone, or another account's, which is none of ours
    return found


def send(number: int, pids: set[int]) -> None:
    """Send a signal to each; the ones that are gone are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # gone; or not ours to end, which the caller sees: it stays


def stop_and_kill(living: Callable[[], set[int]]) -> set[int]:
    """Kill all that `living` finds; stop them first, so that none forks away."""
    seen: set[int] = set()
    for _ in range(_STOP_PASSES_MAX):
        fresh = living() - seen
        if not fresh:
            break
        send(signal.SIGSTOP, fresh)
        seen |= fresh
    send(signal.SIGKILL, seen)
    return seen


class Outlets(Protocol):
    """What has to be read while the tree is waited for, or it could not end."""

    def descriptors(self) -> list[int]:
        """Return the ones that are open."""
        ...

    def read(self, descriptor: int) -> None:
        """Take what one holds."""
        ...


class Tree:
    """The processes below this one, seen through their whole life."""

    def __init__(
        self,
        leader: int,
        mark: bytes,
        wake: int,
        *,
        subreaper: bool,
        outlets: Outlets | None = None,
    ) -> None:
        self.leader_status: int | None = None
        self._leader = leader
        self._mark = mark
        self._wake = wake
        self._subreaper = subreaper
        self._outlets = outlets
        self._childless = False

    def turn(self, seconds: float, *others: int) -> list[int]:
        """Wait, at most so long, until something happens; return who of `others`.

        Ended children and what the outlets hold are taken in.
        """
        poller = select.poll()
        outlets = self._outlets.descriptors() if self._outlets else []
        for descriptor in (self._wake, *outlets, *others):
            poller.register(descriptor, select.POLLIN)
        # poll counts in an int of milliseconds: a wait of years is cut up.
        pause = max(0.0, min(seconds, _TURN_SECONDS_MAX)) * 1000.0 + 1
        ready = [descriptor for descriptor, _ in poller.poll(pause)]
        if self._wake in ready:
            drain(self._wake)
        for descriptor in outlets:
            if self._outlets is not None and descriptor in ready:
                self._outlets.read(descriptor)
        self.reap()
        return [descriptor for descriptor in others if descriptor in ready]

    def reap(self) -> None:
        """Take in every child that has ended."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    self._childless = False
                    return
                if pid == self._leader:
                    self.leader_status = status
        except ChildProcessError:
            self._childless = True

    def living(self) -> set[int]:
        """Return the processes of the tree that can still act."""
        table = process_table()
        found = descendants({os.getpid()}, table)
        if not self._subreaper:
            adopted = marked(self._mark, table)
            found |= adopted | descendants(adopted, table)
        return {pid for pid in found - {os.getpid()} if is_alive(table.get(pid))}

    def is_gone(self) -> bool:
        """Tell whether nothing of the tree is left; what has ended is reaped."""
        self.reap()
        if self._subreaper:
            return self._childless
        return self._childless and not self.living()

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the tree is gone, at most so long."""
        until = time.monotonic() + seconds
        while not self.is_gone():
            left = until - time.monotonic()
            if left <= 0:
                return False
            # A child's end wakes us; the scan of the fallback has to look again.
            self.turn(left if self._subreaper else min(left, _KILL_PASS_SECONDS))
        return True

    def end(self, grace_seconds: float) -> bool:
        """End the tree: ask, wait, kill; tell whether it was seen gone."""
        if self.is_gone():
            return True
        asked = self.living()
        send(signal.SIGTERM, asked)
        send(signal.SIGCONT, asked)
        if self.wait_gone(grace_seconds):
            return True
        until = time.monotonic() + KILL_SECONDS
        while time.monotonic() < until:
            stop_and_kill(self.living)
            if self.wait_gone(_KILL_PASS_SECONDS):
                return True
        return False


def drain(wake: int) -> None:
    """Empty the descriptor of `wake_on_child`."""
    try:
        while len(os.read(wake, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass
