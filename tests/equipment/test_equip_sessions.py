# SPDX-License-Identifier: Apache-2.0
"""A session has its program and its model from its seed to its close, and no longer."""

import json
import platform
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.host_ports import BadTarget, dial_url
from livery.adapters.worker_scripts import program
from livery.domain.agent_sessions import AgentSessionId, SeedStarted
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.runtimes import Platform, version_by_digest
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.provided.bring_program import BringProgram
from livery.ports.provided.equip_sessions import RUNTIME_ARTIFACT, EquipSessions, Site
from livery.ports.provided.keep_calls import CALLS_ARTIFACT
from livery.ports.provided.reach_model import ReachModel
from livery.ports.provided.runtime_faults import RuntimeNotMounted
from livery.ports.provided.session_grants import SessionGrant
from livery.ports.required.artifact_store import (
    Artifact,
    ArtifactStoreUnusable,
    Reader,
    Shelf,
)
from livery.ports.required.harness import (
    Delivery,
    RuntimeNeed,
    ToolAccess,
    ToolTransport,
)
from livery.ports.required.model_access import (
    CallEnd,
    ModelCall,
    ModelGrant,
    ModelRecord,
)
from livery.ports.required.sandbox import Sandbox
from livery.ports.required.sandbox_provider import Capability, Network

from ..relay.far_ends import starting
from ..runtimes.registry import NAME, VERSION
from ..runtimes.sandboxes import Host, host_in

pytestmark = pytest.mark.anyio

EPISODE = EpisodeId("r1")
SESSION = AgentSessionId("s1")
TASK = TaskId("set", "1")
PREFIX = "/ng-rollout/k"
MACHINE = platform.machine()
SEEDED = SeedStarted(
    session=SESSION,
    episode=EPISODE,
    request=RequestDigest("d"),
    stepwise=False,
    at=Instant(1.0),
)
LENT = SessionGrant(task=TASK)


@attrs.define
class NotedAccess:
    """Grants, and notes what it is asked."""

    granted: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    calls: list[ModelCall] = attrs.field(factory=list[ModelCall])
    dropped: int = 0
    revoked: list[str] = attrs.field(factory=list[str])

    async def grant(
        self, session: AgentSessionId, *, prefix: str = "", shelf: Shelf | None = None
    ) -> ModelGrant:
        self.granted.append((session, prefix))
        return ModelGrant(base_url=f"http://here{prefix}", placeholder="p")

    def seen(self, session: AgentSessionId) -> ModelRecord:
        return ModelRecord(
            calls=len(self.granted),
            failures=0,
            entries=tuple(self.calls),
            entries_dropped=self.dropped,
        )

    async def revoke(self, session: AgentSessionId) -> ModelRecord:
        self.revoked.append(session)
        return self.seen(session)


class FullStore(MemoryArtifactStore):
    """Takes nothing."""

    async def put(self, *_: Any, **__: Any) -> Artifact:
        raise ArtifactStoreUnusable("/full", "the disk is full")


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with host_in(tmp_path) as opened:
        yield opened


@pytest.fixture
async def sandbox(host: Host) -> Sandbox:
    return await host.sandbox()


def bringing(host: Host, **need: Any) -> BringProgram:
    words: dict[str, Any] = {"name": NAME, "version": VERSION, **need}
    return BringProgram(
        need=RuntimeNeed(**words), install=host.install(), machine=MACHINE
    )


def equipping(
    site: Site,
    program_: BringProgram | None = None,
    access: NotedAccess | None = None,
    *,
    artifacts: MemoryArtifactStore | None = None,
    keeps_prefix: bool = False,
) -> EquipSessions:
    model = None
    if access is not None:
        model = ReachModel(
            access=access,
            dial=dial_url("http://127.0.0.1:9"),
            relay_start=starting(sys.executable),
            mailbox_program=program("mailbox"),
        )
    return EquipSessions(
        sites={"local": site},
        artifacts=artifacts or MemoryArtifactStore(),
        program=program_,
        model=model,
        keeps_prefix=keeps_prefix,
        dial=dial_url,
    )


def tool(name: str, url: str, *, required: bool = True) -> ToolAccess:
    return ToolAccess(
        transport=ToolTransport.MCP, name=name, url=url, required=required
    )


