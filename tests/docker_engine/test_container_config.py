# SPDX-License-Identifier: Apache-2.0
"""From spec to container, and from the engine's words to ours, without an engine."""

import math
from typing import Any

import attrs
import pytest

from livery.adapters.docker_engine.bounded_output import BoundedOutput
from livery.adapters.docker_engine.container_config import (
    ContainerRules,
    check_spec,
    expires_at,
    label_of,
    lifetime_seconds,
    spec_digest,
    to_config,
    to_labels,
)
from livery.adapters.docker_engine.engine_address import to_address
from livery.adapters.docker_engine.engine_facts import (
    HealthCheck,
    to_container,
    to_exit_code,
    to_health_check,
)
from livery.adapters.docker_engine.making import split_reference
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    Mount,
    Network,
    SandboxSpec,
    SpecRefused,
)

LABEL = ClaimLabel(claim=ClaimId("claim-1"), owner=OwnerId("owner-1"))
SPEC = SandboxSpec(image="an/image:1")
RULES = ContainerRules(provider="docker", network="bridge", no_new_privileges=True)


def test_a_container_is_found_again_by_its_labels() -> None:
    spec = attrs.evolve(SPEC, metadata={"team": "blue"}, lifetime_seconds=90.5)

    labels = to_labels(LABEL, spec, user="0:0", now=1_000_000.0)

    assert label_of(labels) == LABEL
    assert labels["team"] == "blue"
    assert lifetime_seconds(labels) == 90.5
    assert labels["livery.expires"].endswith("+00:00")
    assert (expires_at(labels) or 0.0) >= 1_000_000.0 + 90.5
    assert label_of({}) is None
    assert expires_at({}) is None
    assert lifetime_seconds({}) is None


def test_equal_specs_share_a_digest_and_others_do_not() -> None:
    one = attrs.evolve(SPEC, env={"A": "1", "B": "2"})
    same = attrs.evolve(SPEC, env={"B": "2", "A": "1"})

    assert spec_digest(one) == spec_digest(same)
    assert spec_digest(one) != spec_digest(SPEC)
    assert spec_digest(one) != spec_digest(attrs.evolve(one, cpus=1.0))


@pytest.mark.case("FC-176")
def test_no_value_of_a_variable_is_on_a_command_line() -> None:
    spec = attrs.evolve(SPEC, env={"TOKEN": "canary"}, entrypoint=("run", "it"))
    labels = to_labels(LABEL, spec, user="0:0", now=0.0)

    config = to_config(spec, user="0:0", labels=labels, rules=RULES)

    assert config["Env"] == ["TOKEN=canary"]
    assert "canary" not in repr({**config, "Env": []})


@pytest.mark.case("FC-080", "FC-258")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"image": None}, "image"),
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": "/a/../b"}, "workdir"),
        ({"workdir": "/"}, "workdir"),
        ({"workdir": "//"}, "workdir"),
        ({"workdir": "/proc"}, "workdir"),
        ({"workdir": "//sys/./fs"}, "workdir"),
        ({"workdir": "/./dev/shm"}, "workdir"),
        ({"env": {"A=B": "x"}}, "env.A=B"),
        ({"env": {"A": "x\0y"}}, "env.A"),
        ({"metadata": {"livery.claim": "x"}}, "metadata.livery.claim"),
        ({"user": ""}, "user"),
        ({"cpus": 0.0}, "cpus"),
        ({"cpus": math.nan}, "cpus"),
        ({"memory_mib": 1}, "memory_mib"),
        ({"processes_max": 0}, "processes_max"),
        ({"mounts": (Mount(source="x", target="/y"),)}, "mounts[0].source"),
        ({"mounts": (Mount(source="/x", target="y"),)}, "mounts[0].target"),
        ({"ports": (0,)}, "ports[0]"),
        ({"ports": (80, 70_000)}, "ports[1]"),
        ({"ports": (80, 80)}, "ports"),
        ({"ports": (80,), "network": Network.NONE}, "ports"),
        ({"entrypoint": ()}, "entrypoint"),
        ({"lifetime_seconds": 0.0}, "lifetime_seconds"),
        ({"lifetime_seconds": 1e12}, "lifetime_seconds"),
        ({"create_timeout_seconds": -1.0}, "create_timeout_seconds"),
        ({"pull_timeout_seconds": math.inf}, "pull_timeout_seconds"),
        ({"ready_timeout_seconds": math.nan}, "ready_timeout_seconds"),
        ({"workdir": "/\udcff"}, "workdir"),
        ({"env": {"A": "\ud800"}}, "env.A"),
        ({"user": "a\0b"}, "user"),
        ({"entrypoint": ("run", "\udcff")}, "entrypoint[1]"),
        ({"metadata": {"a": "b\0"}}, "metadata.a"),
        ({"mounts": (Mount(source="/\udcff", target="/y"),)}, "mounts[0].source"),
        ({"provider_options": {"odd": 1}}, "provider_options.odd"),
        ({"provider_options": {"read_only": "yes"}}, "provider_options.read_only"),
        ({"provider_options": {"shm_size_mib": 0}}, "provider_options.shm_size_mib"),
        ({"provider_options": {"shm_size_mib": True}}, "provider_options.shm_size_mib"),
    ],
)
def test_what_cannot_be_read_is_refused_by_field(
    change: dict[str, Any], field: str
) -> None:
    with pytest.raises(SpecRefused) as told:
        check_spec(attrs.evolve(SPEC, **change), provider="docker")

    assert told.value.field == field


