# SPDX-License-Identifier: Apache-2.0
"""Listening for what others write: on the event loop, and without asking again.

While there is no connection that listens, whoever waits is looked for at intervals, and
told when nobody can look. Once there is one again, what may have been missed is looked
up first. So nobody waits for a word that was lost.
"""

import asyncio
import logging
from typing import Final

import attrs
import psycopg
from psycopg import sql

from ..journals.database_thread import DatabaseThread
from ..journals.waiting import Waiting
from .database import Connection, Database, Link
from .reads import Read, Reader

AGAIN_SECONDS: Final = 0.5
"""How often it is tried to listen again, when the connection was lost."""
_PARTS: Final = 3

log = logging.getLogger(__name__)


@attrs.define(kw_only=True, eq=False)
class Listener:
    """Hears what is written, and tells those who wait in this process."""

    database: Database
    reads: DatabaseThread[Link, Read, object]
    reader: Reader
    waiting: Waiting
    _loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _listening: Connection | None = attrs.field(default=None, init=False)
    _descriptor: int = attrs.field(default=-1, init=False)
    """Its socket; a connection that was lost does not tell it any more."""
    _timer: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def open(self) -> None:
        """Begin to listen; what is missed until then is looked up."""
        self._loop = asyncio.get_running_loop()
        self._connect()

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._drop()

    def _connect(self) -> None:
        self._timer = None
        # The reading thread connects, so that the loop does not wait; its own
        # connection is not what is used.
        self.reads.post(lambda _: self._listens(), self._connected)

    def _listens(self) -> Connection:
        connection = self.database.connect()
        channel = sql.Identifier(self.database.schema)
        try:
            connection.execute(sql.SQL("LISTEN {}").format(channel))
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self, made: object) -> None:
        if not isinstance(made, psycopg.Connection):
            assert isinstance(made, Exception), "it is connected or not"
            self._try_again(made)
            return
        if self._closed:
            made.close()  # pyright: ignore[reportUnknownMemberType]
            return
        assert self._loop is not None, "it was opened"
        # What kind of rows it gives is lost on the way through the thread.
        self._listening = made  # pyright: ignore[reportUnknownMemberType]
        self._descriptor = self._listening.fileno()
        self._loop.add_reader(self._descriptor, self._hear)
        self._look()

    def _hear(self) -> None:
        """Take in what came; the end of the connection comes like that as well."""
        assert self._listening is not None, "it is listened to"
        connection = self._listening.pgconn
        try:
            connection.consume_input()
        except psycopg.Error as lost:
            self._drop()
            self._try_again(self.database.unusable(lost))
            return
        while (heard := connection.notifies()) is not None:
            self._tell(heard.extra)

    def _tell(self, heard: bytes) -> None:
        """Tell who waits; anybody who may connect to the database can say anything."""
        try:
            version, category, key = heard.decode().split("\n", _PARTS - 1)
            told = int(version)
        except ValueError:
            self._look()  # The name was too long to be told, or it is no word of ours.
            return
        self.waiting.tell((category, key), told)

    def _try_again(self, why: Exception) -> None:
        if self._closed:
            return
        log.warning("What others write is not heard for a moment: %s", why)
        self._look()
        assert self._loop is not None, "it was opened"
        self._timer = self._loop.call_later(AGAIN_SECONDS, self._connect)

    def _look(self) -> None:
        """Look where all streams stand that somebody waits at."""
        if names := self.waiting.names():
            self.reads.post(
                lambda connection: self.reader.versions(connection, names),
                self.waiting.take_look,
            )

    def _drop(self) -> None:
        connection, self._listening = self._listening, None
        if connection is None:
            return
        assert self._loop is not None, "it was opened"
        self._loop.remove_reader(self._descriptor)
        connection.close()
