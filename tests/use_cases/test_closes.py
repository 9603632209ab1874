# SPDX-License-Identifier: Apache-2.0
"""A close that another process's seed overtakes ends what was seeded, and tells of it."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import attrs
import pytest

from livery.adapters.journals import MemoryJournal
from livery.domain.agent_sessions import AgentSessionId, SessionClosed
from livery.domain.resources_sessions import ResourcesClosed, ResourcesSessionId
from livery.domain.rollouts import rollout_id
from livery.domain.tasks import EpisodeId
from livery.ports.required.journal import History, Stream, StreamMoved

from .stable import Ground, Stable, task

pytestmark = pytest.mark.anyio

E = TypeVar("E")
EPISODE = EpisodeId(rollout_id(task().task_id, 0))
AGENT = AgentSessionId("agent-1")
RESOURCES = ResourcesSessionId("resources-1")


@attrs.define
class OvertakenJournal:
    """A journal in which others do something just before an event is written."""

    kept: MemoryJournal
    before: type
    others: Callable[[], Awaitable[None]]
    times: int = 1

    async def append(
        self, stream: Stream[E], events: Sequence[E], *, expected_version: int
    ) -> int:
        if self.times and any(isinstance(event, self.before) for event in events):
            self.times -= 1
            await self.others()
        return await self.kept.append(stream, events, expected_version=expected_version)

    async def read(self, stream: Stream[E], *, after: int = 0) -> History[E]:
        return await self.kept.read(stream, after=after)

    async def open_streams(self, category: str) -> tuple[str, ...]:
        return await self.kept.open_streams(category)

    async def moved(self, stream: Stream[E], *, after: int) -> int:
        return await self.kept.moved(stream, after=after)

    async def forget(self, stream: Stream[E], *, expected_version: int) -> None:
        await self.kept.forget(stream, expected_version=expected_version)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def seeded(stable: Stable) -> None:
    lent = await stable.resources.seed(RESOURCES, EPISODE, task())
    await stable.agent.seed(AGENT, EPISODE, task().task_id, lent)


async def test_an_agent_s_close_tells_of_what_ran_meanwhile(ground: Ground) -> None:
    async with ground.stable(ground.counting("true")) as first:

        async def others() -> None:
            await seeded(first)
            asked = task().responses_create_params
            await first.agent.activate(AGENT, EPISODE, asked)

        journal = OvertakenJournal(ground.journal, SessionClosed, others)
        async with ground.stable(ground.counting("true"), journal) as second:
            closed = await second.agent.close(AGENT, EPISODE)
        again = await first.agent.close(AGENT, EPISODE)
        await first.resources.close(RESOURCES, EPISODE)

    assert len(ground.starts) == 1
    assert closed.observations is not None
    assert again == closed
    assert ground.sandboxes == []


async def test_a_world_built_meanwhile_is_given_back_by_its_close(
    ground: Ground,
) -> None:
    async with ground.stable(ground.counting("true")) as first:

        async def others() -> None:
            await first.resources.seed(RESOURCES, EPISODE, task())

        journal = OvertakenJournal(ground.journal, ResourcesClosed, others)
        async with ground.stable(ground.counting("true"), journal) as second:
            await second.resources.close(RESOURCES, EPISODE)

    assert ground.sandboxes == []


@pytest.mark.parametrize("ending", [SessionClosed, ResourcesClosed])
async def test_a_close_that_is_always_overtaken_gives_up(
    ground: Ground, ending: type
) -> None:
    async def others() -> None:
        raise StreamMoved(category="sessions", key="1", expected=0, found=1)

    journal = OvertakenJournal(ground.journal, ending, others, times=1_000)
    async with ground.stable(ground.counting("true"), journal) as it:
        with pytest.raises(Exception, match="is at version"):
            await (
                it.agent.close(AGENT, EPISODE)
                if ending is SessionClosed
                else it.resources.close(RESOURCES, EPISODE)
            )

    assert 900 < journal.times < 1_000
