# SPDX-License-Identifier: Apache-2.0
"""The door: gives programs a connection for standard input and output.

For a provider that reaches a port of the sandbox and attaches no streams. The door
listens on loopback and leaves its parent behind. Whoever asks for an upgrade, and
shows that he knows the key, has a worker on his connection, or the program that he
names. The key itself never goes over it, and the door shows that it knows the key
too: a port is taken by another program sooner or later. Nobody for a while: the
door ends.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import NoReturn, cast

from . import web_socket, worker
from .accounts import NoSuchAccount, become, find_account
from .processes import initial_environment

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS = 10.0
VISITORS_MAX = 256
"""So many connections at once; more are turned away."""
IDLE_SECONDS = 60.0
LOOK_SECONDS = 1.0
HOST, GUEST = b"host", b"guest"


class Unwelcome(Exception):
    """The connection is none of ours."""


def proof(key: bytes, who: bytes, nonce: str) -> str:
    """Return what shows that `who` knows the key."""
    return hmac.new(key, who + b" " + nonce.encode(), hashlib.sha256).hexdigest()


def serve(listener: socket.socket, key: bytes) -> None:
    """Take connections until nobody was there for a while."""
    visitors: set[int] = set()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    seen = time.monotonic()
    while visitors or time.monotonic() < seen + IDLE_SECONDS:
        ready = selector.select(LOOK_SECONDS)
        visitors = _reaped(visitors)
        if visitors:
            seen = time.monotonic()
        if not ready:
            continue
        seen = time.monotonic()
        try:
            connection, _ = listener.accept()
        except OSError:
            continue  # Whoever it was has gone again.
        if len(visitors) < VISITORS_MAX:
            child = os.fork()
            if child == 0:
                selector.close()
                listener.close()
                _let_in(connection, key)
            visitors.add(child)
        connection.close()


def _reaped(visitors: set[int]) -> set[int]:
    left = set(visitors)
    for pid in visitors:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                left.discard(pid)
        except ChildProcessError:
            left.discard(pid)
    return left


def _let_in(connection: socket.socket, key: bytes) -> NoReturn:
    """Be the program that the connection asks for."""
    status = 1
    try:
        path, headers = _head(connection)
        nonce = headers.get("x-livery-nonce", "")
        shown = headers.get("x-livery-proof", "")
        if not nonce or not hmac.compare_digest(shown, proof(key, HOST, nonce)):
            raise Unwelcome("403 Forbidden")
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Accept: %s\r\nX-Livery-Proof: %s\r\n\r\n"
        ) % (
            web_socket.accept_of(headers.get("sec-websocket-key", "")),
            proof(key, GUEST, nonce),
        )
        connection.sendall(answer.encode())
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if headers.get("x-livery-frames"):
            # What lies between keeps the answer's head to itself.
            first = proof(key, GUEST, nonce).encode()
            plain = web_socket.carry(connection, first)
            connection.close()
            connection = plain
        _attach(connection)
        if path == "/process":
            _become_program(headers.get("x-livery-program", ""))
        status = worker.main([])
    except Unwelcome as reason:
        _refuse(connection, str(reason))
    except OSError:
        pass  # It has gone again.
    finally:
        os._exit(status)


def _refuse(connection: socket.socket, status: str) -> None:
    head = "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    try:
        connection.sendall((head % status).encode())
    except OSError:
        pass  # It has gone again.


def _head(connection: socket.socket) -> tuple[str, dict[str, str]]:
    """Read the head of a request; what follows it is left where it is."""
    connection.settimeout(HEAD_SECONDS)
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        peeked = connection.recv(HEAD_BYTES_MAX, socket.MSG_PEEK)
        if not peeked or len(text) > HEAD_BYTES_MAX:
            raise Unwelcome("400 Bad Request")
        end = (text + peeked).find(b"\r\n\r\n")
        taken = len(peeked) if end < 0 else end + 4 - len(text)
        text += connection.recv(taken)
    first, *lines = text.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise Unwelcome("400 Bad Request")
    pairs = [line.partition(":") for line in lines if line]
    return words[1], {name.strip().lower(): value.strip() for name, _, value in pairs}


def _attach(connection: socket.socket) -> None:
    """Make the connection standard input and output, and nothing else."""
    for descriptor in (0, 1):
        os.dup2(connection.fileno(), descriptor)
    connection.close()


def _become_program(told: str) -> NoReturn:
    try:
        words = cast("dict[str, object]", json.loads(base64.b64decode(told)))
        argv = [str(word) for word in cast("list[object]", words["argv"])]
        user = cast("str | None", words["user"])
        environment = initial_environment()
        os.setsid()
        become(find_account(user))
        for name in ("PIPE", "CHLD", "HUP", "TERM", "INT"):
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
        os.execvpe(argv[0], argv, environment)
    except (OSError, NoSuchAccount, ValueError, KeyError, IndexError):
        os._exit(127)


def main(arguments: list[str]) -> int:
    """Print the port that is listened on, and go on without the parent."""
    key = arguments[0].encode()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(VISITORS_MAX)
    os.write(1, b"door %d\n" % listener.getsockname()[1])
    if os.fork():
        os._exit(0)
    os.setsid()
    empty = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(empty, descriptor)
    os.chdir("/")
    for name in ("HUP", "INT", "PIPE", "TERM"):
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
    serve(listener, key)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
