# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: what a server tells, that it is told in words, and that all comes to zero."""

import re
from pathlib import Path

import anyio
import attrs
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from livery.domain.claims import ClaimId
from livery.entrypoints.all_servers import open_all_servers
from livery.entrypoints.built_in import PROVIDERS
from livery.entrypoints.composition import (
    Foundation,
    claims_of,
    open_foundation,
    open_provider,
    read_options,
)
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.metrics_families import put_together
from livery.entrypoints.metrics_page import metrics_endpoint, metrics_routes
from livery.entrypoints.plug_ins import ProviderPlugIn, Surroundings, find
from livery.entrypoints.server_foundation import open_server_foundation
from livery.entrypoints.settings_reading import SettingsFile
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.secret_values import SecretValues
from livery.ports.required.journal import JournalUnusable
from livery.ports.required.sandbox import shell
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from ..benchmarks.served import EmptyWorld
from ..environment_server.good_partners import run_body
from ..environment_server.test_all_servers import settings

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
WAIT_SECONDS = 60.0
CLAIM = ClaimId("a-claim-whose-id-is-told-nowhere")
Told = dict[tuple[str, str], float]
"""By name, and by the value of the one label."""


def read(text: str) -> Told:
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


async def told(foundation: Foundation) -> Told:
    app = to_application(metrics_routes(foundation))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://server"
    ) as client:
        reply = await client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    assert CLAIM not in reply.text
    return read(reply.text)


def gauges(found: Told) -> dict[tuple[str, str], float]:
    """Return what stands open, of which nothing may be left."""
    kinds = set(re.findall(r"^\| `(\w+)` \| gauge", PAGE.read_text(), re.MULTILINE))
    kinds.discard("livery_journal_up")
    return {key: value for key, value in found.items() if key[0] in kinds}


async def test_what_is_open_is_told_and_all_is_at_zero_when_it_was_given_back(
    tmp_path: Path,
) -> None:
    file, state = SettingsFile(), open_state_folder(tmp_path / "state")
    async with open_server_foundation(file, state, SecretValues()) as foundation:
        plug_in = find(ProviderPlugIn, "local", PROVIDERS)
        (options,) = read_options(file, (plug_in.options, "sandbox", "local", {}))
        async with open_provider(foundation, "local", plug_in, options) as provider:
            claim, release = claims_of(foundation, provider)
            held = await claim(CLAIM, SandboxSpec(), used_by="an episode")
            await held.sandbox.exec(shell("true", timeout_seconds=WAIT_SECONDS))
            open_ = await told(foundation)
            await held.sandbox.disconnect()
            await release(ClaimLabel(claim=CLAIM, owner=state.owner), reason="the end")
            with anyio.fail_after(WAIT_SECONDS):
                closed = await told(foundation)
                while not closed["livery_event_loop_lag_seconds_count", ""]:
                    await anyio.sleep(0.05)
                    closed = await told(foundation)

    assert open_["livery_claims", "held"] == 1
    assert open_["livery_claims_made_total", ""] == 1
    assert open_["livery_sandbox_create_seconds_count", "local"] == 1
    assert open_["livery_sandbox_exec_seconds_count", "local"] >= 1
    assert open_["livery_journal_append_seconds_count", "claims"] >= 2
    assert closed["livery_claims_released_total", ""] == 1
    assert closed["livery_journal_up", ""] == 1
    assert set(gauges(closed).values()) == {0.0}


async def test_every_server_tells_and_is_back_at_zero(tmp_path: Path) -> None:
    file, state = settings(tmp_path), open_state_folder(tmp_path / "state")
    surroundings = Surroundings(name="all", state=tmp_path / "state")
    async with open_all_servers(
        file, state, surroundings, world=EmptyWorld()
    ) as servers:
        pages: list[Told] = []
        for number, each in enumerate(servers):
            app = to_application(each.served.routes)
            transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://server"
            ) as client:
                if number == 0:
                    row = (await client.post("/run", json=run_body("r1"))).json()
                    assert row["failure"] is None
                pages.append(read((await client.get("/metrics")).text))
        strangers = httpx.ASGITransport(
            app=to_application(servers[2].served.routes), client=("203.0.113.9", 1)
        )
        async with httpx.AsyncClient(
            transport=strangers, base_url="http://server"
        ) as client:
            refused = await client.get("/metrics")

    assert refused.status_code == 403
    for page in pages:
        assert set(gauges(page).values()) == {0.0}
        assert page["livery_sessions_closed_total", "agent"] == 1
        assert page["livery_sessions_closed_total", "resources"] == 1
        assert page["livery_activations_ended_total", "completed"] == 1
        assert page["livery_queue_wait_seconds_count", "episodes"] == 1
        assert page["livery_queue_length", "sessions"] == 0


async def test_the_page_has_every_metric_and_no_other(tmp_path: Path) -> None:
    file, state = SettingsFile(), open_state_folder(tmp_path / "state")
    async with open_server_foundation(file, state, SecretValues()) as foundation:
        endpoint = metrics_endpoint(foundation)
        assert endpoint is not None
        app = to_application(metrics_routes(foundation))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://server"
        ) as client:
            text = (await client.get("/metrics")).text

    text += put_together({}).decode()
    shown = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == shown


async def test_a_journal_that_cannot_be_read_is_told_beside_the_rest(
    tmp_path: Path,
) -> None:
    @attrs.define
    class Unreadable:
        async def __call__(self) -> object:
            raise JournalUnusable("there", "the disk is gone", "Bring it back.")

    file, state = SettingsFile(), open_state_folder(tmp_path / "state")
    async with open_server_foundation(file, state, SecretValues()) as foundation:
        assert foundation.watched is not None
        broken = attrs.evolve(foundation.watched, census=Unreadable())  # type: ignore[arg-type]
        found = await told(attrs.evolve(foundation, watched=broken))

    assert found["livery_journal_up", ""] == 0
    assert ("livery_claims", "held") not in found
    assert found["livery_claims_made_total", ""] == 0


async def test_where_nothing_is_watched_nothing_is_told(tmp_path: Path) -> None:
    file, state = SettingsFile(), open_state_folder(tmp_path / "state")
    journal = file.settings.journal
    async with open_foundation(state, SecretValues(), journal) as foundation:
        assert metrics_routes(foundation) == ()
        foundation.queued("sessions", lambda: 1)
        foundation.waited("sessions")(1.0)