async def kept(artifacts: MemoryArtifactStore, name: str) -> bytes:
    opened = artifacts.get(Shelf(EPISODE.key), name, reader=Reader.OPERATOR)
    async with opened as pieces:
        return b"".join([piece async for piece in pieces])


def call(number: int) -> ModelCall:
    return ModelCall(
        number=number,
        at=Instant(1.0),
        method="POST",
        path="/v1/messages",
        status=529,
        end=CallEnd.THROTTLED,
        usage={"input_tokens": 7},
    )


async def test_how_a_program_came_first_is_kept_as_an_artifact(
    host: Host, sandbox: Sandbox
) -> None:
    artifacts = MemoryArtifactStore()
    outfit = equipping(Site(), bringing(host), artifacts=artifacts)

    first = await outfit.bring(SEEDED, LENT, sandbox)
    second = await outfit.bring(SEEDED, LENT, sandbox)

    assert first.runtime is not None
    assert second.runtime is not None
    assert first.runtime_path == second.runtime_path == first.runtime["path"]
    assert (first.runtime["came"], second.runtime["came"]) == ("transferred", "reused")
    assert json.loads(await kept(artifacts, RUNTIME_ARTIFACT)) == first.runtime
    assert first.runtime["sha256"] == host.source.sha256
    assert (first.model, first.seen_of_model) == (None, None)


async def test_a_sandbox_that_sees_this_host_runs_its_file_in_place(
    host: Host, sandbox: Sandbox
) -> None:
    outfit = equipping(Site(sees_host=True), bringing(host))
    sent = equipping(Site(sees_host=True), bringing(host, delivery=Delivery.TRANSFER))

    found = await outfit.check(sandbox)
    other = await sent.check(sandbox)

    assert found is not None
    assert other is not None
    assert (found.path, found.came.value) == (str(host.source.path), "in place")
    assert other.came.value == "transferred"


async def test_what_was_mounted_is_in_sandboxes_of_ours_alone(
    host: Host, sandbox: Sandbox
) -> None:
    mounted = {
        Platform(system="linux", machine=MACHINE, libc=libc): str(host.source.path)
        for libc in ("glibc", "musl")
    }
    lent = attrs.evolve(LENT, access=sandbox.access())
    bring = bringing(host, delivery=Delivery.MOUNT)
    theirs = equipping(Site(mounted=mounted), bring)
    ours = equipping(Site(mounted=mounted, lends_own=True), bring)

    owned = await theirs.bring(SEEDED, LENT, sandbox)
    borrowed = await ours.bring(SEEDED, lent, sandbox)

    assert owned.runtime_path == borrowed.runtime_path == str(host.source.path)
    with pytest.raises(RuntimeNotMounted):
        await theirs.bring(SEEDED, lent, sandbox)


async def test_a_program_that_is_in_the_sandbox_is_known_by_its_digest(
    host: Host, sandbox: Sandbox
) -> None:
    inside = bringing(
        host,
        version=None,
        sandbox_path=str(host.source.path),
        sha256=host.source.sha256,
    )

    found = await equipping(Site(), inside).check(sandbox)

    assert found is not None
    assert found.came.value == "stood"
    assert found.runtime.version == version_by_digest(host.source.sha256)
    assert await inside.mounts(frozenset(Capability)) == ()


@pytest.mark.parametrize(
    ("delivery", "without", "libcs"),
    [
        (Delivery.AUTO, None, ["glibc"]),
        (Delivery.MOUNT, None, ["glibc", "musl"]),
        (Delivery.TRANSFER, None, []),
        (Delivery.AUTO, Capability.MOUNTS, []),
        (Delivery.AUTO, Capability.HOST_FILES, []),
    ],
)
async def test_what_is_mounted_follows_from_the_need_and_the_provider(
    host: Host, delivery: Delivery, without: Capability | None, libcs: list[str]
) -> None:
    able = frozenset(Capability) - {without}

    found = await bringing(host, delivery=delivery).mounts(able)

    assert [one.platform for one in found] == [
        Platform(system="linux", machine=MACHINE, libc=libc) for libc in libcs
    ]
    assert {one.mount.source for one in found} <= {str(host.source.path)}
    assert all(one.mount.read_only for one in found)


