# SPDX-License-Identifier: Apache-2.0
"""The supervisor: runs one command detached, to its end, and writes a receipt.

    supervisor.py launch RUN_DIR < request.json
    supervisor.py status RUN_DIR [--wait SECONDS]
    supervisor.py stop RUN_DIR [--wait SECONDS]
    supervisor.py forbid RUN_DIR

Each prints one line of JSON and exits with 0; with 2 when it is misused. A
run is claimed by its folder, in one step and for good (`run_folder.py`), so its
command is started once however often it is launched. The supervisor enforces
the deadline, ends every descendant, and writes what it saw in one step.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import NoReturn, cast

from . import run_folder
from .accounts import NoSuchAccount
from .launching import NotStarted, start
from .processes import (
    DRAIN_SECONDS,
    Tree,
    become_subreaper,
    close_all_but,
    look_at,
    wake_on_child,
)
from .run_request import Misused, open_stdin, read_request, to_program
from .spool import Spool, kept_of
from .watch import Watch

READ_BYTES = 64 * 1024
LAST_READS_MAX = 64
"""Reads of a pipe after its writers were seen gone; the largest pipe holds fewer."""
STOP_LOOK_SECONDS = 1.0
"""How often the file `stop` is looked for; the signal with it is quicker."""
RECEIPT_TRIES_MAX = 60
RECEIPT_TRY_SECONDS = 1.0
TERM_WAIT_SECONDS = 0.2
"""How much later than its command the supervisor may be sent the same signal."""
TERM_LOOK_SECONDS = 0.02
SENT_TERM = "the supervisor was sent SIGTERM"
OUTPUTS = ("stdout", "stderr")

_terms: list[int] = []


class SpooledOutlets:
    """The pipes of the command, and the files that they are pumped to."""

    def __init__(self, folder: str, bytes_max: int, watch: Watch) -> None:
        self._watch = watch
        self.spools = [Spool(os.path.join(folder, name), bytes_max) for name in OUTPUTS]
        self.writing: list[int] = []
        self._open: dict[int, Spool] = {}
        for spool in self.spools:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(reading, False)
            self._open[reading] = spool
            self.writing.append(writing)

    def descriptors(self) -> list[int]:
        """Return the pipes that are open."""
        return list(self._open)

    def read(self, descriptor: int) -> None:
        """Take what a pipe holds; close it at its end."""
        try:
            piece = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if piece:
            spool = self._open[descriptor]
            spool.feed(piece)
            self._watch.saw(piece, is_stdout=spool is self.spools[0])
        else:
            del self._open[descriptor]
            os.close(descriptor)

    def close(self) -> None:
        """Take what is left now that nobody writes any more."""
        for descriptor in self.descriptors():
            for _ in range(LAST_READS_MAX):
                before = self._open[descriptor].size
                self.read(descriptor)
                if descriptor not in self._open:
                    break
                if self._open[descriptor].size == before:
                    break
            if descriptor in self._open:
                del self._open[descriptor]
                os.close(descriptor)
        for spool in self.spools:
            spool.close()


def launch(folder: str, request: dict[str, object]) -> dict[str, object]:
    """Start the run, unless its name is taken."""
    if os.path.lexists(folder):
        return {"state": "exists"}
    fresh = run_folder.prepare(folder)
    try:
        request["mark"] = os.urandom(16).hex()
        run_folder.write(fresh, "request.json", json.dumps(request).encode())
        run_folder.keep_room(fresh, "receipt.json")
        run_folder.keep_word(fresh)
    except OSError as fault:
        run_folder.discard(fresh)
        return {"state": "failed", "reason": os.strerror(fault.errno or 0)}
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _daemonise(folder, fresh, request, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as report:
        words = report.read()
    os.waitpid(child, 0)
    if not words:
        return {"state": "failed", "reason": "the supervisor ended as it started"}
    return cast("dict[str, object]", json.loads(words))  # told by ourselves


def _daemonise(
    folder: str, fresh: str, request: dict[str, object], report: int
) -> NoReturn:
    """Be the supervisor, tied to nothing that started it."""
    status = 1
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.chdir("/")
        empty = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(empty, number)
        close_all_but({report})
        _supervise(folder, fresh, request, report)
        status = 0
    finally:
        os._exit(status)


def _supervise(
    folder: str, fresh: str, request: dict[str, object], report: int
) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _note_term)
    try:
        pid = os.getpid()
        seen = look_at(pid)
        started = {
            "pid": pid,
            "begun": seen.begun if seen else 0,
            "boot_id": run_folder.boot_id(),
            "at": time.time(),
        }
        run_folder.write(fresh, run_folder.STARTED, json.dumps(started).encode())
        run_folder.claim(folder, fresh)
    except run_folder.NameTaken:
        run_folder.discard(fresh)
        _tell(report, {"state": "exists"})
        return
    except OSError as fault:
        run_folder.discard(fresh)
        _tell(report, {"state": "failed", "reason": os.strerror(fault.errno or 0)})
        return
    _tell(report, {"state": "started"})
    receipt = _run(folder, request)
    receipt["started_at"] = started["at"]
    receipt["ended_at"] = time.time()
    _write_receipt(folder, receipt)


def _tell(report: int, words: dict[str, object]) -> None:
    try:
        os.write(report, json.dumps(words).encode())
    except OSError:
        pass  # The launcher is gone; the folder tells the same.
    os.close(report)


def _note_term(number: int, interrupted: FrameType | None) -> None:
    _terms.append(number)


def _write_receipt(folder: str, receipt: dict[str, object]) -> None:
    """Write it, also when the disk is full for a while; else there is none."""
    words = json.dumps(receipt).encode()
    for _ in range(RECEIPT_TRIES_MAX):
        try:
            if os.path.isdir(folder):
                run_folder.write(folder, "receipt.json", words)
            else:
                run_folder.write_anew(folder, "receipt.json", words)
        except OSError:
            time.sleep(RECEIPT_TRY_SECONDS)
        else:
            return


def _run(folder: str, request: dict[str, object]) -> dict[str, object]:
    begun = time.monotonic()
    bytes_max = cast("int", request["output_bytes_max"])
    receipt: dict[str, object] = {"leftovers": 0, "gone": True, "reason": ""}
    watch = Watch(request)
    try:
        outlets = SpooledOutlets(folder, bytes_max, watch)
    except OSError as fault:
        receipt.update(how="not_started", reason="no file for its output: %s" % fault)
        return receipt
    try:
        _run_command(folder, request, outlets, watch, receipt)
    except (NotStarted, NoSuchAccount, OSError) as refusal:
        # All that can fail in there comes before the command's start.
        receipt.update(how="not_started", reason=str(refusal))
        receipt["no_program"] = isinstance(refusal, NotStarted) and refusal.no_program
        outlets.close()
    receipt["seconds"] = time.monotonic() - begun
    receipt["outputs"] = {
        name: _told_of(spool, os.path.join(folder, name), bytes_max)
        for name, spool in zip(OUTPUTS, outlets.spools)
    }
    return receipt


def _told_of(spool: Spool, path: str, bytes_max: int) -> dict[str, object]:
    kept, fault = kept_of(path, bytes_max)
    return {"size": spool.size, "kept": list(kept), "fault": spool.fault or fault}


def _run_command(
    folder: str,
    request: dict[str, object],
    outlets: SpooledOutlets,
    watch: Watch,
    receipt: dict[str, object],
) -> None:
    subreaper = become_subreaper()
    wake = wake_on_child()
    begun = time.monotonic()
    stdin = open_stdin(request, folder)
    streams = (stdin, outlets.writing[0], outlets.writing[1])
    try:
        leader = start(
            to_program(request),
            streams,
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        )
    finally:
        for descriptor in streams:
            os.close(descriptor)
    tree = Tree(
        leader,
        run_folder.mark_of(request),
        wake,
        subreaper=subreaper,
        outlets=outlets,
    )
    deadline = begun + cast("float", request["timeout_seconds"])
    watch.begin()
    how, reason = _await_end(folder, tree, watch, deadline)
    receipt["leader_seconds"] = time.monotonic() - begun
    receipt.update(how=how, reason=reason, number=None)
    if how == "ended":
        receipt.update(_how_the_leader_ended(tree.leader_status or 0))
        if not tree.wait_gone(DRAIN_SECONDS):
            receipt["leftovers"] = len(tree.living())
    gone = tree.end(cast("float", request["grace_seconds"]))
    if receipt["number"] == signal.SIGTERM and _was_asked_to_end():
        # Whoever ends a tree sends it to us and to the command; which of the two
        # notices first is chance, and the command's own end it was not.
        receipt.update(how="cancelled", number=None, reason=SENT_TERM)
    receipt["asked"] = os.path.exists(os.path.join(folder, run_folder.STOP))
    outlets.close()
    receipt["gone"] = gone
    if not gone:
        receipt["alive"] = sorted(tree.living())


def _await_end(
    folder: str, tree: Tree, watch: Watch, deadline: float
) -> tuple[str, str]:
    stop_file = os.path.join(folder, run_folder.STOP)
    # Without it nobody finds this run any more, to stop it or to be told its end.
    own = os.path.join(folder, run_folder.STARTED)
    tree.reap()
    while tree.leader_status is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return "timed_out", ""
        if os.path.exists(stop_file):
            return "cancelled", "it was stopped"
        if _terms:
            return "cancelled", SENT_TERM
        if not os.path.exists(own):
            return "cancelled", "its folder was removed"
        cause = watch.cause()
        if cause:
            return "ended_early", cause
        tree.turn(min(left, STOP_LOOK_SECONDS))
    return "ended", ""


def _was_asked_to_end() -> bool:
    until = time.monotonic() + TERM_WAIT_SECONDS
    while not _terms and time.monotonic() < until:
        time.sleep(TERM_LOOK_SECONDS)
    return bool(_terms)


def _how_the_leader_ended(status: int) -> dict[str, object]:
    if os.WIFSIGNALED(status):
        return {"how": "signalled", "number": os.WTERMSIG(status)}
    return {"how": "exited", "number": os.WEXITSTATUS(status)}


def _answer(arguments: list[str]) -> dict[str, object]:
    if len(arguments) < 2 or not os.path.isabs(arguments[1]):
        raise Misused("wanted: launch|status|stop|forbid and an absolute RUN_DIR")
    command, folder, *rest = arguments
    folder = os.path.normpath(folder)
    if command == "launch" and not rest:
        return launch(folder, read_request(sys.stdin.buffer.read()))
    if command == "forbid" and not rest:
        return run_folder.forbid(folder)
    if rest == [] or (len(rest) == 2 and rest[0] == "--wait"):
        seconds = float(rest[1]) if rest else 0.0
        if command == "status":
            return run_folder.wait(folder, seconds)
        if command == "stop":
            return run_folder.stop(folder, seconds)
    raise Misused("%s is no command, or has other arguments" % command)


def main(arguments: list[str]) -> int:
    """Do one command and print its answer."""
    try:
        answer = _answer(arguments)
    except (Misused, ValueError) as refusal:
        print(json.dumps({"state": "misused", "reason": str(refusal)}))
        return 2
    except OSError as fault:
        print(json.dumps({"state": "failed", "reason": str(fault)}))
        return 0
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
