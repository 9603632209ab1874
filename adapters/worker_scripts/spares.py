# SPDX-License-Identifier: Apache-2.0
"""A spare: a keeper without a command yet.

It is forked while the worker has nothing to do, so that the next command does not
wait for the fork of a Python. It ends when the worker does. Whatever ends it before,
and whatever it cannot be told, a fork of its own does the same as ever.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
import struct
from typing import NoReturn

from .accounts import Account
from .keeper import Order, get_ready, serve
from .launching import Program

ORDER_BYTES_MAX = 64 * 1024
"""What a socket surely takes at once; the worker does not wait for its spare."""

_LENGTH = struct.Struct(">I")
_STREAMS = 3


class Spare:
    """The worker's end of a spare."""

    def __init__(self, *, subreaper: bool) -> None:
        """Fork it.

        Raises:
            OSError: There is no room for it.
        """
        self.channel, there = socket.socketpair()
        with there:
            try:
                self.pid = os.fork()
            except OSError:
                self.channel.close()
                raise
            if self.pid == 0:
                _be_spare(there, subreaper=subreaper)
        self.channel.setblocking(False)

    def takes(self, order: Order, streams: tuple[int, int, int]) -> bool:
        """Hand the order over; what does not take it ends, and nothing was begun."""
        content = packed(order)
        if len(content) <= ORDER_BYTES_MAX:
            message = _LENGTH.pack(len(content)) + content
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))
            try:
                if self.channel.sendmsg([message], [rights]) == len(message):
                    return True
            except OSError:
                pass  # Somebody has killed it.
        self.close()
        return False

    def close(self) -> None:
        """Let it end."""
        self.channel.close()


def packed(order: Order) -> bytes:
    """Return the order as bytes; only tuples themselves can be written."""
    argv, cwd, env, account = order.program
    ids = None
    if account is not None:
        ids = (account.uid, account.gid, account.groups, account.home)
    program = (argv, cwd, env, ids)
    return marshal.dumps((program, *order[1:]))


def unpacked(content: bytes) -> Order:
    """Return what `packed` made bytes of."""
    (argv, cwd, env, ids), *others = marshal.loads(content)
    program = Program(argv, cwd, env, None if ids is None else Account(*ids))
    return Order(program, *others)


def _be_spare(worker: socket.socket, *, subreaper: bool) -> NoReturn:
    try:
        ready = get_ready({worker.fileno()}, subreaper=subreaper)
        head, told, _, _ = worker.recvmsg(
            _LENGTH.size,
            socket.CMSG_SPACE(_STREAMS * array.array("i").itemsize),
            socket.MSG_CMSG_CLOEXEC,
        )
        if len(head) == _LENGTH.size:  # Nothing at all comes of a worker that has gone.
            (length,) = _LENGTH.unpack(head)
            content = b""
            while len(content) < length:
                piece = worker.recv(length - len(content))
                if not piece:
                    os._exit(1)
                content += piece
            stdin, stdout, stderr = array.array("i", told[0][2])
            serve(unpacked(content), (stdin, stdout, stderr), worker, ready)
    finally:
        os._exit(1)