@pytest.mark.parametrize("keeps_prefix", [True, False])
async def test_a_model_is_granted_at_seed_and_revoked_at_close(
    sandbox: Sandbox, keeps_prefix: bool
) -> None:
    access = NotedAccess()
    outfit = equipping(Site(), access=access, keeps_prefix=keeps_prefix)

    brought = await outfit.bring(SEEDED, LENT, sandbox)
    async with outfit.reach(
        SEEDED, LENT, sandbox, brought, model_prefix=PREFIX
    ) as reached:
        seen = reached.seen_of_model
    await outfit.take_back(SESSION)

    prefix = PREFIX if keeps_prefix else ""
    assert access.granted == [("s1", ""), ("s1", prefix)]
    assert access.revoked == ["s1"]
    assert brought.model == ModelGrant(base_url="http://here", placeholder="p")
    assert reached.model is not None
    assert reached.model.base_url == f"http://here{prefix}"
    assert seen is not None
    assert seen().calls == 2


async def test_the_calls_of_each_run_are_kept_one_by_one(sandbox: Sandbox) -> None:
    access, artifacts = NotedAccess(), MemoryArtifactStore()
    outfit = equipping(Site(), access=access, artifacts=artifacts)
    brought = await outfit.bring(SEEDED, LENT, sandbox)

    for numbers, dropped in [((1,), 0), ((), 0), ((2, 3), 0), ((5,), 4)]:
        async with outfit.reach(SEEDED, LENT, sandbox, brought, model_prefix=""):
            access.calls = [*access.calls, *map(call, numbers)]
            if dropped:
                access.calls, access.dropped = access.calls[-1:], dropped

    lines = [
        json.loads(one) for one in (await kept(artifacts, CALLS_ARTIFACT)).splitlines()
    ]
    assert [one.get("number") for one in lines] == [1, 2, 3, None, 5]
    assert lines[3] == {"calls_not_kept": 1}
    assert (lines[0]["end"], lines[0]["status"]) == ("throttled", 529)
    assert lines[0]["usage"] == {"input_tokens": 7}


async def test_a_run_does_not_fail_for_what_could_not_be_kept(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    access = NotedAccess()
    outfit = attrs.evolve(equipping(Site(), access=access), artifacts=FullStore())
    brought = await outfit.bring(SEEDED, LENT, sandbox)

    async with outfit.reach(SEEDED, LENT, sandbox, brought, model_prefix=""):
        access.calls.append(call(1))

    assert "the disk is full" in caplog.text


async def test_tools_of_a_closed_sandbox_go_through_the_relay(
    host: Host, sandbox: Sandbox
) -> None:
    far = tool("far", "https://example.invalid/mcp", required=False)
    grant = SessionGrant(
        task=TASK, tools=(tool("near", "http://127.0.0.1:9/mcp?x=1"), far)
    )
    outfit = equipping(Site(network=Network.NONE, relays=True), access=NotedAccess())

    brought = await outfit.bring(SEEDED, grant, sandbox)
    async with outfit.reach(
        SEEDED, grant, sandbox, brought, model_prefix=""
    ) as reached:
        assert reached.tools is not None
        near, other = reached.tools

    assert near.url.startswith("http://127.0.0.1:")
    assert near.url.endswith("/mcp?x=1")
    assert near.url != "http://127.0.0.1:9/mcp?x=1"
    assert other == far


async def test_a_needed_tool_that_nothing_can_carry_is_refused_at_seed(
    host: Host, sandbox: Sandbox
) -> None:
    grant = SessionGrant(task=TASK, tools=(tool("far", "https://example.invalid/"),))
    closed = equipping(Site(network=Network.NONE, relays=True), access=NotedAccess())
    opened = equipping(Site(relays=True), access=NotedAccess())

    await opened.bring(SEEDED, grant, sandbox)
    with pytest.raises(BadTarget):
        await closed.bring(SEEDED, grant, sandbox)


async def test_without_a_sandbox_or_a_model_there_is_nothing_to_reach(
    host: Host, sandbox: Sandbox
) -> None:
    outfit = equipping(Site(), bringing(host))
    brought = await outfit.bring(SEEDED, LENT, None)

    async with outfit.reach(SEEDED, LENT, None, brought, model_prefix="") as reached:
        pass
    await outfit.take_back(SESSION)

    assert reached == brought
    assert brought.runtime is None
    assert await equipping(Site()).check(sandbox) is None
