# SPDX-License-Identifier: Apache-2.0
"""Batches of the SQLite writer against a model, beside another writer of the same file.

Whatever way a batch is written, in one statement or in steps, its answers and what is in
the file afterwards are the model's.
"""

import os
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from livery.adapters.journals.records import Record
from livery.adapters.journals.sqlite_batches import (
    CHARACTERS_AT_ONCE_MAX,
    ROWS_AT_ONCE_MAX,
)
from livery.adapters.journals.sqlite_file import JournalFile
from livery.adapters.journals.sqlite_writes import HEADS_MAX, Writer
from livery.adapters.journals.waiting import Name
from livery.adapters.journals.writes import Append, Forget, Write
from livery.ports.required.journal import JournalUnusable, StreamMoved

MEMORY_DISK = Path("/dev/shm")
Model = dict[Name, list[Record]]

NAMES: tuple[Name, ...] = tuple(
    (category, key) for category in ("claims", "places") for key in "abc"
)
MANY = ROWS_AT_ONCE_MAX // 2 + 1
AS_IF_ABSENT = -1000

records = st.builds(Record, kind=st.sampled_from("kl"), body=st.sampled_from("xy"))
several = st.lists(records, max_size=3).map(tuple) | st.just((Record("k", "x"),) * MANY)
off = st.sampled_from([0] * 8 + [1, -1, AS_IF_ABSENT])
plans = st.lists(
    st.tuples(
        st.sampled_from(NAMES), off, st.none() | several | several, st.booleans()
    ),
    min_size=1,
    max_size=8,
)
Plan = list[tuple[Name, int, tuple[Record, ...] | None, bool]]


def carried_out(model: Model, plan: Plan) -> tuple[list[Write], list[object]]:
    """Carry the plan out on the model; return the writes, and the answers to them."""
    works: list[Write] = []
    answers: list[object] = []
    for name, off, added, stays_open in plan:
        standing = model.get(name, [])
        expected = max(len(standing) + off, 0)
        work: Write = Forget(stream=name, expected=expected)
        if added is not None:
            work = Append(
                stream=name, expected=expected, records=added, stays_open=stays_open
            )
        works.append(work)
        if expected != len(standing):
            answers.append((name, len(standing)))
        elif added is None:
            model.pop(name, None)
            answers.append(0)
        else:
            if added:
                model[name] = [*standing, *added]
            answers.append(expected + len(added))
    return works, answers


class BatchesAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: Model = {}
        self.open: set[Name] = set()
        disk = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="livery-test-", dir=disk)
        self.file = JournalFile(path=Path(self.folder.name) / "journal.sqlite")
        self.writers: list[tuple[Writer, sqlite3.Connection]] = []

    @initialize()
    def connect(self) -> None:
        for _ in range(2):
            writer = Writer(file=self.file)
            self.writers.append((writer, writer.connect()))

    # One of them is mostly alone.
    @rule(plan=plans, which=st.sampled_from([0, 0, 0, 0, 0, 1]))
    def write(self, plan: Plan, which: int) -> None:
        works, wanted = carried_out(self.model, plan)
        for work, answer in zip(works, wanted, strict=True):
            if isinstance(answer, tuple) or (
                isinstance(work, Append) and not work.records
            ):
                continue
            self.open.discard(work.stream)
            if isinstance(work, Append) and work.stays_open:
                self.open.add(work.stream)

        writer, connection = self.writers[which]
        answers = writer.run(connection, works)

        assert [told(answer) for answer in answers] == wanted

    @invariant()
    def the_file_holds_what_the_model_holds(self) -> None:
        if not self.writers:
            return
        _, connection = self.writers[1]
        rows = connection.execute(
            "SELECT category, key, streams.version, is_open, events.version, kind, body"
            " FROM streams JOIN events ON events.stream = streams.id"
            " ORDER BY streams.id, events.version"
        )
        found: Model = {}
        for category, key, stands, is_open, version, kind, body in rows:
            name = (category, key)
            assert stands == len(self.model[name])
            assert bool(is_open) == (name in self.open)
            found.setdefault(name, []).append(Record(kind, body))
            assert version == len(found[name])
        assert found == self.model
        (orphans,) = connection.execute(
            "SELECT count(*) FROM events WHERE stream NOT IN (SELECT id FROM streams)"
        ).fetchone()
        assert orphans == 0

    def teardown(self) -> None:
        for _, connection in self.writers:
            connection.close()
        self.folder.cleanup()


def told(answer: object) -> object:
    if isinstance(answer, StreamMoved):
        return (answer.category, answer.key), answer.found
    return answer


TestBatchesAgainstModel = BatchesAgainstModel.TestCase


def statements_of(
    writer: Writer, connection: sqlite3.Connection, works: Sequence[Write]
) -> list[str]:
    """Write the batch; return the statements that the thread waited for."""
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    writer.run(connection, works)
    connection.set_trace_callback(None)
    # What a trigger does is told as a comment, or as the whole once more.
    return list(dict.fromkeys(each for each in seen if not each.startswith("--")))


