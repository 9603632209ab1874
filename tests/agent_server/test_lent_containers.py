# SPDX-License-Identifier: Apache-2.0
"""A container serves one session, by whichever of its names it was lent."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.docker_engine import (
    DockerSandboxProvider,
    open_docker_engine,
)
from livery.adapters.holders.memory import MemoryHolders
from livery.adapters.journals import MemoryJournal
from livery.adapters.system_clock import SystemClock
from livery.domain.agent_sessions import AgentSessionId, SandboxInUse
from livery.domain.claims import Holder
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.activate_harness import ActivateHarness
from livery.ports.provided.agent_sessions import AgentSessions
from livery.ports.provided.session_grants import SessionGrant
from livery.ports.provided.session_sandboxes import SessionSandboxes
from livery.ports.required.journal import Journal
from livery.ports.required.sandbox import SandboxAccess

from ..docker_engine import raw_engine
from .scripted import ScriptedHarness

pytestmark = [pytest.mark.anyio, pytest.mark.peer("docker")]

EPISODE = EpisodeId("r1", 0)
OTHER = AgentSessionId("other")


@asynccontextmanager
async def worker(journal: Journal, name: str) -> AsyncGenerator[AgentSessions]:
    """Open what one of several workers knows of sessions."""
    async with open_docker_engine() as provider:
        yield sessions_of(journal, Holder(name), provider)


def sessions_of(
    journal: Journal, own: Holder, provider: DockerSandboxProvider
) -> AgentSessions:
    clock, harness = SystemClock(), ScriptedHarness()
    return AgentSessions(
        journal=journal,
        clock=clock,
        holders=MemoryHolders(own, {Holder("one"), Holder("two")}),
        harness=harness,
        sandboxes=SessionSandboxes(
            harness=harness, providers={provider.name: provider}
        ),
        activate_harness=ActivateHarness(
            harness=harness,
            artifacts=MemoryArtifactStore(),
            clock=clock,
            supervisor_program=b"",
        ),
        among_others=True,
    )


def lent(reference: str, workdir: str = "/tmp") -> SessionGrant:
    access = SandboxAccess(
        provider="docker", descriptor={"sandbox_id": reference}, workdir=workdir
    )
    return SessionGrant(task=TaskId("set", "1"), access=access)


async def test_a_container_serves_one_session_however_it_is_spelled(
    test_image: str,
) -> None:
    name, journal = f"lent-{os.urandom(6).hex()}", MemoryJournal()
    whole = raw_engine.run_container(test_image, ["/bin/sleep", "600"], name=name)
    spellings = {"name": name, "id": whole, "short id": whole[:12]}
    try:
        for word, first in spellings.items():
            session = AgentSessionId(f"by {word}")
            async with worker(journal, "one") as one, worker(journal, "two") as two:
                await one.seed(session, EPISODE, lent(first))
                for second in spellings.values():
                    with pytest.raises(SandboxInUse) as refused:
                        await two.seed(OTHER, EPISODE, lent(second, "/made"))
                    assert refused.value.session == session
                await two.seed(session, EPISODE, lent(first))
                await two.close(session, EPISODE)
                await one.close(session, EPISODE)
            assert await journal.open_streams("lent_sandboxes") == ()
        _, told = raw_engine.request("GET", f"/containers/{whole}/changes")
    finally:
        raw_engine.remove(whole)

    changed = [str(one["Path"]) for one in json.loads(told) or ()]
    assert [path for path in changed if path.startswith(("/made", "/tmp/"))] == []
