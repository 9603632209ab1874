# SPDX-License-Identifier: Apache-2.0
"""The gateway is opened as the settings say, or what is wrong with them is told."""

import socket
from pathlib import Path

import httpx
import pytest

from livery.adapters.system_clock import SystemClock
from livery.domain.agent_sessions import AgentSessionId
from livery.entrypoints.model_gateway import open_model_gateway
from livery.entrypoints.model_gateway.opening import GatewayNotServed
from livery.entrypoints.model_settings import ModelSettings, ModelUrlRefused
from livery.entrypoints.secret_references import Secret
from livery.ports.provided.secret_values import SecretValues
from livery.ports.required.sandbox_provider import Capability, Network

from .gateways import REAL, SESSION, asking
from .upstream import answer, says, upstream

pytestmark = pytest.mark.anyio

PONG = answer(200, b"{}")
ISOLATED = frozenset({Capability.ISOLATION})


async def test_a_gateway_is_served_with_the_credential_of_the_reference(
    tmp_path: Path,
) -> None:
    (tmp_path / "key").write_text(f"{REAL}\n")
    secrets = SecretValues()
    async with upstream(says(PONG)) as served:
        settings = ModelSettings(
            url=served.url, credential=Secret(file=str(tmp_path / "key"))
        )
        async with (
            open_model_gateway(
                settings,
                secrets=secrets,
                installation_secret="installation",
                clock=SystemClock(),
            ) as gate,
            httpx.AsyncClient() as caller,
        ):
            grant = await gate.access.grant(SESSION)
            reply = await caller.post(
                f"{grant.base_url}/v1/messages",
                content=asking(),
                headers={"x-api-key": grant.placeholder},
            )
        with pytest.raises(httpx.ConnectError):
            await httpx.AsyncClient().post(grant.base_url)

    assert reply.status_code == 200
    assert served.asked[0].header(b"x-api-key") == [REAL.encode()]
    assert secrets.masked(f"<{REAL}>") == "<***>"
    assert REAL not in repr(settings)
    assert gate.access.seen(SESSION).calls == 1
    assert not gate.relays(Network.DEFAULT, frozenset())
    assert gate.relays(Network.DEFAULT, ISOLATED)


async def test_an_advertised_address_is_what_sandboxes_with_a_network_are_told() -> (
    None
):
    settings = ModelSettings(
        url="http://127.0.0.1:1/base", advertised_url="http://livery.example:81"
    )
    async with open_model_gateway(
        settings,
        secrets=SecretValues(),
        installation_secret="installation",
        clock=SystemClock(),
    ) as gate:
        grant = await gate.access.grant(AgentSessionId("s"))

        assert grant.base_url == "http://livery.example:81"
        assert not gate.relays(Network.DEFAULT, ISOLATED)
        assert gate.relays(Network.NONE, ISOLATED)


@pytest.mark.parametrize(
    ("url", "advertised"),
    [
        (None, None),
        ("ftp://a", None),
        ("http://", None),
        ("http://user:h1dden@a", None),
        ("http://a?key=b", None),
        ("http://a", "nowhere"),
    ],
)
async def test_what_is_no_address_is_told_without_what_it_is(
    url: str | None, advertised: str | None
) -> None:
    settings = ModelSettings(url=url, advertised_url=advertised)

    with pytest.raises(ModelUrlRefused) as refused:
        async with open_model_gateway(
            settings,
            secrets=SecretValues(),
            installation_secret="installation",
            clock=SystemClock(),
        ):
            raise AssertionError("there is no address")

    assert "h1dden" not in str(refused.value)


async def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ModelSettings(
            url="http://127.0.0.1:1", gateway_port=taken.getsockname()[1]
        )
        with pytest.raises(GatewayNotServed, match="in use"):
            async with open_model_gateway(
                settings,
                secrets=SecretValues(),
                installation_secret="installation",
                clock=SystemClock(),
            ):
                raise AssertionError("it cannot listen there")