def appended(name: Name, expected: int, *bodies: str) -> Append:
    return Append(
        stream=name,
        expected=expected,
        records=tuple(Record("k", body) for body in bodies),
        stays_open=True,
    )


def test_a_batch_is_one_statement_while_nobody_else_writes(tmp_path: Path) -> None:
    file = JournalFile(path=tmp_path / "journal.sqlite")
    writer, other = Writer(file=file), Writer(file=file)
    a, b, c = NAMES[:3]
    mixed: list[Write] = [
        appended(a, 2, "3", "4"),
        Forget(stream=b, expected=1),
        appended(c, 0),
        appended(c, 0, "1"),
    ]
    with closing(writer.connect()) as own, closing(other.connect()) as of_other:
        writer.run(own, [appended(a, 0, "1"), appended(b, 0, "1")])
        writer.run(own, [appended(a, 1, "2")])
        assert len(statements_of(writer, own, mixed)) == 1

        other.run(of_other, [appended(b, 0, "of the other")])
        after_another = statements_of(writer, own, [appended(a, 4, "5")])
        assert after_another[-1] == "COMMIT"
        writer.run(own, [appended(a, 5, "6")])
        assert len(statements_of(writer, own, [appended(a, 6, "7")])) == 1


def test_what_others_wrote_is_not_taken_for_missing(tmp_path: Path) -> None:
    file = JournalFile(path=tmp_path / "journal.sqlite")
    writer, other = Writer(file=file), Writer(file=file)
    a, b, c = NAMES[:3]
    works: list[Write] = [
        appended(b, 2, "3"),
        appended(a, 0),
        appended(a, 0, "again"),
        Forget(stream=a, expected=0),
    ]
    with closing(writer.connect()) as own, closing(other.connect()) as of_other:
        other.run(of_other, [appended(a, 0, "1"), appended(b, 0, "1", "2")])
        writer.run(own, [appended(c, 0, "1")])
        writer.run(own, [appended(c, 1, "2")])  # From here on it is alone.

        answers = writer.run(own, works)

    moved = (a, 1)
    assert [told(answer) for answer in answers] == [3, moved, moved, moved]


def test_a_living_stream_that_is_not_known_is_not_taken_for_forgotten(
    tmp_path: Path,
) -> None:
    file = JournalFile(path=tmp_path / "journal.sqlite")
    writer, other = Writer(file=file), Writer(file=file)
    a, b = NAMES[:2]
    works: list[Write] = [appended(b, 2, "3"), Forget(stream=a, expected=0)]
    with closing(writer.connect()) as own, closing(other.connect()) as of_other:
        other.run(of_other, [appended(a, 0, "1")])
        writer.run(own, [appended(b, 0, "1")])
        writer.run(own, [appended(b, 1, "2")])

        answers = writer.run(own, works)

    assert [told(answer) for answer in answers] == [3, (a, 1)]


def test_a_batch_that_says_very_much_is_written_too(tmp_path: Path) -> None:
    writer = Writer(file=JournalFile(path=tmp_path / "journal.sqlite"))
    a = NAMES[0]
    large = "y" * (CHARACTERS_AT_ONCE_MAX + 1)
    with closing(writer.connect()) as own:
        writer.run(own, [appended(a, 0, "x")])
        writer.run(own, [appended(a, 1, "x")])
        assert writer.run(own, [appended(a, 2, large)]) == [3]
        (size,) = own.execute("SELECT max(length(body)) FROM events").fetchone()

    assert size == len(large)


def test_what_is_no_longer_known_is_looked_up(tmp_path: Path) -> None:
    writer = Writer(file=JournalFile(path=tmp_path / "journal.sqlite"))
    names: list[Name] = [("claims", str(number)) for number in range(HEADS_MAX + 8)]
    with closing(writer.connect()) as own:
        writer.run(own, [appended(name, 0, "1") for name in names])
        again = [appended(names[0], 1, "2"), appended(names[-1], 1, "2")]

        assert writer.run(own, again) == [2, 2]
        assert writer.run(own, [Forget(stream=names[1], expected=1)]) == [0]
        assert writer.run(own, [appended(names[1], 0, "anew")]) == [1]


def test_a_batch_that_failed_is_not_taken_for_written(tmp_path: Path) -> None:
    writer = Writer(file=JournalFile(path=tmp_path / "journal.sqlite"))
    a, b = NAMES[:2]
    with closing(writer.connect()) as own:
        for expected in range(3):
            writer.run(own, [appended(a, expected, "x")])
        (pages,) = own.execute("PRAGMA page_count").fetchone()
        own.execute(f"PRAGMA max_page_count = {pages}")
        large = "y" * 100_000
        with pytest.raises(JournalUnusable):
            writer.run(own, [appended(a, 3, large), appended(b, 0, large)])
        own.execute(f"PRAGMA max_page_count = {2**30}")

        assert writer.run(own, [appended(b, 0, "z"), appended(a, 3, "z")]) == [1, 4]
        bodies = own.execute("SELECT body FROM events ORDER BY position").fetchall()

    assert [body for (body,) in bodies] == ["x", "x", "x", "z", "z"]
