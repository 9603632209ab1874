# SPDX-License-Identifier: Apache-2.0
"""A network policy is asked for, read back, and tried from inside.

The server in this process enforces it with a network of the sandbox's own, forgets
it, or enforces half of it; each half is found out, and the create is refused.
"""

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import pytest

from livery.adapters.opensandbox import (
    OpenSandboxConfig,
    OpenSandboxProvider,
    open_opensandbox,
)
from livery.adapters.opensandbox.network_policy import Policy, check_reachable, leaks
from livery.ports.contracts.provider_abilities import CASES
from livery.ports.required.sandbox import Command, Exited, Sandbox
from livery.ports.required.sandbox_provider import (
    Capability,
    CreateFailed,
    Network,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

from ..docker_engine.engines import Owners
from . import providers
from .stand_in_server import StandInServer

pytestmark = pytest.mark.anyio

CLOSED = attrs.evolve(providers.stand_in_spec(), network=Network.NONE)
LISTED = attrs.evolve(
    providers.stand_in_spec(),
    network=Network.LISTED,
    reachable=("model.test", "*.tasks.test", "10.1.2.3"),
)
DOCS = Path(__file__).parent.parent.parent / "docs" / "opensandbox-provider.md"


def own_address() -> str:
    """Return an address of this host that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.connect(("192.0.2.1", 9))  # Nothing is sent.
        return str(any_socket.getsockname()[0])


@pytest.fixture
def canary() -> Iterator[str]:
    """A listener of this host, which a closed sandbox must not reach."""
    with socket.create_server((own_address(), 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


@pytest.fixture
async def provider(
    stand_in: StandInServer, canary: str
) -> AsyncIterator[OpenSandboxProvider]:
    config = OpenSandboxConfig(
        egress=True, probe_addresses=(canary,), probe_names=("example.com",)
    )
    async with providers.over_stand_in(stand_in, config) as opened:
        yield opened


async def refused(
    provider: OpenSandboxProvider, owners: Owners, spec: SandboxSpec
) -> Unsupported:
    with pytest.raises(Unsupported) as caught:
        await provider.create(owners.label(), spec)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_abilities_of_a_server_that_enforces(
    case: object, provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    context = attrs.evolve(
        providers.stand_in_context(provider, stand_in, owners),
        host_address=own_address(),
    )
    assert case in CASES

    await case.run(context)  # type: ignore[attr-defined]


@pytest.mark.case("FC-160", "FC-167")
async def test_a_closed_sandbox_reaches_nothing_whatever_it_is_told_of_proxies(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners, canary: str
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, CLOSED)
    try:
        host, port = canary.split(":")
        # Neither a proxy in the environment nor its absence makes a difference.
        for env in ({}, {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "*"}):
            ended = await connected(sandbox, host, int(port), env)
            assert ended == Exited(1)
        ended = await sandbox.exec(
            Command(
                argv=("python3", "-c", RESOLVE, "canary.example.com"),
                timeout_seconds=30.0,
            )
        )
        assert ended.how == Exited(1), ended
    finally:
        await provider.destroy(label)

    assert stand_in.bodies[0]["networkPolicy"] == {
        "defaultAction": "deny",
        "egress": [],
    }


RESOLVE = """
import socket, sys
try:
    socket.getaddrinfo(sys.argv[1], 443)
except OSError:
    sys.exit(1)
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
except OSError:
    sys.exit(1)
"""


async def connected(
    sandbox: Sandbox, host: str, port: int, env: dict[str, str]
) -> object:
    ended = await sandbox.exec(
        Command(
            argv=("python3", "-c", CONNECT, host, str(port)),
            timeout_seconds=30.0,
            env=env,
        )
    )
    return ended.how


async def test_a_list_is_asked_for_word_by_word(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    label = owners.label()
    await provider.create(label, LISTED)
    await provider.destroy(label)

    assert stand_in.bodies[0]["networkPolicy"] == {
        "defaultAction": "deny",
        "egress": [
            {"action": "allow", "target": "model.test"},
            {"action": "allow", "target": "*.tasks.test"},
            {"action": "allow", "target": "10.1.2.3"},
        ],
    }


@pytest.mark.case("FC-166")
@pytest.mark.parametrize("spec", [CLOSED, LISTED], ids=["none", "listed"])
async def test_a_policy_that_is_taken_and_forgotten_is_found_by_the_probe(
    spec: SandboxSpec,
    provider: OpenSandboxProvider,
    stand_in: StandInServer,
    owners: Owners,
    canary: str,
) -> None:
    stand_in.enforcement = "forgotten"

    fault = await refused(provider, owners, spec)

    assert fault.capability == f"network {spec.network.value}"
    assert f"{canary} takes a connection" in fault.detail
    assert stand_in.sandboxes == {}


async def test_a_filter_of_names_alone_is_found_by_addresses(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners, canary: str
) -> None:
    stand_in.enforcement = "names alone"

    fault = await refused(provider, owners, CLOSED)

    assert f"{canary} takes a connection" in fault.detail


async def test_a_filter_of_addresses_alone_is_found_by_names(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.enforcement = "addresses alone"

    fault = await refused(provider, owners, CLOSED)

    assert "example.com resolves to 192.0.2.1" in fault.detail


async def test_another_policy_than_the_one_asked_for_is_refused(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.faults["forget_policy"] = 1

    fault = await refused(provider, owners, CLOSED)

    assert "allow" in fault.detail
    assert stand_in.sandboxes == {}


@pytest.mark.case("FC-168")
async def test_a_sidecar_that_comes_late_is_waited_for(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.faults["no_sidecar"] = 2

    label = owners.label()
    await provider.create(label, CLOSED)
    await provider.destroy(label)

    asked = [path for _, path in stand_in.requests if path.endswith("/networkpolicy")]
    assert len(asked) >= 3


@pytest.mark.case("FC-168")
async def test_a_sidecar_that_never_comes_fails_the_create(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.faults["no_sidecar"] = 10_000
    spec = attrs.evolve(CLOSED, ready_timeout_seconds=3.0)

    with pytest.raises(CreateFailed) as caught:
        await provider.create(owners.label(), spec)

    assert caught.value.step == "ready"
    assert stand_in.sandboxes == {}


@pytest.mark.case("FC-166")
async def test_a_server_that_is_not_known_to_enforce_is_not_asked(
    stand_in: StandInServer, owners: Owners
) -> None:
    async with providers.over_stand_in(stand_in) as plain:
        for spec in (CLOSED, LISTED):
            with pytest.raises(Unsupported, match="egress is off"):
                await plain.create(owners.label(), spec)

        assert plain.capabilities.isdisjoint(
            {Capability.NETWORK_NONE, Capability.NETWORK_LISTED}
        )
    assert stand_in.bodies == []


@pytest.mark.parametrize("target", ["", "http://x.test", "a b", "x.test:80", "*.", "*"])
def test_a_target_that_the_server_would_choke_on_is_refused_here(target: str) -> None:
    spec = attrs.evolve(LISTED, reachable=("fine.test", target))

    with pytest.raises(SpecRefused) as caught:
        check_reachable(spec, provider="opensandbox")

    assert caught.value.field == "reachable[1]"


def test_a_list_needs_the_network_that_goes_by_it() -> None:
    spec = attrs.evolve(CLOSED, reachable=("fine.test",))

    with pytest.raises(SpecRefused, match="listed"):
        check_reachable(spec, provider="opensandbox")


def test_what_the_server_says_is_compared_as_a_whole() -> None:
    policy = Policy(("a.test",))
    rule = {"action": "allow", "target": "a.test"}
    other = {"action": "allow", "target": "b.test"}

    assert policy.is_told_by({"defaultAction": "deny", "egress": [rule]})
    assert policy.is_told_by({"policy": {"defaultAction": "deny", "egress": [rule]}})
    for words in (
        {},
        {"defaultAction": "deny"},
        {"defaultAction": "allow", "egress": [rule]},
        {"defaultAction": "deny", "egress": [rule, other]},
        {"defaultAction": "deny", "egress": "a.test"},
        {"defaultAction": "deny", "egress": [{"action": "deny", "target": "a.test"}]},
    ):
        assert not policy.is_told_by(words)


async def test_what_is_allowed_is_not_probed(
    provider: OpenSandboxProvider, owners: Owners, canary: str
) -> None:
    label = owners.label()
    sandbox = await provider.create(label, providers.stand_in_spec())
    try:
        words = {"python": "python3", "addresses": (canary,), "names": ("localhost",)}
        open_to_all = Policy(("0.0.0.0/0", "::/0", "LocalHost"))
        under = Policy(("*.localhost", own_address()))

        # What is allowed as a block are its gateway and its name server too.
        assert await leaks(sandbox, open_to_all, **words) == ()
        told = await leaks(sandbox, under, **words)
        assert told is not None
        assert any("localhost resolves" in one for one in told)
        assert await leaks(sandbox, under, **{**words, "python": "/bin/false"}) is None
        assert await leaks(sandbox, under, **{**words, "python": "/bin/true"}) is None
    finally:
        await provider.destroy(label)


@pytest.mark.parametrize("address", ["1.1.1.1", "1.1.1.1:", ":53", "h:0", "h:65536"])
async def test_what_cannot_be_probed_is_refused_at_the_start(address: str) -> None:
    config = OpenSandboxConfig(probe_addresses=("1.1.1.1:53", address))

    with pytest.raises(SpecRefused) as caught:
        async with open_opensandbox(config):
            pass

    assert caught.value.field == "probe_addresses[1]"


def test_one_policy_may_be_spelled_in_several_ways() -> None:
    policy = Policy(("Model.TEST", "10.1.2.3/8", "10.1.2.3", "FD00::1"))
    told = ("model.test", "10.0.0.0/8", "10.1.2.3/32", "fd00::1")

    assert policy.is_told_by(
        {
            "defaultAction": "deny",
            "egress": [{"action": "allow", "target": target} for target in told],
        }
    )


@pytest.mark.case("FC-163")
def test_the_page_says_that_fronted_requests_are_not_covered() -> None:
    text = " ".join(DOCS.read_text(encoding="utf-8").split())

    assert "does not cover a fronted request" in text
