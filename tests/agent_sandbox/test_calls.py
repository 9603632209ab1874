# SPDX-License-Identifier: Apache-2.0
"""Work in a sandbox over calls of the runtime server that fail, are cut or are lost."""

import json
import os
import sys
from pathlib import Path

import anyio
import attrs
import pytest

from livery.adapters.agent_sandbox import (
    AgentSandboxConfig,
    ClusterAddress,
    ConnectionConfig,
    HandsConfig,
    Mode,
    open_agent_sandbox,
)
from livery.adapters.agent_sandbox.cluster import Cluster
from livery.adapters.agent_sandbox.configuration import check_config
from livery.adapters.agent_sandbox.sandbox import AgentSandbox
from livery.domain.claims import ClaimId
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    ExitUnknown,
    Liveness,
    Lost,
    SandboxFailed,
    SandboxLost,
    shell,
)
from livery.ports.required.sandbox_provider import (
    CreateFailed,
    SpecRefused,
    Unsupported,
)

from ..model_gateway.upstream import answer
from .fake_cluster import NAMESPACE, says
from .fake_pods import PORT, FakePod
from .stand_in import (
    PATIENCE,
    SOON_SECONDS,
    Stable,
    config_for,
    name_of,
    new_label,
    stable,
    until,
)

pytestmark = pytest.mark.anyio

BAD_GATEWAY = answer(502, b'{"detail": "the pod cannot be dialled"}')
MEBIBYTE = 1024 * 1024


def pod_of(at: Stable) -> FakePod:
    (pod,) = at.cluster.pods.values()
    return pod


async def said(sandbox: AgentSandbox, script: str) -> bytes:
    ended = await sandbox.exec(shell(script, timeout_seconds=SOON_SECONDS))
    assert ended.how == Exited(0), ended
    return ended.stdout.kept


async def heard(sandbox: AgentSandbox, script: str, into: list[Ended]) -> None:
    into.append(await sandbox.exec(shell(script, timeout_seconds=SOON_SECONDS)))


