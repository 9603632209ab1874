# SPDX-License-Identifier: Apache-2.0
"""The relay: ports on the sandbox's loopback whose connections end at the host.

It listens on one port for each argument (0: any that is free) and carries the
bytes of every connection over its standard input and output, in the frames of
the worker. Each direction of a connection has a window, so one that nobody reads
stops itself alone. When the host is gone the relay ends, and the kernel closes
every connection: whoever is inside sees that, and nothing worse.

A connection is OPENED by the relay, with the number of its port. CHUNK, CREDIT
and END (no more in this direction) go both ways; KILL ends it at once.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections import deque

from .wire import (
    CHUNK,
    CREDIT,
    END,
    HELLO,
    KILL,
    OPENED,
    FrameReader,
    FrameTooLong,
    frame,
    told,
)

PIECE_BYTES = 64 * 1024
"""The most bytes of one connection that go in one frame."""
WINDOW_BYTES = 4 * PIECE_BYTES
"""How much of one connection and direction may be under way without a credit."""
CONNECTIONS_MAX = 128
"""More wait in the kernel's queue until one ends."""
UNSENT_BYTES_MAX = 8 * PIECE_BYTES
"""While more waits for the host, nothing more is read from connections."""
LINGER_SECONDS = 30.0
"""How long a connection may stay open that the host has nothing more for."""
BACKLOG = 128


class HostGone(Exception):
    """Nobody is left at the other end."""


class Link:
    """One connection of the sandbox."""

    def __init__(self, number: int, connected: socket.socket) -> None:
        self.number = number
        self.socket = connected
        self.held = bytearray()
        self.credit = WINDOW_BYTES
        self.is_read_whole = False
        self.is_written_whole = False
        self.ends_after_held = False
        self.linger_until: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether both directions are done."""
        return self.is_read_whole and self.is_written_whole


class Relay:
    """All connections, and the one stream that carries them."""

    def __init__(self, listeners: list[socket.socket]) -> None:
        self._listeners = listeners
        self._links: dict[int, Link] = {}
        self._last_number = 0
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, int] = {}
        self._reader = FrameReader()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0

    def run(self) -> None:
        """Carry until the host is gone."""
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)
        ports = [listener.getsockname()[1] for listener in self._listeners]
        self._tell(told(HELLO, 0, {"ports": ports}))
        try:
            while True:
                self._turn()
        except HostGone:
            return

    def _turn(self) -> None:
        self._watch(0, selectors.EVENT_READ)
        self._watch(1, selectors.EVENT_WRITE if self._unsent else 0)
        has_room = len(self._links) < CONNECTIONS_MAX
        for listener in self._listeners:
            self._watch(listener.fileno(), selectors.EVENT_READ if has_room else 0)
        for link in self._links.values():
            self._watch(link.socket.fileno(), self._wanted(link))
        ready = {key.fd: events for key, events in self._selector.select(self._pause())}
        if 1 in ready:
            self._transmit()
        if 0 in ready:
            self._hear_host()
        for which, listener in enumerate(self._listeners):
            if listener.fileno() in ready and len(self._links) < CONNECTIONS_MAX:
                self._accept(which, listener)
        for link in list(self._links.values()):
            self._serve(link, ready.get(link.socket.fileno(), 0))

    def _watch(self, descriptor: int, events: int) -> None:
        before = self._watched.get(descriptor, 0)
        if events == before:
            return
        if not before:
            self._selector.register(descriptor, events)
        elif events:
            self._selector.modify(descriptor, events)
        else:
            self._selector.unregister(descriptor)
        self._watched[descriptor] = events

    def _wanted(self, link: Link) -> int:
        events = selectors.EVENT_WRITE if link.held else 0
        is_full = self._unsent_bytes > UNSENT_BYTES_MAX
        if link.credit > 0 and not link.is_read_whole and not is_full:
            events |= selectors.EVENT_READ
        return events

    def _pause(self) -> float | None:
        waits = [link.linger_until for link in self._links.values()]
        known = [until for until in waits if until is not None]
        return max(0.0, min(known) - time.monotonic()) if known else None

    # The host's side.

    def _tell(self, words: bytes) -> None:
        self._unsent.append(words)
        self._unsent_bytes += len(words)

    def _transmit(self) -> None:
        first = self._unsent[0]
        try:
            sent = os.write(1, first)
        except BlockingIOError:
            return
        except OSError as fault:
            raise HostGone() from fault
        self._unsent_bytes -= sent
        if sent == len(first):
            self._unsent.popleft()
        else:
            self._unsent[0] = first[sent:]

    def _hear_host(self) -> None:
        try:
            piece = os.read(0, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            raise HostGone()
        try:
            for kind, number, payload in self._reader.feed(piece):
                link = self._links.get(number)
                if link is not None:
                    self._take(link, kind, payload)
        except FrameTooLong as fault:
            raise HostGone() from fault

    def _take(self, link: Link, kind: int, payload: bytes) -> None:
        if kind == CHUNK:
            link.held += payload
            if len(link.held) > WINDOW_BYTES + PIECE_BYTES:
                raise HostGone()  # It keeps to no window: it is no host of ours.
        elif kind == CREDIT:
            link.credit += int.from_bytes(payload, "big")
        elif kind == END:
            link.ends_after_held = True
        elif kind == KILL:
            self._forget(link)

    # The sandbox's side.

    def _accept(self, which: int, listener: socket.socket) -> None:
        try:
            connected = listener.accept()[0]
        except OSError:
            return  # It went away before it was taken.
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_number += 1
        self._links[self._last_number] = Link(self._last_number, connected)
        self._tell(frame(OPENED, self._last_number, which.to_bytes(4, "big")))

    def _serve(self, link: Link, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._read(link)
            if link.held:
                self._write(link)
            if link.ends_after_held and not link.held and not link.is_written_whole:
                link.is_written_whole = True
                link.linger_until = time.monotonic() + LINGER_SECONDS
                link.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._tell(frame(KILL, link.number))
            self._forget(link)
            return
        if link.is_over:
            self._forget(link)
        elif link.linger_until is not None and link.linger_until < time.monotonic():
            self._tell(frame(KILL, link.number))
            self._forget(link)

    def _read(self, link: Link) -> None:
        try:
            piece = link.socket.recv(min(PIECE_BYTES, link.credit))
        except BlockingIOError:
            return
        if piece:
            link.credit -= len(piece)
            self._tell(frame(CHUNK, link.number, piece))
        else:
            link.is_read_whole = True
            self._tell(frame(END, link.number))

    def _write(self, link: Link) -> None:
        try:
            sent = link.socket.send(link.held)
        except BlockingIOError:
            return
        del link.held[:sent]
        self._tell(frame(CREDIT, link.number, sent.to_bytes(4, "big")))

    def _forget(self, link: Link) -> None:
        if self._links.pop(link.number, None) is not None:
            self._watch(link.socket.fileno(), 0)
            link.socket.close()


def listening(port: int) -> socket.socket:
    """Return a listener on loopback; raises `OSError` when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def main(arguments: list[str]) -> int:
    """Listen on the ports that the arguments name; say why where that fails."""
    for name in ("SIGHUP", "SIGINT", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        listeners = [listening(int(port)) for port in arguments]
    except OSError as fault:
        reason = "%s of port %s" % (fault.strerror or fault, ", ".join(arguments))
        os.write(1, told(HELLO, 0, {"fault": reason}))
        return 1
    Relay(listeners).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
