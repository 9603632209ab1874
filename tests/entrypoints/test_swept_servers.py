# SPDX-License-Identifier: Apache-2.0
"""Each server gives back what a dead process left, beside its work."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest

from livery.domain.claims import ClaimId
from livery.entrypoints.agent_server.composition import open_agent_server
from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.built_in import PROVIDERS
from livery.entrypoints.composition import (
    claims_of,
    open_foundation,
    open_provider,
    read_options,
)
from livery.entrypoints.environment_server.composition import open_environment_server
from livery.entrypoints.plug_ins import ProviderPlugIn, Surroundings, find
from livery.entrypoints.resources_server.composition import open_resources_server
from livery.entrypoints.server_foundation import (
    open_server_foundation,
    standing_on,
    swept,
)
from livery.entrypoints.settings_reading import SettingsFile, read_settings
from livery.entrypoints.state_folder import StateFolder, open_state_folder
from livery.ports.provided.secret_values import SecretValues
from livery.ports.required.sandbox_provider import SandboxSpec

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 60.0
CLAIM = ClaimId("left-by-a-dead-process")
SERVERS = ("agent", "resources", "environment", "all")
SETTINGS = """
[reaper]
interval_seconds = 0.05
grace_seconds = 0.05
[agent_server]
port = 0
harness = "nop"
[resources_server]
port = 0
[environment_server]
port = 0
"""


def settings(folder: Path, text: str = SETTINGS) -> SettingsFile:
    path = folder / "livery.toml"
    path.write_text(text)
    return read_settings(path)


async def left_behind(file: SettingsFile, state: StateFolder) -> None:
    """Leave a claim, as a process does that was killed."""
    journal = file.settings.journal
    async with open_foundation(state, SecretValues(), journal) as foundation:
        plug_in = find(ProviderPlugIn, "local", PROVIDERS)
        (options,) = read_options(file, (plug_in.options, "sandbox", "local", {}))
        async with open_provider(foundation, "local", plug_in, options) as provider:
            claim, _ = claims_of(foundation, provider)
            spec = SandboxSpec()
            held = await claim(CLAIM, spec, used_by="an episode")
            await held.sandbox.disconnect()


async def open_claims(file: SettingsFile, state: StateFolder) -> tuple[str, ...]:
    journal = file.settings.journal
    async with open_foundation(state, SecretValues(), journal) as foundation:
        return await foundation.journal.open_streams("claims")


def opened(
    name: str, file: SettingsFile, state: StateFolder
) -> AbstractAsyncContextManager[object]:
    surroundings = Surroundings(name=name, state=state.path)
    match name:
        case "agent":
            return open_agent_server(file, state, surroundings)
        case "resources":
            return open_resources_server(file, state, surroundings)
        case "environment":
            return open_environment_server(file, state, surroundings)
        case _:
            return open_all_servers(file, state, surroundings)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_gives_back_what_a_dead_process_left(
    name: str, tmp_path: Path
) -> None:
    file, state = settings(tmp_path), open_state_folder(tmp_path / "state")
    await left_behind(file, state)
    before = await open_claims(file, state)

    async with opened(name, file, state):
        with anyio.fail_after(WAIT_SECONDS):
            while await open_claims(file, state):  # noqa: ASYNC110 - no event tells
                await anyio.sleep(0.05)

    assert before == (CLAIM,)


async def test_without_an_interval_nothing_is_swept(tmp_path: Path) -> None:
    text = SETTINGS.replace("interval_seconds = 0.05", 'interval_seconds = "none"')
    file, state = settings(tmp_path, text), open_state_folder(tmp_path / "state")

    async with (
        open_server_foundation(file, state, SecretValues()) as foundation,
        standing_on(foundation, file, state, SecretValues()) as same,
    ):
        assert same is foundation


async def test_what_is_raised_beside_the_reaper_comes_as_it_is(tmp_path: Path) -> None:
    file, state = settings(tmp_path), open_state_folder(tmp_path / "state")

    with pytest.raises(ZeroDivisionError):
        async with open_server_foundation(file, state, SecretValues()):
            raise ZeroDivisionError


def test_it_sweeps_the_providers_that_the_settings_name(tmp_path: Path) -> None:
    text = """
[sandbox.small]
provider = "docker"
[agent_server]
sandbox_provider = "small"
[resources_server]
sandbox_provider = "opensandbox"
"""
    assert swept(settings(tmp_path, text)) == ("small", "opensandbox", "local")
    assert swept(SettingsFile()) == ("local",)
