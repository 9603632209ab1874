# SPDX-License-Identifier: Apache-2.0
"""A relay where no stream can be attached: its bytes go through files.

What the host says stands in the folder `in`, what the relay says in `out`, as
numbered files that appear whole. The host takes one by asking for its number, and
by asking for the next it says that the one before was had. A host that asks for
nothing any more is gone: the relay ends, and the folder with it. An empty file
is the end of its direction.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import tempfile
import time

from . import relay

FILE_BYTES_MAX = 512 * 1024
FILES_MAX = 4
"""While so many wait for the host, no more is read from the relay."""
POLL_SECONDS = 0.02
HOST_SECONDS = 120.0
"""How long a host may ask for nothing."""

NOTHING_YET, ENDED = 3, 4
"""The statuses of a `take` that had nothing to print."""


def name_of(number: int) -> str:
    """Return the name of a file by its number."""
    return "%010d" % number


class Pump:
    """Carries between the files and the relay's two pipes."""

    def __init__(self, folder: str, to_relay: int, from_relay: int) -> None:
        self._in = os.path.join(folder, "in")
        self._out = os.path.join(folder, "out")
        self._new = os.path.join(folder, "new")
        self._asked = os.path.join(folder, "asked")
        self._to_relay = to_relay
        self._from_relay = from_relay
        self._next_in = 1
        self._next_out = 1
        self._asked_at = 0
        self._heard = time.monotonic()

    def run(self) -> None:
        """Carry until the host says the end, or nothing any more."""
        is_over = False
        while self._host_is_there() and self._take_in():
            if is_over or len(os.listdir(self._out)) >= FILES_MAX:
                time.sleep(POLL_SECONDS)
                continue
            ready = select.select([self._from_relay], [], [], POLL_SECONDS)[0]
            if ready:
                is_over = not self._put_out()

    def _host_is_there(self) -> bool:
        # Counted by a clock of our own: the other may be set while we wait.
        asked_at = os.stat(self._asked).st_mtime_ns
        if asked_at != self._asked_at:
            self._asked_at, self._heard = asked_at, time.monotonic()
        return time.monotonic() - self._heard < HOST_SECONDS

    def _take_in(self) -> bool:
        """Pass on what the host said; False at its end."""
        while True:
            path = os.path.join(self._in, name_of(self._next_in))
            try:
                with open(path, "rb") as file:
                    piece = file.read()
            except FileNotFoundError:
                return True
            os.unlink(path)
            self._next_in += 1
            if not piece:
                return False
            try:
                while piece:
                    piece = piece[os.write(self._to_relay, piece) :]
            except OSError:
                pass  # The relay is over; what it said last still goes out.

    def _put_out(self) -> bool:
        """Put down what the relay said; False at its end."""
        piece = os.read(self._from_relay, FILE_BYTES_MAX)
        with open(self._new, "wb") as file:
            file.write(piece)
        os.rename(self._new, os.path.join(self._out, name_of(self._next_out)))
        self._next_out += 1
        return bool(piece)


def take(folder: str, number: int, seconds: float) -> int:
    """Print the file of that number once it is there, and forget those before."""
    out = os.path.join(folder, "out")
    until = time.monotonic() + seconds
    try:
        os.utime(os.path.join(folder, "asked"))
        for name in os.listdir(out):
            if name < name_of(number):
                os.unlink(os.path.join(out, name))
        while True:
            path = os.path.join(out, name_of(number))
            if os.path.exists(path):
                with open(path, "rb") as file:
                    return _printed(file.read())
            if time.monotonic() >= until:
                return NOTHING_YET
            time.sleep(POLL_SECONDS)
    except FileNotFoundError:
        return ENDED  # The folder is gone, and the relay with it.


def _printed(piece: bytes) -> int:
    if not piece:
        return ENDED
    while piece:
        piece = piece[os.write(1, piece) :]
    return 0


def carry(scratch: str, ports: list[str]) -> int:
    """Leave a relay and its pump behind, and print where their folder is."""
    folder = tempfile.mkdtemp(prefix="relay-", dir=scratch)
    os.mkdir(os.path.join(folder, "in"))
    os.mkdir(os.path.join(folder, "out"))
    with open(os.path.join(folder, "asked"), "wb"):
        pass
    os.write(1, json.dumps({"folder": folder}).encode() + b"\n")
    if os.fork():
        return 0
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    _pump(folder, ports)
    return 0


def _pump(folder: str, ports: list[str]) -> None:
    to_relay, from_relay = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.dup2(to_relay[0], 0)
        os.dup2(from_relay[1], 1)
        for descriptor in (*to_relay, *from_relay):
            os.close(descriptor)
        sys.exit(relay.main(ports))
    os.close(to_relay[0])
    os.close(from_relay[1])
    try:
        Pump(folder, to_relay[1], from_relay[0]).run()
    finally:
        os.close(to_relay[1])
        os.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Carry or take, as the first argument says."""
    word, folder, *rest = arguments
    if word == "take":
        return take(folder, int(rest[0]), float(rest[1]))
    return carry(folder, rest)
