# SPDX-License-Identifier: Apache-2.0
"""Shutdown: what is lent is stopped within the time, and what hangs is named."""

import logging
import math
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import attrs
import pytest

from livery.adapters.journals import open_sqlite_journal
from livery.adapters.system_clock import SystemClock
from livery.domain.claims import ClaimId
from livery.domain.resources_sessions import ResourcesSessionId
from livery.entrypoints.settings_reading import SettingsRefused
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.reap_claims import Finding, ReapClaims
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    SandboxSpec,
    Unsupported,
)

from ..benchmarks.nothing_provider import NothingSandbox
from ..use_cases.outside import BreakableProvider
from .folders import FolderProvider
from .serving import BoxWorld, ScriptedWorld, seed, serving

pytestmark = pytest.mark.anyio

LENT, CREATING, HUNG_IN = 300, 20, 10
SHUTDOWN_SECONDS = 8.0
MARGIN_SECONDS = 2.0
SLACK_SECONDS = 20.0
"""For a machine that is ten times slower; the bound that counts is the drain's own."""


@attrs.define
class HangingProvider(BreakableProvider):
    """One in ten cannot be ended, or does not come into being, until it is let go."""

    hangs_now: bool = True
    creating_hangs: bool = False
    begun: int = 0
    waiting: int = 0
    may_create: anyio.Event = attrs.field(factory=anyio.Event)
    names: list[ClaimId] = attrs.field(factory=list[ClaimId])

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> NothingSandbox:
        sandbox = await BreakableProvider.create(self, label, spec)
        self.names.append(label.claim)
        if self.creating_hangs:
            self.waiting += 1
            if len(self.names) % HUNG_IN == 0:
                await anyio.sleep_forever()
            await self.may_create.wait()
        return sandbox

    async def destroy(self, label: ClaimLabel) -> None:
        self.begun += 1
        number = self.names.index(label.claim) + 1 if label.claim in self.names else 1
        if self.hangs_now and number % HUNG_IN == 0:
            await anyio.sleep_forever()
        await BreakableProvider.destroy(self, label)


async def reap(state: Path, provider: BreakableProvider) -> list[str]:
    """Do what `livery claims reap` does, as a process of its own would."""

    @attrs.frozen
    class DeadHolders:
        own: str = "reaper"

        async def alive(self, holder: str) -> bool:
            return False

    folder = open_state_folder(state)
    async with open_sqlite_journal(folder.journal) as journal:
        use = ReapClaims(
            journal=journal,
            clock=SystemClock(),
            providers={provider.name: provider},
            owner=folder.owner,
            holders=DeadHolders(),  # type: ignore[arg-type]
        )
        report = await use()
    return [one.claim for one in report.reaped if one.finding is Finding.RELEASED]


async def test_three_hundred_lent_and_twenty_creating_are_stopped_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = HangingProvider()
    world = ScriptedWorld()
    took: list[float] = []
    state = tmp_path / "state"
    async with serving(
        state, world, provider, shutdown_seconds=SHUTDOWN_SECONDS, guide_file=None
    ) as server:
        for number in range(LENT):
            reply = await server.post("/seed_session", seed(f"lent-{number}"))
            assert reply.status_code == 200, reply.text
        provider.creating_hangs = True
        async with anyio.create_task_group() as group:
            for number in range(CREATING):
                group.start_soon(server.post, "/seed_session", seed(f"new-{number}"))
            with anyio.fail_after(SLACK_SECONDS):
                while provider.waiting < CREATING:  # noqa: ASYNC110 - other tasks count
                    await anyio.sleep(0.01)
            began = time.monotonic()
            async with anyio.create_task_group() as draining:
                draining.start_soon(server.application.served.drain)
                await anyio.lowlevel.checkpoint()
                provider.may_create.set()
            took.append(time.monotonic() - began)
            hung = list(provider.live)
            provider.hangs_now = False
            group.cancel_scope.cancel()

    assert took[0] <= SHUTDOWN_SECONDS + SLACK_SECONDS
    assert len(hung) == (LENT + CREATING) // HUNG_IN, "all that do not hang are stopped"
    lines = [r.message for r in caplog.records if r.levelno == logging.ERROR]
    lent_line = next(line for line in lines if line.startswith("Lent sandboxes were"))
    made_line = next(line for line in lines if line.startswith("Sandboxes being made"))
    assert f"({LENT // HUNG_IN})" in lent_line
    assert "lent-9" in lent_line
    assert "new-" in made_line
    assert "new-" not in lent_line
    assert f"({CREATING // HUNG_IN})" in made_line

    reaped = await reap(state, provider)

    assert provider.live == {}
    assert len(reaped) >= LENT // HUNG_IN


