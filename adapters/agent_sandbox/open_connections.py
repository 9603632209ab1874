# SPDX-License-Identifier: Apache-2.0
"""Connections of a client of urllib3 that are open, whoever reads from them.

A pool knows the idle ones alone. A call under way reads in a thread that nothing
can cancel: with its connection shut down it ends at once, and not after its time.
"""

import socket
import threading
import weakref
from contextlib import suppress

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError


class OpenConnections:
    """The open connections of one client."""

    def __init__(self) -> None:
        """Know of none yet."""
        self._found = weakref.WeakSet[HTTPConnection]()
        self._is_over = False
        self._turn = threading.Lock()

    def keep_of(self, manager: urllib3.PoolManager) -> None:
        """Know of all that `manager` opens from now on.

        Through a proxy for SOCKS they stay unknown, and end after their time.
        """
        opened = self

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                opened.take(self)

        class Encrypted(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                opened.take(self)

        # Called, `type` is not asked by checkers what the library's own classes hold.
        pools: dict[str, type[HTTPConnectionPool | HTTPSConnectionPool]] = {
            "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": Plain}),
            "https": type(
                "EncryptedPool", (HTTPSConnectionPool,), {"ConnectionCls": Encrypted}
            ),
        }
        if manager.pool_classes_by_scheme.get("https") is HTTPSConnectionPool:
            manager.pool_classes_by_scheme = {**pools}

    def take(self, connection: HTTPConnection) -> None:
        """Know of one more; one that comes too late is closed again.

        Raises:
            NewConnectionError: It came too late.
        """
        with self._turn:
            if not self._is_over:
                self._found.add(connection)
                return
        connection.close()
        raise NewConnectionError(connection, "its client is closed")

    def cut(self) -> None:
        """Shut down all that are open, and those to come."""
        with self._turn:
            self._is_over = True
            found = list(self._found)
        for connection in found:
            # Whoever reads from it closes it; two threads may not.
            if (opened := connection.sock) is not None:
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)
