# SPDX-License-Identifier: Apache-2.0
"""The SQLite journal against a model: lists of events, and versions counted by hand.

Two journal objects write to one file, streams are forgotten and begin again, and the
file is closed and opened in between. No durability is asked here: killed writers
prove it elsewhere.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from livery.adapters.journals import open_sqlite_journal
from livery.adapters.journals.sqlite import SqliteJournal
from livery.ports.required.journal import ENDS, Event, History, Stream, StreamMoved

from .events import events

MEMORY_DISK = Path("/dev/shm")
STREAMS = [
    Stream[Event](category, key)
    for category in ("claims", "episodes")
    for key in ("a", "A", "run/1", "\ud800%41")
]

streams = st.sampled_from(STREAMS)
which = st.integers(0, 1)


class SqliteAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Stream[Event], list[Event]] = {}
        self.resources = ExitStack()
        disk = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
        folder = tempfile.TemporaryDirectory(prefix="livery-test-", dir=disk)
        self.path = Path(self.resources.enter_context(folder)) / "journal.sqlite"
        self.portal: BlockingPortal = self.resources.enter_context(
            start_blocking_portal()
        )
        self.journals: list[SqliteJournal] = []
        self.opened: list[AbstractContextManager[SqliteJournal, bool | None]] = []

    @initialize()
    def open(self) -> None:
        for _ in range(2):
            opened = self.portal.wrap_async_context_manager(
                open_sqlite_journal(self.path)
            )
            self.journals.append(opened.__enter__())
            self.opened.append(opened)

    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()

    @rule(
        stream=streams,
        which=which,
        added=st.lists(events, max_size=4),
        off=st.sampled_from([0, 0, 0, 0, -1, 1, 7]),
    )
    def append(
        self, stream: Stream[Event], which: int, added: Sequence[Event], off: int
    ) -> None:
        standing = self.model.get(stream, [])
        expected = len(standing) + off

        async def append() -> int:
            return await self.journals[which].append(
                stream, added, expected_version=expected
            )

        try:
            version = self.portal.call(append)
        except StreamMoved as moved:
            found = moved.found
            assert off != 0
        else:
            found = version - len(added)
            assert off == 0
            if added:
                self.model[stream] = [*standing, *added]
        assert found == len(standing)

    @rule(stream=streams, which=which, off=st.sampled_from([0, 0, 1]))
    def forget(self, stream: Stream[Event], which: int, off: int) -> None:
        expected = len(self.model.get(stream, [])) + off

        async def forget() -> None:
            await self.journals[which].forget(stream, expected_version=expected)

        try:
            self.portal.call(forget)
        except StreamMoved:
            assert off != 0
        else:
            assert off == 0
            self.model.pop(stream, None)

    @rule(stream=streams, which=which, after=st.integers(-1, 12))
    def read(self, stream: Stream[Event], which: int, after: int) -> None:
        async def read() -> History[Event]:
            return await self.journals[which].read(stream, after=after)

        standing = self.model.get(stream, [])
        wanted = History(tuple(standing[max(after, 0) :]), len(standing))
        assert self.portal.call(read) == wanted

    @rule(stream=streams, which=which, less=st.integers(1, 3))
    def see_it_moved(self, stream: Stream[Event], which: int, less: int) -> None:
        version = len(self.model.get(stream, []))

        async def moved() -> int:
            return await self.journals[which].moved(stream, after=version - less)

        assert self.portal.call(moved) == version

    @invariant()
    def open_streams_are_those_that_have_not_ended(self) -> None:
        for journal in self.journals:
            for category in ("claims", "episodes"):
                wanted = {
                    stream.key
                    for stream, standing in self.model.items()
                    if stream.category == category and type(standing[-1]) not in ENDS
                }
                keys = self.portal.call(journal.open_streams, category)
                assert len(keys) == len(wanted)
                assert set(keys) == wanted

    def close(self) -> None:
        while self.opened:
            self.opened.pop().__exit__(None, None, None)
        self.journals.clear()

    def teardown(self) -> None:
        self.close()
        self.resources.close()


TestSqliteAgainstModel = SqliteAgainstModel.TestCase