async def test_a_close_that_comes_while_a_seed_is_starting_stops_it_too(
    tmp_path: Path,
) -> None:
    provider = HangingProvider(hangs_now=False, creating_hangs=True)
    async with serving(tmp_path, ScriptedWorld(), provider, guide_file=None) as server:
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await server.post("/seed_session", seed())).status_code)

        async def close() -> None:
            statuses.append((await server.close()).status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            with anyio.fail_after(SLACK_SECONDS):
                while not provider.waiting:  # noqa: ASYNC110 - other tasks count
                    await anyio.sleep(0.01)
            group.start_soon(close)
            provider.may_create.set()

        assert statuses == [200, 200]
        assert provider.live == {}


async def test_too_short_a_shutdown_is_refused_where_sandboxes_are_lent(
    tmp_path: Path,
) -> None:
    with pytest.raises(SettingsRefused, match="too short to stop sandboxes"):
        async with serving(
            tmp_path, provider=BreakableProvider(), shutdown_seconds=2.5
        ):
            pass
    async with serving(tmp_path, shutdown_seconds=2.5) as server:
        assert (await server.get("/health")).status_code == 200


@pytest.mark.case("FC-166")
async def test_a_closed_internet_is_refused_where_it_cannot_be_enforced(
    tmp_path: Path,
) -> None:
    with pytest.raises(Unsupported, match="block_internet needs it"):
        async with serving(tmp_path, provider=BreakableProvider(), block_internet=True):
            pass


async def test_networks_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="holds no network"):
        async with serving(tmp_path, trusted_networks=("here",)):
            pass


async def test_a_world_without_apps_needs_a_provider_for_its_sandbox(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, ScriptedWorld()) as server:
        reply = await server.post("/seed_session", seed())

    assert (reply.status_code, reply.json()["kind"]) == (422, "unsupported")


async def test_a_server_that_follows_a_killed_one_goes_on_with_its_sessions(
    tmp_path: Path,
) -> None:
    # The first ends without closing anything: what it knew is in the state folder.
    world = BoxWorld(wants_sandbox=False)
    async with serving(tmp_path, world) as first:
        cookie = await first.seeded()
        await first.post("/box_put", {"word": "tin"}, cookie)

    async with serving(tmp_path, world) as second:
        again = await second.seeded()
        put = await second.post("/box_put", {"word": "gold"}, cookie)
        verdict = await second.verify(cookie)
        closed = await second.close()

    assert put.json() == {"kept": 2}
    assert verdict.json()["reward"] == 1.0
    assert closed.status_code == 200
    assert again
    assert world.built == ["1"]


@pytest.mark.parametrize("world", [ScriptedWorld(), BoxWorld()], ids=["plain", "apps"])
async def test_what_a_stopped_server_gave_back_is_told_as_lost_by_the_next(
    tmp_path: Path, world: ScriptedWorld | BoxWorld
) -> None:
    # A conflict would blame who asks; what is lost can be tried again elsewhere.
    provider = BreakableProvider()
    async with serving(tmp_path, world, provider, guide_file=None) as first:
        cookie = await first.seeded()
    assert provider.live == {}

    async with serving(tmp_path, world, provider, guide_file=None) as second:
        answers = [
            await second.verify(cookie),
            await second.post("/seed_session", seed()),
        ]
        closed = await second.close()

    for answer in answers:
        assert (answer.status_code, answer.json()["kind"]) == (502, "sandbox_lost")
        assert "it was given back" in answer.json()["detail"]
    assert closed.status_code == 200
    assert provider.live == {}


async def test_sessions_of_others_on_the_state_folder_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Such as those of a run in another process, which has no apps here.
    async with serving(tmp_path) as other:
        await other.seeded()

    async with serving(tmp_path, BoxWorld(wants_sandbox=False)) as server:
        assert server.application.served.sessions.open_here == ()

    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_an_idle_session_is_closed(tmp_path: Path) -> None:
    provider = HangingProvider(hangs_now=False)
    world = ScriptedWorld()
    async with serving(
        tmp_path, world, provider, idle_timeout_seconds=0.05, guide_file=None
    ) as server:
        await server.seeded()
        with anyio.fail_after(SLACK_SECONDS):
            while provider.live:  # noqa: ASYNC110 - the sweeper ends it
                await anyio.sleep(0.01)


@pytest.mark.case("FC-107")
async def test_a_session_with_a_call_under_way_is_not_idle(tmp_path: Path) -> None:
    world = BoxWorld(wants_sandbox=False, may_go_on=anyio.Event())
    statuses: list[int] = []
    async with serving(tmp_path, world) as server:
        served, session = server.application.served, ResourcesSessionId("s1")
        cookie = await server.seeded()

        async def call() -> None:
            reply = await server.post("/box_put", {"word": "w"}, cookie)
            statuses.append(reply.status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with anyio.fail_after(SLACK_SECONDS):
                await world.under_way.wait()
            served._used[session] = -math.inf  # The call takes as long as that.
            with anyio.fail_after(SLACK_SECONDS):
                await served._sweep_once()
            assert world.may_go_on is not None
            world.may_go_on.set()
        await served._sweep_once()
        await call()

    assert statuses == [200, 200]


async def test_a_session_whose_files_are_read_is_not_idle(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        served, session = server.application.served, ResourcesSessionId("s1")
        await server.seeded()
        token = server.application.tokens.token(session)
        served._used[session] = -math.inf

        read = await server.get("/files/GUIDE.md", token=token)
        await served._sweep_once()

        assert served.sessions.open_here == (session,)
    assert read.status_code == 200