@pytest.mark.case("FC-259")
@pytest.mark.parametrize(
    ("raw", "health"),
    [
        (
            {
                "Test": ["CMD", "true"],
                "Interval": 1_500_000_000,
                "Timeout": 250_000_000,
                "StartPeriod": 60_000_000_000,
                "Retries": 2,
            },
            HealthCheck(
                interval_seconds=1.5,
                timeout_seconds=0.25,
                start_period_seconds=60.0,
                retries=2,
            ),
        ),
        (
            {"Test": ["CMD-SHELL", "true"]},
            HealthCheck(
                interval_seconds=30.0,
                timeout_seconds=30.0,
                start_period_seconds=0.0,
                retries=3,
            ),
        ),
        ({"Test": ["NONE"]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_times_of_a_health_check_are_read_as_seconds(
    raw: object, health: HealthCheck | None
) -> None:
    assert to_health_check(raw) == health


@pytest.mark.case("FC-259")
def test_the_budget_of_a_health_check_covers_its_grace() -> None:
    health = HealthCheck(
        interval_seconds=1.5,
        timeout_seconds=0.5,
        start_period_seconds=60.0,
        retries=3,
    )

    assert health.budget_seconds == 66.0


@pytest.mark.case("FC-015")
def test_an_end_names_the_memory_that_ran_out() -> None:
    raw = {"State": {"Status": "exited", "ExitCode": 137, "OOMKilled": True}}

    facts = to_container(raw)

    assert not facts.is_live
    assert "137" in facts.end_reason
    assert "memory" in facts.end_reason


@pytest.mark.case("FC-047")
def test_an_exit_code_that_is_not_there_is_unknown() -> None:
    assert to_exit_code({"Running": False, "ExitCode": 0}) == 0
    assert to_exit_code({"Running": True, "ExitCode": 0}) is None
    assert to_exit_code({"Running": False, "ExitCode": None}) is None
    assert to_exit_code({}) is None


def test_a_spec_becomes_what_the_engine_reads() -> None:
    spec = attrs.evolve(
        SPEC,
        cpus=1.5,
        memory_mib=64,
        processes_max=10,
        mounts=(Mount(source="/a", target="/b"),),
        ports=(80,),
        provider_options={"read_only": True, "shm_size_mib": 2},
    )

    config = to_config(spec, user="7:7", labels={}, rules=RULES)
    host = config["HostConfig"]

    assert config["User"] == "0:0"
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert isinstance(host, dict)
    assert host["NanoCpus"] == 1_500_000_000
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024 * 1024
    assert host["PidsLimit"] == 10
    assert host["Mounts"][0]["ReadOnly"]
    assert host["PortBindings"] == {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
    assert host["ReadonlyRootfs"]
    assert set(host["Tmpfs"]) == {"/tmp", "/workspace"}
    assert host["ShmSize"] == 2 * 1024 * 1024
    assert not host["Init"]


def test_an_own_entry_point_runs_as_the_user_under_an_init() -> None:
    spec = attrs.evolve(SPEC, entrypoint=("run", "it"), lifetime_seconds=1.2)

    config = to_config(spec, user="7:7", labels={}, rules=RULES)
    host, words = config["HostConfig"], config["Entrypoint"]

    assert config["User"] == "7:7"
    assert "Healthcheck" not in config
    assert isinstance(host, dict)
    assert host["Init"]
    assert host["LogConfig"]["Config"]["max-file"] == "1"
    assert isinstance(words, list)
    assert words[-3:] == [str(math.ceil(120.0 + 60.0 + 60.0)), "run", "it"]
    assert words[-4] == "2"


def test_published_ports_are_read() -> None:
    bound = [{"HostIp": "127.0.0.1", "HostPort": "49153"}]
    raw = {"NetworkSettings": {"Ports": {"80/tcp": bound, "81/tcp": None}}}

    assert to_container(raw).ports == {80: ("127.0.0.1", 49153)}


def test_ports_of_a_lent_container_are_those_of_tcp_and_of_ipv4_first() -> None:
    def at(*bound: tuple[str, str]) -> list[dict[str, str]]:
        return [{"HostIp": host, "HostPort": port} for host, port in bound]

    ports = {
        "53/tcp": at(("0.0.0.0", "49160")),
        "53/udp": at(("0.0.0.0", "49161")),
        "80/tcp": at(("::", "49171"), ("0.0.0.0", "49170")),
        "81/tcp": at(("::", "49172")),
        "82/sctp": at(("0.0.0.0", "49180")),
        "83/tcp": None,
    }
    raw = {"NetworkSettings": {"Ports": ports}}

    assert to_container(raw).ports == {
        53: ("0.0.0.0", 49160),
        80: ("0.0.0.0", 49170),
        81: ("::", 49172),
    }


def test_odd_answers_read_as_empty() -> None:
    for raw in (None, [], {}, {"State": [], "Config": {"Labels": None}}):
        facts = to_container(raw)
        assert (facts.state, facts.labels, facts.ports) == ("", {}, {})


@pytest.mark.parametrize(
    ("configured", "environ", "url"),
    [
        (None, {}, "unix:///var/run/docker.sock"),
        (None, {"DOCKER_HOST": "unix:///run/x.sock"}, "unix:///run/x.sock"),
        (None, {"DOCKER_HOST": "tcp://10.0.0.1:99"}, "tcp://10.0.0.1:99"),
        ("tcp://host", {"DOCKER_HOST": "unix:///x"}, "tcp://host:2375"),
        ("tcp://host", {"DOCKER_TLS_VERIFY": "1"}, "tcp://host:2375"),
    ],
)
def test_an_address_comes_from_the_configuration_first(
    configured: str | None, environ: dict[str, str], url: str
) -> None:
    assert to_address(configured, provider="docker", environ=environ).url == url


@pytest.mark.case("FC-223")
def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    address = to_address("tcp://[::1]:2375", provider="docker", environ={})

    assert (address.host, address.port) == ("::1", 2375)
    assert address.url == "tcp://[::1]:2375"
    assert address.is_here


@pytest.mark.parametrize(
    ("configured", "environ"),
    [
        ("ssh://user@host", {}),
        ("npipe:////./pipe/docker_engine", {}),
        ("http://host:2375", {}),
        ("host:2375", {}),
        ("unix://", {}),
        ("tcp://host:port", {}),
        (None, {"DOCKER_HOST": "tcp://host:2376", "DOCKER_TLS_VERIFY": "1"}),
    ],
)
def test_other_ways_to_an_engine_are_refused(
    configured: str | None, environ: dict[str, str]
) -> None:
    with pytest.raises(SpecRefused) as told:
        to_address(configured, provider="docker", environ=environ)

    assert "DOCKER_HOST" in told.value.field


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("debian", ("debian", "latest")),
        ("debian:12", ("debian", "12")),
        ("host:5000/a/b", ("host:5000/a/b", "latest")),
        ("host:5000/a/b:c", ("host:5000/a/b", "c")),
        ("a@sha256:00", ("a@sha256:00", None)),
    ],
)
def test_an_image_without_a_tag_is_pulled_once(
    image: str, parts: tuple[str, str | None]
) -> None:
    assert split_reference(image) == parts


@pytest.mark.case("FC-042")
@pytest.mark.parametrize("bound", [0, 1, 7, 8, 100])
@pytest.mark.parametrize("piece", [1, 3, 50])
def test_output_keeps_both_ends_and_its_size(bound: int, piece: int) -> None:
    content = bytes(range(50))
    output = BoundedOutput(bytes_max=bound)

    for start in range(0, len(content), piece):
        output.add(content[start : start + piece])
    told = output.told()

    assert told.size == 50
    assert len(told.head) + len(told.tail) == min(bound, 50)
    assert content.startswith(told.head)
    assert content.endswith(told.tail)