@pytest.mark.case("FC-040")
async def test_a_mebibyte_of_output_arrives_whole(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        made = await at.provider.create(new_label(), at.spec())
        command = Command(
            argv=(sys.executable, "-c", f"print('x' * {MEBIBYTE}, end='')"),
            timeout_seconds=SOON_SECONDS,
            output_bytes_max=2 * MEBIBYTE,
        )
        ended = await made.exec(command)

        assert ended.stdout.size == MEBIBYTE
        assert ended.stdout.kept == b"x" * MEBIBYTE


@pytest.mark.case("FC-065")
async def test_thirty_mebibytes_of_input_arrive_whole(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        made = await at.provider.create(new_label(), at.spec())
        command = Command(
            argv=("wc", "-c"),
            timeout_seconds=2 * SOON_SECONDS,
            stdin=os.urandom(30 * MEBIBYTE),
        )
        ended = await made.exec(command)

        assert ended.stdout.kept.split() == [str(30 * MEBIBYTE).encode()]
        pod = pod_of(at)
        assert max(len(each.body) for each in pod.headers) < MEBIBYTE


@pytest.mark.case("FC-236")
async def test_a_silent_command_outlasts_what_the_server_cuts(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        made = await at.provider.create(new_label(), at.spec())
        pod_of(at).cut_seconds = 1.2

        assert await said(made, "sleep 5; echo on") == b"on\n"
        assert pod_of(at).asked.count("POST /execute") > 3


@pytest.mark.case("FC-232")
async def test_commands_and_calls_of_the_cluster_do_not_meet(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        made = await at.provider.create(new_label(), at.spec())
        wrong: list[object] = []

        async def command(number: int) -> None:
            for _ in range(5):
                out = await said(made, f"echo {number}")
                if out != f"{number}\n".encode():
                    wrong.append(out)

        async def look() -> None:
            for _ in range(20):
                status = await made.status()
                if status.liveness is not Liveness.RUNNING:
                    wrong.append(status)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(command, number)
                tasks.start_soon(look)
        assert not wrong


@pytest.mark.case("FC-237")
async def test_a_pod_that_is_gone_under_a_ready_claim_is_lost(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        pod_of(at).end()

        with anyio.fail_after(SOON_SECONDS):
            ended = await made.exec(shell("echo on", timeout_seconds=5.0))
            assert isinstance(ended.how, Lost)
            with pytest.raises(SandboxLost, match="does not answer"):
                await made.stat("x")
        assert (await made.status()).liveness is Liveness.ENDED
        await at.provider.destroy(label)


async def test_calls_that_fail_for_a_while_are_asked_again(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        made = await at.provider.create(new_label(), at.spec())
        pod_of(at).answers += [BAD_GATEWAY, b"", answer(500, b"odd")]
        begun: list[Ended] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heard, made, "echo x >> once; cat once", begun)
            await until(lambda: pod_of(at).asked.count("POST /execute") > 4)
            pod_of(at).answers += [BAD_GATEWAY, b"", answer(200, b"[]")]
        assert begun[0].stdout.kept == b"x\n"


async def test_a_restarted_pod_takes_a_new_worker(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec(env={"A": "kept"}))
        under_way: list[Ended] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heard, made, "touch on; exec sleep 60", under_way)
            await until(lambda: (tmp_path / "work" / "on").exists())
            pod_of(at).restart()
        assert isinstance(under_way[0].how, ExitUnknown)
        assert await said(made, 'echo "$A"') == b"kept\n"
        await at.provider.destroy(label)


async def test_a_pod_without_what_was_put_down_is_another_one(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        os.rename(made.scratch, f"{made.scratch}-away")
        pod_of(at).restart()

        ended = await made.exec(shell("true", timeout_seconds=5.0))
        assert isinstance(ended.how, Lost)
        assert "its pod is another one" in ended.how.reason
        async with at.open_again() as later:
            assert await later.find(label) is None
        os.rename(f"{made.scratch}-away", made.scratch)
        await at.provider.destroy(label)


async def test_a_claim_that_is_deleted_ends_a_command_at_once(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        under_way: list[Ended] = []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heard, made, "touch on; exec sleep 60", under_way)
            await until(lambda: (tmp_path / "work" / "on").exists())
            at.cluster.holds_deletion = True
            tasks.start_soon(at.provider.destroy, label)
            await until(lambda: under_way)
            at.cluster.holds_deletion = False
        assert under_way[0].how == Lost("its claim is being deleted")


async def test_who_may_not_ask_is_told(tmp_path: Path) -> None:
    refused = answer(403, b'{"detail": "not for you"}')
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        pod_of(at).refuses = lambda path: refused

        ended = await made.exec(shell("true", timeout_seconds=5.0))
        assert isinstance(ended.how, ExitUnknown)
        with pytest.raises(SandboxFailed, match="not for you"):
            await made.stat("x")
        pod_of(at).refuses = None
        assert await said(made, "echo on") == b"on\n"
        await at.provider.destroy(label)


async def test_a_claim_without_a_server_is_given_back(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.on_pod = lambda pod: setattr(
            pod, "refuses", lambda path: BAD_GATEWAY
        )
        with pytest.raises(CreateFailed, match="the pod cannot be dialled"):
            await at.provider.create(new_label(), at.spec(ready_timeout_seconds=3.0))
        assert at.cluster.all("sandboxclaims") == []


async def test_what_cannot_be_made_ready_says_the_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    async with stable(tmp_path) as at:
        with pytest.raises(SpecRefused) as refused:
            await at.provider.create(
                new_label(), at.spec(workdir=str(tmp_path / "file" / "work"))
            )
        assert refused.value.field == "workdir"
        async with at.open_again(
            hands=HandsConfig(python="no-such-python")
        ) as provider:
            with pytest.raises(CreateFailed, match="there is no no-such-python"):
                await provider.create(new_label(), at.spec())
        odd = tmp_path / "odd-python"
        odd.write_text("#!/bin/sh\necho 'Python 3.8 or newer is needed' >&2; exit 1\n")
        odd.chmod(0o755)
        async with at.open_again(hands=HandsConfig(python=str(odd))) as provider:
            with pytest.raises(CreateFailed, match=r"Python 3\.8 or newer is needed"):
                await provider.create(new_label(), at.spec())
        assert at.cluster.all("sandboxclaims") == []


@pytest.mark.case("FC-238")
async def test_variables_are_there_for_who_finds_the_sandbox(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        await at.provider.create(label, at.spec(env={"A": "a b", "B": "文件"}))
        claim = at.cluster.get("sandboxclaims", name_of(label))
        assert "文件" not in json.dumps(claim, ensure_ascii=False)

        async with at.open_again() as later:
            found = await later.find(label)
            assert found is not None
            assert await said(found, 'echo "$A|$B"') == "a b|文件\n".encode()
            await later.destroy(label)


async def test_an_idle_worker_that_is_gone_is_replaced(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        hands = made._hands  # pyright: ignore[reportPrivateUsage]
        assert hands is not None
        hands.stream._last -= 1000.0  # pyright: ignore[reportPrivateUsage]
        assert await said(made, "echo same") == b"same\n"
        # No wait of the call before is under way any more.
        await until(
            lambda: hands.stream._taking is None  # pyright: ignore[reportPrivateUsage]
        )
        pod_of(at).restart()
        hands.stream._last -= 1000.0  # pyright: ignore[reportPrivateUsage]
        assert await said(made, "echo new") == b"new\n"
        await at.provider.destroy(label)


@pytest.mark.case("FC-169")
async def test_a_pod_with_a_token_of_the_cluster_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        await at.provider.create(label, at.spec())
        assert "automountServiceAccountToken" not in caplog.text
        await at.provider.destroy(label)

        token = tmp_path / "token"
        token.write_text("x")
        hands = HandsConfig(python=sys.executable, token_file=str(token))
        async with at.open_again(hands=hands) as provider:
            label = new_label()
            await provider.create(label, at.spec())
            assert "automountServiceAccountToken: false" in caplog.text
            await provider.destroy(label)


async def test_ports_are_reached_by_the_pods_address(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec(ports=(8080,)))
        endpoint = await made.endpoint(8080)

        assert endpoint.url == f"http://{pod_of(at).address}:8080"
        with pytest.raises(Unsupported):
            await made.endpoint(8081)
        await at.provider.destroy(label)
        with pytest.raises(SandboxLost):
            await made.stat("x")
        with pytest.raises(SandboxLost):
            await made.endpoint(8080)


async def test_several_answers_in_a_row_can_be_wanted(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        changes = {"probes_count": 3, "probes_pause_seconds": 0.01}
        async with at.open_again(**changes) as careful:
            label = new_label()
            await careful.create(label, at.spec())
            assert pod_of(at).asked.count("POST /execute") >= 4
            await careful.destroy(label)


async def test_a_router_is_told_which_sandbox_is_meant(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        # Bound by address, since one pod stands for the router.
        await at.provider.create(label, at.spec())
        pod = pod_of(at)
        connection = ConnectionConfig(
            mode=Mode.DIRECT,
            api_url=f"http://{pod.address}:{PORT}/",
            server_port=PORT,
            token="hush",
        )
        pod.headers.clear()
        config = attrs.evolve(config_for(at.cluster), connection=connection)
        async with open_agent_sandbox(config) as outside:
            found = await outside.find(label)
            assert found is not None
            assert await said(found, "echo on") == b"on\n"
        (sandbox,) = at.cluster.pods
        for request in pod.headers:
            assert request.header(b"x-sandbox-id") == [sandbox.encode()]
            assert request.header(b"x-sandbox-namespace") == [NAMESPACE.encode()]
            assert request.header(b"x-sandbox-port") == [str(PORT).encode()]
            assert request.header(b"authorization") == [b"Bearer hush"]
            assert request.header(b"x-sandbox-timeout")
        assert "hush" not in repr(config)
        await at.provider.destroy(label)


async def test_a_routers_own_silence_is_not_the_sandboxs(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        await at.provider.create(label, at.spec())
        connection = ConnectionConfig(mode=Mode.DIRECT, api_url="http://127.0.0.1:1")
        config = attrs.evolve(
            config_for(at.cluster), connection=connection, connect_seconds=0.5
        )
        async with open_agent_sandbox(config) as outside:
            with pytest.raises(SandboxFailed):
                await outside.find(label)
        await at.provider.destroy(label)


async def test_a_gateway_tells_its_address_when_it_has_one(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        await at.provider.create(label, at.spec())
        pod = pod_of(at)
        connection = ConnectionConfig(
            mode=Mode.GATEWAY,
            gateway_name="g",
            gateway_namespace=NAMESPACE,
            gateway_ready_seconds=SOON_SECONDS,
        )
        config = attrs.evolve(config_for(at.cluster), connection=connection)
        listener = {"name": "http", "protocol": "HTTP", "port": PORT}
        at.cluster.put("gateways", "g", {"spec": {"listeners": [listener]}})

        async def gets_one() -> None:
            await until(lambda: at.cluster.asked.count("get gateways") > 1)
            told = {"type": "IPAddress", "value": pod.address}
            at.cluster.change("gateways", "g", status={"addresses": [told]})

        async with open_agent_sandbox(config) as outside:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gets_one)
                found = await outside.find(label)
            assert found is not None
            assert await said(found, "echo on") == b"on\n"
        await at.provider.destroy(label)


@pytest.mark.parametrize(
    ("mode", "field"),
    [(Mode.DIRECT, "connection.api_url"), (Mode.GATEWAY, "connection.gateway_name")],
)
async def test_a_mode_without_its_address_is_refused(
    tmp_path: Path, mode: Mode, field: str
) -> None:
    async with stable(tmp_path) as at:
        with pytest.raises(SpecRefused) as refused:
            async with at.open_again(connection=ConnectionConfig(mode=mode)):
                pass
        assert refused.value.field == field


async def test_a_gateway_without_an_address_is_told(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        await at.provider.create(label, at.spec())
        connection = ConnectionConfig(
            mode=Mode.GATEWAY, gateway_name="g", gateway_ready_seconds=0.1
        )
        async with at.open_again(connection=connection) as outside:
            with pytest.raises(SandboxFailed, match="default/g: there is none"):
                await outside.find(label)
        await at.provider.destroy(label)


async def test_a_configuration_that_is_none_is_told(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        config = config_for(at.cluster)
        none = attrs.evolve(config.cluster, kubeconfig=str(tmp_path / "none"))
        inside = attrs.evolve(config.cluster, in_cluster=True)
        for cluster, field in ((none, "kubeconfig"), (inside, "in_cluster")):
            with pytest.raises(SpecRefused) as refused:
                async with at.open_again(cluster=cluster):
                    pass
            assert refused.value.field == field


async def test_a_gateway_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        connection = ConnectionConfig(mode=Mode.GATEWAY, gateway_name="g")
        async with at.open_again(connection=connection) as outside:
            no = says(403, "Forbidden", "gateways is forbidden")
            at.cluster.will("get gateways", *[no] * 20)
            with pytest.raises(SandboxFailed, match="gateways is forbidden"):
                await outside.find(label)
            with pytest.raises(SandboxFailed, match="gateways is forbidden"):
                await outside.connect(made.access(), borrower=ClaimId("other"))
            with pytest.raises(CreateFailed, match="gateways is forbidden") as failed:
                await outside.create(new_label(), at.spec())
        await at.provider.destroy(label)

    assert failed.value.step == "ready"
    assert at.cluster.all("sandboxclaims") == []


@pytest.mark.parametrize(
    "text",
    ["", "a: [", "just text", "[]", "\0", "{current-context: x, contexts: x}"],
)
def test_a_file_that_is_no_configuration_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(SpecRefused) as refused:
        Cluster(ClusterAddress(kubeconfig=str(path)), provider="k", patience=PATIENCE)

    assert refused.value.field == "kubeconfig"


@pytest.mark.parametrize(
    "url", ["router", "ftp://router", "http://", "http://r:port", "http://[::1"]
)
def test_a_router_without_an_address_is_told(url: str) -> None:
    connection = ConnectionConfig(mode=Mode.DIRECT, api_url=url)

    with pytest.raises(SpecRefused) as refused:
        check_config(AgentSandboxConfig(connection=connection))

    assert refused.value.field == "connection.api_url"


async def test_a_file_without_certificates_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("no certificate\n")
    async with stable(tmp_path) as at:
        for name in ("empty", "none", "text"):
            connection = ConnectionConfig(ca_file=str(tmp_path / name))
            with pytest.raises(SpecRefused) as refused:
                async with at.open_again(connection=connection):
                    pass
            assert refused.value.field == "connection.ca_file"


async def test_a_borrower_of_what_livery_did_not_make_works_too(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        access = attrs.evolve(made.access(), descriptor={"sandbox_id": made.sandbox_id})
        borrowed = await at.provider.connect(access, borrower=ClaimId("other"))
        assert await said(borrowed, "echo on") == b"on\n"
        folders = [borrowed.scratch]
        await borrowed.disconnect()
        await until(lambda: not any(os.path.exists(each) for each in folders))
        assert await said(made, "echo on") == b"on\n"
        await at.provider.destroy(label)
