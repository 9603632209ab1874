# SPDX-License-Identifier: Apache-2.0
"""The check before a run finds what no sandbox of the run could do, and what tasks close."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.harnesses.nop import NopHarness
from livery.domain.claims import ClaimId
from livery.entrypoints.composition import (
    Foundation,
    Parts,
    claims_of,
    open_foundation,
    prepare,
)
from livery.entrypoints.journal_settings import JournalSettings
from livery.entrypoints.model_settings import ModelSettings
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.run_plan import plan_of
from livery.entrypoints.sandbox_check import USED_BY, check_sandbox, open_run_tailor
from livery.entrypoints.settings_reading import SettingsFile
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.secret_values import SecretValues
from livery.ports.required.sandbox_provider import (
    Capability,
    ImageMissing,
    SandboxSpec,
    Unsupported,
)
from livery.ports.required.task_source import TasksRefused

from ..use_cases.outside import BreakableProvider
from .command_lines import task, task_file

pytestmark = pytest.mark.anyio

MODEL = ModelSettings(url="http://127.0.0.1:9", advertised_url="http://10.0.0.1:8000")


class Needy(NopHarness):
    """Wants to be frozen."""

    needs = frozenset({Capability.FREEZING})


@asynccontextmanager
async def prepared(
    folder: Path, *rows: object
) -> AsyncGenerator[tuple[Parts, Foundation]]:
    """Read a run of `claude_code` on some tasks."""
    state = open_state_folder(folder / "state")
    surroundings = Surroundings(name="fake", state=folder / "state")
    chosen = {"harness": "claude_code", "sandbox": "docker"}
    plan = attrs.evolve(plan_of(SettingsFile(), chosen), model=MODEL)
    source = str(task_file(folder, *rows))
    parts = prepare(plan, source, SettingsFile(), surroundings)
    async with open_foundation(state, SecretValues(), JournalSettings()) as foundation:
        yield parts, foundation


@pytest.mark.parametrize("closes", [True, False])
async def test_one_task_that_closes_the_network_has_all_of_them_take_the_relay(
    tmp_path: Path, closes: bool
) -> None:
    provider, artifacts = BreakableProvider(), MemoryArtifactStore()
    provider.capabilities = frozenset(Capability)
    wish = {"sandbox": {"network": "none"}} if closes else {}
    rows = (task("open"), task("closed", **wish))
    async with (
        prepared(tmp_path, *rows) as (parts, foundation),
        open_run_tailor(parts, foundation, artifacts) as tailor,
    ):
        fitted = await check_sandbox(parts, foundation, provider, tailor, artifacts)

    assert fitted.outfit is not None
    assert fitted.outfit.sites[provider.name].relays is closes
    assert provider.live == {}


@pytest.mark.parametrize("wish", ["mine:1", None])
async def test_an_image_that_a_task_names_and_nobody_has_is_told_with_the_task(
    tmp_path: Path, wish: str | None
) -> None:
    provider, artifacts = BreakableProvider(), MemoryArtifactStore()
    missing = ImageMissing("fake", wish or "python:3.12-slim", "it is not there")
    provider.create_fault = missing
    row = task("open", **({"sandbox": {"image": wish}} if wish else {}))

    async with (
        prepared(tmp_path, row) as (parts, foundation),
        open_run_tailor(parts, foundation, artifacts) as tailor,
    ):
        with pytest.raises((TasksRefused, ImageMissing)) as told:
            await check_sandbox(parts, foundation, provider, tailor, artifacts)

    if wish is None:
        assert told.value is missing
    else:
        assert isinstance(told.value, TasksRefused)
        assert told.value.where == str(tmp_path / "tasks.jsonl")
        assert told.value.mistakes == f"line 1: Task open: {missing}"


async def test_what_the_harness_needs_and_nobody_can_do_is_refused_by_name(
    tmp_path: Path,
) -> None:
    provider, artifacts = BreakableProvider(), MemoryArtifactStore()

    async with prepared(tmp_path, task("open")) as (parts, foundation):
        needy = attrs.evolve(parts, harness=Needy())
        async with open_run_tailor(needy, foundation, artifacts) as tailor:
            with pytest.raises(Unsupported) as told:
                await check_sandbox(needy, foundation, provider, tailor, artifacts)

    assert told.value.capability == Capability.FREEZING.value
    assert provider.made == []


async def test_what_a_killed_check_held_is_given_back_by_the_next_and_no_more_than_that(
    tmp_path: Path,
) -> None:
    provider, artifacts = BreakableProvider(), MemoryArtifactStore()
    killed, living = ClaimId("check-killed"), ClaimId("check-living")
    episode = ClaimId("of-an-episode")
    async with prepared(tmp_path, task("open")) as (_, dead):
        claim, _ = claims_of(dead, provider)
        await claim(killed, SandboxSpec(), used_by=USED_BY)
        await claim(episode, SandboxSpec(), used_by="t0.r0.a0")

    async with (
        prepared(tmp_path, task("open")) as (_, other),
        prepared(tmp_path, task("open")) as (parts, foundation),
        open_run_tailor(parts, foundation, artifacts) as tailor,
    ):
        claim, _ = claims_of(other, provider)
        await claim(living, SandboxSpec(), used_by=USED_BY)
        await check_sandbox(parts, foundation, provider, tailor, artifacts)
        left = await foundation.journal.open_streams("claims")

    assert set(provider.live) == {living, episode}
    assert set(left) == {living, episode}
