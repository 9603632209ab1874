# SPDX-License-Identifier: Apache-2.0
"""The keeper: one small process beside each command, which ends its whole tree.

It starts the command, waits for its end, its deadline or the word to stop,
ends what is left of the tree, sees it gone and reports once. When the worker is
gone it does the same and reports to nobody.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import NamedTuple, NoReturn

from .launching import NotStarted, Program, start
from .processes import (
    DRAIN_SECONDS,
    Tree,
    become_subreaper,
    close_all_but,
    look_at,
    wake_on_child,
)

LET_LIVE_SECONDS = 10.0
"""How long the worker may take to note which processes a command detached."""


class Order(NamedTuple):
    """What a keeper is asked for."""

    program: Program
    mark: bytes
    timeout_seconds: float
    grace_seconds: float
    detaches: bool
    open_files: tuple[int, int]
    subreaper: bool


class Ready(NamedTuple):
    """What a keeper has before its command."""

    subreaper: bool
    wake: int
    """As of `wake_on_child`."""


def keep(
    order: Order, streams: tuple[int, int, int], worker: socket.socket
) -> NoReturn:
    """Be the keeper of one command; called in a fork of the worker."""
    try:
        kept = {*streams, worker.fileno()}
        ready = get_ready(kept, subreaper=order.subreaper)
        worker.setblocking(True)
        serve(order, streams, worker, ready)
    finally:
        os._exit(1)


def get_ready(kept: set[int], *, subreaper: bool) -> Ready:
    """Become what can serve; of the descriptors above 2, the `kept` alone stay open."""
    os.setsid()
    close_all_but(kept)
    return Ready(subreaper=subreaper and become_subreaper(), wake=wake_on_child())


def serve(
    order: Order, streams: tuple[int, int, int], worker: socket.socket, ready: Ready
) -> NoReturn:
    """Do what a keeper is for, and end."""
    status = 1
    try:
        report = _report(order, streams, worker, ready)
        try:
            worker.sendall(json.dumps(report).encode() + b"\n")
            if report.get("let_live"):
                worker.settimeout(LET_LIVE_SECONDS)
                worker.recv(1)
        except OSError:
            pass  # The worker is gone: nobody is left to be told.
        status = 0
    finally:
        os._exit(status)


def _report(
    order: Order, streams: tuple[int, int, int], worker: socket.socket, ready: Ready
) -> dict[str, object]:
    begun = time.monotonic()
    try:
        leader = start(order.program, streams, open_files=order.open_files)
    except NotStarted as refusal:
        return {"how": "not_started", "reason": str(refusal), "seconds": 0.0}
    for descriptor in streams:
        os.close(descriptor)
    tree = Tree(leader, order.mark, ready.wake, subreaper=ready.subreaper)
    how = _await_end(tree, worker, begun + order.timeout_seconds)
    report: dict[str, object] = {
        "how": how,
        "seconds": time.monotonic() - begun,
        "status": tree.leader_status,
    }
    if how == "ended" and order.detaches:
        report["let_live"] = _with_start_times(tree.living())
        return report
    if how == "ended" and not tree.wait_gone(DRAIN_SECONDS):
        report["leftovers"] = len(tree.living())
    if not tree.end(order.grace_seconds):
        report["alive"] = sorted(tree.living())
    return report


def _await_end(tree: Tree, worker: socket.socket, deadline: float) -> str:
    tree.reap()
    while tree.leader_status is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return "timed_out"
        if tree.turn(left, worker.fileno()) and tree.leader_status is None:
            return "stopped"
    return "ended"


def _with_start_times(pids: set[int]) -> list[tuple[int, int]]:
    found = [(pid, look_at(pid)) for pid in sorted(pids)]
    return [(pid, seen.begun) for pid, seen in found if seen is not None]


def how_it_ended(report: dict[str, object]) -> tuple[str, int | None, str]:
    """Return the word, the number and the reason that the host is told."""
    if report["how"] == "not_started":
        return "not_started", None, str(report["reason"])
    alive = report.get("alive")
    if alive:
        return "unknown", None, "processes %s could not be ended" % (alive,)
    if report["how"] == "timed_out":
        return "timed_out", None, ""
    status = report.get("status")
    if report["how"] == "stopped" or not isinstance(status, int):
        return "unknown", None, "the command was stopped"
    if os.WIFSIGNALED(status):
        return "signalled", os.WTERMSIG(status), ""
    return "exited", os.WEXITSTATUS(status), ""
