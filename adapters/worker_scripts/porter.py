# SPDX-License-Identifier: Apache-2.0
"""A worker where no stream can be attached: its bytes are carried by single calls.

What the host says comes as files in the folder `in`, each named by the place in
the stream where it begins and by its length, and counts once it is whole. What
the worker says is kept until the host asks for what comes after it. So either can
be sent again, and the second time makes no difference. The porter listens on the
socket `line` of its folder; a host that asks for nothing any more is gone, and the
worker is ended with the porter.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import time

from . import worker

HOST_SECONDS = 60.0
"""How long a host may ask for nothing."""
LOOK_SECONDS = 0.004
"""How often the folder `in` is looked at while the host waits."""
PAUSE_SECONDS = 1.0
HELD_BYTES_MAX = 2 * 1024 * 1024
"""While so much waits for the host, no more is read from the worker."""
REPLY_BYTES_MAX = 512 * 1024
LINGER_SECONDS = 0.001
PIECE_BYTES = 64 * 1024
REQUEST_BYTES_MAX = 256
CALLERS_MAX = 64


class Porter:
    """Carries between the files, the socket and the worker's two pipes."""

    def __init__(
        self, folder: str, listener: socket.socket, to_worker: int, from_worker: int
    ) -> None:
        self._in = os.path.join(folder, "in")
        self._listener = listener
        self._to_worker = to_worker
        self._from_worker = from_worker
        self._read = 0
        self._unsent = b""
        self._held = b""
        self._held_from = 0
        self._waiting: socket.socket | None = None
        self._wanted = 0
        self._until = 0.0
        self._asked = time.monotonic()
        self._worker_is_there = True
        self._is_over = False

    def run(self) -> None:
        """Carry until the host says the end, or nothing any more."""
        while not self._is_over and time.monotonic() - self._asked < HOST_SECONDS:
            self._take_in()
            self._turn()
            self._answer()
        if self._waiting is not None:
            self._reply(b"-")

    def _turn(self) -> None:
        """Wait a moment for whatever comes next."""
        reading: list[int] = [self._listener.fileno()]
        if self._worker_is_there and len(self._held) < HELD_BYTES_MAX:
            reading.append(self._from_worker)
        writing = [self._to_worker] if self._unsent else []
        pause = PAUSE_SECONDS if self._waiting is None else LOOK_SECONDS
        ready, able, _ = select.select(reading, writing, [], pause)
        if self._to_worker in able:
            self._pass_on()
        if self._from_worker in ready:
            self._read_worker()
        if self._listener.fileno() in ready:
            self._accept()

    def _take_in(self) -> None:
        """Take what the host said next, once it is there as a whole."""
        while not self._unsent:
            found = self._next_file()
            if found is None:
                return
            path, size = found
            with open(path, "rb") as file:
                piece = file.read()
            if len(piece) < size:
                return
            os.unlink(path)
            self._read += size
            self._unsent = piece
            self._pass_on()

    def _next_file(self) -> tuple[str, int] | None:
        for name in os.listdir(self._in):
            path = os.path.join(self._in, name)
            place, _, size = name.partition("-")
            if not (place.isdigit() and size.isdigit()):
                continue
            if int(place) < self._read:
                os.unlink(path)  # It was sent twice.
            elif int(place) == self._read:
                return path, int(size)
        return None

    def _pass_on(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._to_worker, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # The worker is gone; what it said last still goes out.

    def _read_worker(self) -> None:
        """Take what the worker says, and a moment longer: frames come in parts."""
        while len(self._held) < HELD_BYTES_MAX:
            piece = os.read(self._from_worker, PIECE_BYTES)
            if not piece:
                self._worker_is_there = False
                return
            self._held += piece
            if not select.select([self._from_worker], [], [], LINGER_SECONDS)[0]:
                return

    def _accept(self) -> None:
        """Hear who asks; only the last one who waits is answered with bytes."""
        caller, _ = self._listener.accept()
        caller.settimeout(PAUSE_SECONDS)
        try:
            words = caller.recv(REQUEST_BYTES_MAX).split()
        except OSError:
            words = []
        if len(words) != 2 or not words[0].isdigit():
            caller.close()
            self._is_over = self._is_over or words == [b"end", b"end"]
            return
        if self._waiting is not None:
            self._reply(b".")
        self._asked = time.monotonic()
        self._waiting, self._wanted = caller, int(words[0])
        self._until = self._asked + float(words[1])
        # What comes before that place has arrived.
        self._held = self._held[max(0, self._wanted - self._held_from) :]
        self._held_from = max(self._held_from, self._wanted)

    def _answer(self) -> None:
        if self._waiting is None:
            return
        if self._held:
            self._reply(b"+" + self._held[:REPLY_BYTES_MAX])
        elif not self._worker_is_there:
            self._reply(b"-")
            self._is_over = True
        elif time.monotonic() >= self._until:
            self._reply(b".")

    def _reply(self, said: bytes) -> None:
        caller, self._waiting = self._waiting, None
        assert caller is not None
        self._asked = time.monotonic()
        try:
            caller.sendall(said)
        except OSError:
            pass  # Whoever asked is gone, and asks again from the same place.
        finally:
            caller.close()


def carry(folder: str, name: str, options: list[str]) -> int:
    """Leave a worker and its porter behind; the socket answers when this returns.

    Under the same name once: whoever asks again finds what the first one started.
    """
    os.chdir(folder)
    try:
        os.mkdir(name, 0o700)
    except FileExistsError:
        return 0
    _clear_dead()
    os.chdir(name)
    os.mkdir("in", 0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("line")
    listener.listen(CALLERS_MAX)
    if os.fork():
        return 0
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    _serve(os.path.join(folder, name), listener, options)
    return 0


def _clear_dead() -> None:
    """Remove what porters left that were killed; whoever lives ends by itself."""
    for name in os.listdir("."):
        line = os.path.join(name, "line")
        caller = socket.socket(socket.AF_UNIX)
        try:
            if time.time() - os.stat(name).st_mtime > HOST_SECONDS:
                caller.connect(line)
        except OSError:
            if os.path.isdir(name):
                shutil.rmtree(name, ignore_errors=True)
        finally:
            caller.close()


def _serve(folder: str, listener: socket.socket, options: list[str]) -> None:
    to_worker, from_worker = os.pipe(), os.pipe()
    if os.fork() == 0:
        listener.close()
        os.dup2(to_worker[0], 0)
        os.dup2(from_worker[1], 1)
        for descriptor in (*to_worker, *from_worker):
            os.close(descriptor)
        os.chdir("/")
        sys.exit(worker.main(options))
    os.close(to_worker[0])
    os.close(from_worker[1])
    os.set_blocking(to_worker[1], False)
    try:
        Porter(folder, listener, to_worker[1], from_worker[0]).run()
    finally:
        os.close(to_worker[1])
        # Nobody can ask any more; the worker ends what it runs.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(folder))
        except OSError:
            pass  # The program still lies there, for the next one.
        listener.close()
        os.close(from_worker[0])
        os.wait()


def main(arguments: list[str]) -> int:
    """Carry in the folder and under the name that the first two arguments tell."""
    return carry(arguments[0], arguments[1], arguments[2:])
