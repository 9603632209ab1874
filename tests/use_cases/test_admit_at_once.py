# SPDX-License-Identifier: Apache-2.0
"""A session has a place at once where one is free, and nothing is held otherwise."""

import anyio
import pytest

from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.domain.admissions import AdmissionIsShut, Ticket
from livery.domain.claims import Holder
from livery.ports.provided.admit_over_workers import AdmitOverWorkers
from livery.ports.provided.admit_sessions import AdmitSessions
from livery.ports.provided.shared_places import SharedPlaces
from livery.ports.required.journal import Journal, JournalUnusable, Stream

pytestmark = pytest.mark.anyio

A, B, C = Ticket("a"), Ticket("b"), Ticket("c")


class Broken(MemoryJournal):
    """Cannot be written."""

    async def append(  # type: ignore[no-untyped-def]
        self, stream: Stream[object], events: object, *, expected_version: int
    ):
        raise JournalUnusable(where="here", reason="broken", advice="Mend it.")


def worker(journal: Journal, own: str, *others: str, places: int) -> AdmitOverWorkers:
    holders = MemoryHolders(own=Holder(own), others={Holder(o) for o in others})
    clock = SystemClock()
    return AdmitOverWorkers(
        queue=AdmitSessions(clock=clock, places=places, patience_seconds=60.0),
        shared=SharedPlaces(
            journal=journal, clock=clock, holders=holders, name="some", places=places
        ),
    )


async def test_one_worker_has_what_another_gave_back() -> None:
    journal = MemoryJournal()
    one = worker(journal, "one", "two", places=1)
    two = worker(journal, "two", "one", places=1)

    assert await one.admit_at_once(A)
    assert await one.admit_at_once(A)
    assert not await one.admit_at_once(B)
    assert not await two.admit_at_once(B)
    assert not two.queue.holds(B)
    await one.leave(A)

    assert await two.admit_at_once(B)


async def test_nobody_overtakes_who_waits() -> None:
    journal = MemoryJournal()
    one = worker(journal, "one", "two", places=2)
    two = worker(journal, "two", "one", places=2)
    assert await two.admit_at_once(A)
    assert await two.admit_at_once(B)
    async with anyio.create_task_group() as group:
        group.start_soon(one.admit, C)
        await anyio.wait_all_tasks_blocked()
        await two.leave(A)

        assert not await one.admit_at_once(Ticket("late"))

    assert one.queue.holds(C)


async def test_what_fails_or_is_shut_holds_nothing() -> None:
    broken = worker(Broken(), "one", places=1)
    with pytest.raises(JournalUnusable):
        await broken.admit_at_once(A)
    assert not broken.queue.holds(A)

    shut = worker(MemoryJournal(), "one", places=1)
    shut.shut()
    with pytest.raises(AdmissionIsShut):
        await shut.admit_at_once(A)


async def test_a_session_that_is_kept_has_no_second_place() -> None:
    journal = MemoryJournal()
    one = worker(journal, "one", places=1)
    one.keep(A)

    assert not await one.admit_at_once(A)
    assert await journal.open_streams("places") == ()
