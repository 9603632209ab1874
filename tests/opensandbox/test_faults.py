# SPDX-License-Identifier: Apache-2.0
"""What goes wrong at a server and in its sandboxes, and how it is told."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from livery.adapters.http_client import Patience, open_http_client
from livery.adapters.opensandbox import (
    OpenSandboxConfig,
    OpenSandboxProvider,
    open_opensandbox,
)
from livery.adapters.opensandbox.command_events import CommandEnded, StreamBroken
from livery.adapters.opensandbox.ending import remove
from livery.adapters.opensandbox.execd import TOKEN_HEADER, Execd, ExecdGone
from livery.adapters.opensandbox.lifecycle import (
    FIRST_PATIENCE,
    KEY_HEADER,
    Lifecycle,
)
from livery.adapters.opensandbox.lifecycle_facts import ApiRefused
from livery.domain.claims import ClaimId
from livery.ports.contracts.sandbox_context import comes_true
from livery.ports.provided.how_it_ended import is_out_of_memory
from livery.ports.required.faults import Fault
from livery.ports.required.sandbox import (
    Command,
    Ended,
    Exited,
    Liveness,
    Lost,
    Sandbox,
    SandboxAccess,
    SandboxFailed,
    SandboxLost,
    TransferCut,
    shell,
)
from livery.ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimLabel,
    CreateFailed,
    DestroyFailed,
    ImageMissing,
    ProviderForbidden,
    ProviderUnreachable,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)

from ..docker_engine.engines import Owners
from . import providers
from .stand_in_server import API_KEY, StandInServer

pytestmark = pytest.mark.anyio

SPEC = providers.stand_in_spec()
UNGUARDED = attrs.evolve(SPEC, entrypoint=("sleep", "600"))
"""Execd of such a sandbox is not started again."""


def faulty(**faults: int) -> SandboxSpec:
    """Return a spec whose execd goes wrong on purpose."""
    return attrs.evolve(SPEC, env={"STAND_IN_FAULTS": json.dumps(faults)})


@asynccontextmanager
async def made(
    provider: OpenSandboxProvider, owners: Owners, spec: SandboxSpec = SPEC
) -> AsyncIterator[tuple[ClaimLabel, Sandbox]]:
    label = owners.label()
    sandbox = await provider.create(label, spec)
    try:
        yield label, sandbox
    finally:
        await provider.destroy(label)


async def ran(sandbox: Sandbox, script: str) -> Ended:
    return await sandbox.exec(shell(script, timeout_seconds=60.0))


@asynccontextmanager
async def execd_of(stand_in: StandInServer, label: ClaimLabel) -> AsyncIterator[Execd]:
    """Give the execd of a sandbox, past the provider."""
    found = stand_in.of_claim(label.claim)
    url = f"http://127.0.0.1:{found.port}"
    async with open_http_client(url) as http:
        headers = {TOKEN_HEADER: found.metadata["livery.token"]}
        yield Execd(http=http, url=url, headers=headers)


async def go_wrong(execd: Execd, **faults: int) -> None:
    await execd.http.request(
        "POST",
        f"{execd.url}/stand-in/faults",
        repeatable=False,
        content=json.dumps(faults).encode(),
    )


@pytest.mark.case("FC-014")
async def test_what_is_not_there_yet_is_asked_again_and_the_command_runs_once(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    async with made(provider, owners, faulty(gateway=3)) as (_, sandbox):
        ended = await ran(sandbox, "echo once >> runs; cat runs")

    assert (ended.how, ended.stdout.kept) == (Exited(0), b"once\n")


@pytest.mark.case("FC-015")
async def test_a_sandbox_whose_execd_was_killed_is_lost_though_it_reads_as_running(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with made(provider, owners, UNGUARDED) as (label, sandbox):
        record = stand_in.of_claim(label.claim)
        record.said = "OOMKilled, out of memory"
        start = time.monotonic()

        ended = await ran(sandbox, "kill -KILL -1; sleep 60")

        assert isinstance(ended.how, Lost), ended
        assert is_out_of_memory(ended.how)
        assert time.monotonic() - start < 40.0
        assert record.told()["status"]["state"] == "Running"
        with pytest.raises(SandboxLost):
            await sandbox.stat("x")


async def test_an_execd_that_was_killed_is_started_again(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    async with made(provider, owners) as (_, sandbox):
        await ran(sandbox, "kill -KILL -1; sleep 60")

        assert (await ran(sandbox, "echo on")).stdout.kept == b"on\n"


@pytest.mark.case("FC-045")
async def test_blank_lines_come_back_as_they_were(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    script = r"printf 'a\n\nb\n\n\nc'"
    async with made(provider, owners) as (label, sandbox):
        ended = await ran(sandbox, script)
        async with execd_of(stand_in, label) as execd:
            lines = await execd.run(script, seconds=30.0)

    assert ended.stdout.kept == b"a\n\nb\n\n\nc"
    # Execd's own way has lost the end of the last line, and no line.
    assert lines.stdout == "a\n\nb\n\n\nc"


@pytest.mark.case("FC-048")
async def test_an_empty_stream_is_no_success(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    with pytest.raises(CreateFailed, match="without saying how"):
        await provider.create(owners.label(), faulty(empty_stream=1))
    assert stand_in.sandboxes == {}

    async with made(provider, owners) as (label, _), execd_of(stand_in, label) as execd:
        for fault in ("empty_stream", "init_then_end"):
            await go_wrong(execd, **{fault: 1})
            with pytest.raises(StreamBroken):
                await execd.run("true", seconds=30.0)


@pytest.mark.case("FC-047")
async def test_ends_of_commands_are_told_apart(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with made(provider, owners) as (label, _), execd_of(stand_in, label) as execd:

        async def end(script: str, **faults: int) -> CommandEnded:
            await go_wrong(execd, **faults)
            return (await execd.run(script, seconds=30.0)).end

        assert await end("true") == CommandEnded(0)
        assert await end("exit 3") == CommandEnded(3, "exit status 3")
        assert await end("kill -KILL $$") == CommandEnded(-1, "signal: killed")
        assert await end("true", broken_tail=1) == CommandEnded(0)
        assert await end("true", no_pings=1) == CommandEnded(0)
        assert await end("true", bare_data=1) == CommandEnded(0)
        assert await end("true", no_numbers=1) == CommandEnded(None, "who knows")
        assert await end("true", broken_pipe=1) == CommandEnded(
            -1, "signal: broken pipe"
        )
        start = time.monotonic()
        assert await end("true", long_tail=1) == CommandEnded(0)
        assert time.monotonic() - start < 0.9  # The tail's second is not waited for.
        await go_wrong(execd, out_of_memory=1)
        with pytest.raises(ExecdGone):
            await execd.run("true", seconds=30.0)
        with pytest.raises(ApiRefused, match="INVALID_REQUEST_BODY"):
            await execd.run("", seconds=30.0)
        timed = await execd.run("sleep 60", seconds=0.2)
        assert timed.end.code == -1


async def test_a_command_that_is_given_up_is_ended_and_harms_no_other(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with (
        made(provider, owners) as (label, sandbox),
        execd_of(stand_in, label) as execd,
    ):
        others: list[int | None] = []

        async def other() -> None:
            ended = await execd.run("sleep 3; echo whole", seconds=30.0)
            others.append(ended.end.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            with anyio.move_on_after(0.7):
                await execd.run(
                    "while :; do echo 0123456789; sleep 0.01; done", seconds=60.0
                )

        assert others == [0]
        assert (await ran(sandbox, "pgrep -f 'echo 012345678[9]'")).how == Exited(1)


@pytest.mark.case("FC-081")
async def test_what_is_removed_from_metadata_is_gone_in_the_same_answer(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with (
        made(provider, owners) as (label, _),
        lifecycle_of(stand_in) as lifecycle,
    ):
        found = stand_in.of_claim(label.claim)

        changed = await lifecycle.change_metadata(found.sandbox_id, {"team": "a"})
        removed = await lifecycle.change_metadata(found.sandbox_id, {"team": None})

        assert changed.metadata["team"] == "a"
        assert "team" not in removed.metadata
        read = await lifecycle.get(found.sandbox_id)
        assert read is not None
        assert "team" not in read.metadata
        assert "livery.making" not in read.metadata


@pytest.mark.case("FC-081")
async def test_a_server_that_keeps_what_was_removed_makes_no_sandboxes(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.faults["metadata_stay"] = 1

    with pytest.raises(CreateFailed, match="metadata"):
        await provider.create(owners.label(), SPEC)
    assert stand_in.sandboxes == {}


@asynccontextmanager
async def lifecycle_of(stand_in: StandInServer) -> AsyncIterator[Lifecycle]:
    async with open_http_client(
        stand_in.address, headers={KEY_HEADER: API_KEY}, patience=providers.QUICK
    ) as http:
        yield Lifecycle(http=http, provider="opensandbox", address=stand_in.address)


@pytest.mark.case("FC-001")
async def test_a_create_whose_answer_was_lost_is_found_and_adopted(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.faults["lose_create_reply"] = 1

    async with made(provider, owners) as (_, sandbox):
        assert len(stand_in.sandboxes) == len(stand_in.bodies) == 1
        assert (await ran(sandbox, "echo on")).stdout.kept == b"on\n"


@pytest.mark.case("FC-001")
async def test_a_create_that_never_reached_the_server_is_asked_for_again(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    stand_in.faults["drop_create"] = 1

    async with made(provider, owners) as (_, sandbox):
        assert len(stand_in.sandboxes) == 1
        assert (await ran(sandbox, "echo on")).stdout.kept == b"on\n"
    assert len(stand_in.bodies) == 2


@pytest.mark.case("FC-001")
async def test_of_two_that_were_made_the_older_one_is_the_claims(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    label = owners.label()
    stand_in.faults["late_list"] = 1
    first = await provider.create(label, SPEC)

    async with providers.over_stand_in(stand_in) as elsewhere:
        stand_in.faults["late_list"] = 1  # It sees none, and makes another.
        second = await elsewhere.create(label, SPEC)

        assert second.sandbox_id == first.sandbox_id
        assert list(stand_in.sandboxes) == [first.sandbox_id]
        assert len(stand_in.bodies) == 2
    await provider.destroy(label)


REFUSALS: tuple[tuple[int, str, str, type[Fault]], ...] = (
    (500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "no stand-in:1 here", ImageMissing),
    (500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "no egress:1 here", CreateFailed),
    (500, "DOCKER::SANDBOX_START_FAILED", "memory is too little", CreateFailed),
    (503, "DOCKER::SANDBOX_EXECD_START_FAILED", "no", CreateFailed),
    (429, "", "slow down", CapacityExhausted),
    (500, "KUBERNETES::QUOTA_EXCEEDED", "no quota", CapacityExhausted),
    (409, "KUBERNETES::POOL_CAPACITY_EXHAUSTED", "full", CapacityExhausted),
    (400, "SANDBOX::API_NOT_SUPPORTED", "not here", Unsupported),
    (400, "SANDBOX::INVALID_METADATA_LABEL", "bad", SpecRefused),
    (400, "VOLUME::HOST_PATH_NOT_ALLOWED", "bad", SpecRefused),
    (403, "FORBIDDEN", "not you", ProviderForbidden),
)


@pytest.mark.case("FC-120")
@pytest.mark.parametrize(("status", "code", "text", "kind"), REFUSALS)
async def test_refusals_of_a_create_are_told_apart_in_seconds(
    status: int,
    code: str,
    text: str,
    kind: type[Fault],
    provider: OpenSandboxProvider,
    stand_in: StandInServer,
    owners: Owners,
) -> None:
    stand_in.faults["refuse_create"] = (status, {"code": code, "message": text})

    with anyio.fail_after(20.0), pytest.raises(kind) as caught:
        await provider.create(owners.label(), SPEC)

    assert text in str(caught.value)
    assert stand_in.sandboxes == {}
    assert API_KEY not in str(caught.value)


async def test_other_shapes_of_a_no_are_read(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    place = ["body", "timeout"]
    for shape, told in (
        (
            {"detail": [{"loc": place, "msg": "at least 60"}]},
            "body.timeout: at least 60",
        ),
        ({"detail": "said so"}, "said so"),
        ({"detail": {"code": "X", "message": "said so"}}, "X: said so"),
        ({"error": "said so"}, "said so"),
        ([], "422 without a word"),
    ):
        stand_in.faults["refuse_create"] = (422, shape)
        with pytest.raises(SpecRefused) as caught:
            await provider.create(owners.label(), SPEC)
        assert told in str(caught.value)


async def test_a_wrong_key_and_no_server_are_told_as_what_they_are(
    stand_in: StandInServer, owners: Owners
) -> None:
    config = OpenSandboxConfig(
        address=stand_in.address, api_key="wrong-key-7", patience=providers.QUICK
    )
    async with open_opensandbox(config) as opened:
        with pytest.raises(ProviderForbidden, match="the api_key of its") as caught:
            await opened.create(owners.label(), SPEC)
        assert "wrong-key-7" not in f"{caught.value}{caught.value!r}{config!r}"
    async with open_opensandbox(attrs.evolve(config, api_key="")) as opened:
        with pytest.raises(ProviderForbidden, match="asked with no api_key"):
            await opened.find(owners.label())
    nowhere = attrs.evolve(config, address="http://127.0.0.1:9")
    async with open_opensandbox(nowhere) as opened:
        with pytest.raises(ProviderUnreachable, match=r"http://127\.0\.0\.1:9"):
            await opened.find(owners.label())


async def test_a_server_that_was_there_is_waited_for_and_no_other(
    stand_in: StandInServer, owners: Owners
) -> None:
    patient = Patience(attempts_max=6, pause_seconds=0.01, seconds_max=60.0)
    config = OpenSandboxConfig(
        address=stand_in.address, api_key=API_KEY, patience=patient
    )
    asked = list[int]()

    async def found_by(provider: OpenSandboxProvider) -> None:
        before = len(stand_in.requests)
        with pytest.raises(ProviderUnreachable):
            await provider.find(owners.label())
        asked.append(len(stand_in.requests) - before)

    async with open_opensandbox(config) as provider:
        stand_in.faults["status"] = 503
        await found_by(provider)
        del stand_in.faults["status"]
        assert await provider.find(owners.label()) is None
        stand_in.faults["status"] = 503
        await found_by(provider)

    assert asked == [FIRST_PATIENCE.attempts_max, patient.attempts_max]


@pytest.mark.case("FC-174")
async def test_the_servers_key_is_nowhere_in_a_sandbox(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with made(provider, owners) as (label, sandbox):
        token = stand_in.of_claim(label.claim).metadata["livery.token"]
        environment = await ran(sandbox, "env; cat /proc/self/environ")
        search = Command(
            argv=("/bin/sh", "-c", "grep -lrF -f - /proc/*/environ /tmp 2>/dev/null"),
            stdin=API_KEY.encode() + b"\n",
            timeout_seconds=60.0,
        )
        found = await sandbox.exec(search)

    assert API_KEY not in json.dumps(stand_in.bodies)
    # Its lines hold the key: that search is one process, found by nothing else.
    assert found.stdout.kept == b"", found
    assert token.encode() not in environment.stdout.kept
    assert token not in f"{sandbox.access()}"


async def test_a_sandbox_in_use_is_renewed_and_never_beyond_its_limit(
    stand_in: StandInServer, owners: Owners
) -> None:
    config = OpenSandboxConfig(lease_seconds=1.0)
    spec = attrs.evolve(SPEC, lifetime_seconds=4.0)
    async with (
        providers.over_stand_in(stand_in, config) as opened,
        made(opened, owners, spec) as (label, sandbox),
    ):
        assert sandbox.expires_at is not None
        record = stand_in.of_claim(label.claim)
        assert record.expires_at is not None
        assert record.expires_at < sandbox.expires_at - 1.0
        with anyio.fail_after(30.0):
            ended = await ran(sandbox, "sleep 300")

        assert ended.how == Lost("expired: its lifetime is over")
        assert time.time() >= sandbox.expires_at - 0.1
    renewals = [
        path for _, path in stand_in.requests if path.endswith("renew-expiration")
    ]
    assert len(renewals) >= 4


@pytest.mark.case("FC-223")
@pytest.mark.parametrize(
    "told", ["", "127.0.0.1:None/proxy/44772", "fd00::1:44772", "[::1"]
)
async def test_an_address_that_is_none_is_told_and_nothing_stays(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners, told: str
) -> None:
    stand_in.faults["endpoint"] = told

    with pytest.raises(ProviderUnreachable, match="no address"):
        await provider.create(owners.label(), SPEC)

    assert stand_in.sandboxes == {}


@pytest.mark.parametrize("fault", ["renew_fails", "is_away"])
async def test_a_renewal_that_fails_for_a_while_is_tried_again(
    stand_in: StandInServer, owners: Owners, fault: str
) -> None:
    config = OpenSandboxConfig(lease_seconds=2.0)
    async with (
        providers.over_stand_in(stand_in, config) as opened,
        made(opened, owners) as (label, _),
    ):
        record = stand_in.of_claim(label.claim)
        before = record.expires_at
        stand_in.faults[fault] = True
        await anyio.sleep(0.8)
        assert record.expires_at == before
        del stand_in.faults[fault]

        async def is_renewed() -> bool:
            return record.expires_at != before

        assert await comes_true(is_renewed, seconds=5.0)


async def test_a_sandbox_that_is_gone_is_renewed_no_more(
    stand_in: StandInServer, owners: Owners
) -> None:
    config = OpenSandboxConfig(lease_seconds=1.0)
    label = owners.label()
    async with providers.over_stand_in(stand_in, config) as opened:
        sandbox = await opened.create(label, SPEC)
        stand_in.sandboxes.pop(sandbox.sandbox_id).end()
        await anyio.sleep(0.6)
        asked = len(stand_in.requests)

        await anyio.sleep(0.8)

        assert len(stand_in.requests) == asked


async def test_what_stands_before_the_server_does_not_tell_that_a_sandbox_is_gone(
    stand_in: StandInServer, owners: Owners
) -> None:
    async with (
        providers.over_stand_in(stand_in) as opened,
        made(opened, owners) as (label, sandbox),
        lifecycle_of(stand_in) as lifecycle,
    ):
        stand_in.faults["is_away"] = True

        status = await sandbox.status()
        with pytest.raises(ProviderUnreachable, match="404"):
            await remove(lifecycle, label, sandbox.sandbox_id)
        with pytest.raises(ProviderUnreachable, match="404"):
            await opened.connect(sandbox.access(), borrower=ClaimId("borrower"))
        del stand_in.faults["is_away"]

        assert status.liveness is Liveness.UNKNOWN
        assert (await sandbox.status()).liveness is Liveness.RUNNING
        assert await opened.find(label) is not None


async def test_a_sandbox_that_nobody_uses_any_more_ends_with_its_lease(
    stand_in: StandInServer, owners: Owners
) -> None:
    label = owners.label()
    config = OpenSandboxConfig(lease_seconds=1.0)
    async with providers.over_stand_in(stand_in, config) as opened:
        await opened.create(label, SPEC)

    async def is_gone() -> bool:
        return stand_in.left(label.claim) == ()

    assert await comes_true(is_gone, seconds=30.0)


@pytest.mark.case("FC-092")
async def test_an_end_that_the_server_refuses_is_asked_for_again(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    label = owners.label()
    await provider.create(label, SPEC)
    stand_in.faults["delete_fails"] = 3

    await provider.destroy(label)

    assert stand_in.sandboxes == {}


@pytest.mark.case("FC-092")
async def test_an_end_that_never_comes_is_told_within_its_bound(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with (
        made(provider, owners) as (label, _),
        lifecycle_of(stand_in) as lifecycle,
    ):
        stand_in.faults["delete_fails"] = 10_000
        found = stand_in.of_claim(label.claim)

        with pytest.raises(DestroyFailed, match="removal in progress"):
            await remove(lifecycle, label, found.sandbox_id, seconds=0.3)
        stand_in.faults["delete_fails"] = 0


async def test_every_page_of_a_list_is_read(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    labels = [owners.label() for _ in range(3)]
    for label in labels:
        await provider.create(label, SPEC)
    stand_in.page_size = 1

    listed = [found.label async for found in provider.list(owners.one)]

    assert sorted(map(str, listed)) == sorted(map(str, labels))
    for label in labels:
        await provider.destroy(label)


async def test_ids_that_are_no_labels_are_found_again(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    for claim in ("päth/with: blanks " * 9, "b32.", "-", ""):
        label = ClaimLabel(claim=ClaimId(claim), owner=owners.one)
        sandbox = await provider.create(label, SPEC)

        found = await provider.find(label)
        listed = [one.label async for one in provider.list(owners.one)]
        await provider.destroy(label)

        assert found is not None
        assert found.sandbox_id == sandbox.sandbox_id
        assert listed == [label]
        assert await provider.find(label) is None


@pytest.mark.case("FC-104")
async def test_what_is_lent_is_looked_at_first(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    borrower = ClaimId("borrower")
    async with made(provider, owners) as (label, sandbox):
        access = sandbox.access()
        for odd in (
            attrs.evolve(access, descriptor={"sandbox_id": ""}),
            attrs.evolve(access, descriptor={"sandbox_id": ".."}),
            attrs.evolve(access, workdir="relative"),
        ):
            with pytest.raises(SpecRefused):
                await provider.connect(odd, borrower=borrower)
        await provider.freeze(label)
        await provider.freeze(label)
        with pytest.raises(SandboxLost, match="frozen"):
            await provider.connect(access, borrower=borrower)
        await provider.thaw(label)
    gone = SandboxAccess(
        provider="opensandbox",
        descriptor={"sandbox_id": sandbox.sandbox_id},
        workdir="/tmp",
    )
    with pytest.raises(SandboxLost, match="no such"):
        await provider.connect(gone, borrower=borrower)
    with pytest.raises(SandboxLost):
        await provider.freeze(label)


@pytest.mark.case("FC-104")
async def test_a_lent_sandbox_that_cannot_be_worked_in_is_never_handed_out(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    async with made(provider, owners) as (_, sandbox):
        await ran(sandbox, "mkdir -p /tmp/in-the-way; : > /tmp/in-the-way/file")
        access = attrs.evolve(sandbox.access(), workdir="/tmp/in-the-way/file/x")

        with pytest.raises(SandboxFailed, match="workdir"):
            await provider.connect(access, borrower=ClaimId("borrower"))


async def test_status_tells_what_the_server_says(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with made(provider, owners) as (label, sandbox):
        stand_in.faults["status"] = 500
        unknown = await sandbox.status()
        stand_in.faults["status"] = None
        running = await sandbox.status()
        stand_in.kill(label.claim)
        ended = await sandbox.status()

    assert unknown.liveness is Liveness.UNKNOWN
    assert running.liveness is Liveness.RUNNING
    assert ended.liveness is Liveness.ENDED
    assert (await sandbox.status()).liveness is Liveness.ENDED


async def test_a_user_or_an_interpreter_that_is_not_there_is_refused(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    with pytest.raises(SpecRefused, match="no user"):
        await provider.create(owners.label(), attrs.evolve(SPEC, user="nobody-here"))
    config = OpenSandboxConfig()
    stand_in.python = "python-that-is-not-there"
    async with providers.over_stand_in(stand_in, config) as opened:
        with pytest.raises(CreateFailed, match="image that has python3"):
            await opened.create(owners.label(), SPEC)
    stand_in.python = "false"
    async with providers.over_stand_in(stand_in, config) as opened:
        with pytest.raises(CreateFailed, match="image that has python3"):
            await opened.create(owners.label(), SPEC)
    assert stand_in.sandboxes == {}


async def test_a_published_port_is_reached_where_the_server_says(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    spec = attrs.evolve(SPEC, ports=(18_080,))
    script = "(python3 -m http.server 18080 --bind 127.0.0.1 >/dev/null 2>&1 &) ; true"
    async with made(provider, owners, spec) as (_, sandbox):
        command = attrs.evolve(shell(script, timeout_seconds=30.0), detaches=True)
        assert (await sandbox.exec(command)).succeeded
        endpoint = await sandbox.endpoint(18_080)
        async with open_http_client(endpoint.url) as http:

            async def answers() -> bool:
                got = await http.request(
                    "GET", endpoint.url, repeatable=True, headers=endpoint.headers
                )
                return got.status_code == 200

            assert await comes_true(answers, seconds=30.0)


async def test_a_program_has_its_streams_attached(
    provider: OpenSandboxProvider, owners: Owners
) -> None:
    async with made(provider, owners) as (_, sandbox):
        assert hasattr(sandbox, "open_process")
        async with sandbox.open_process(("cat",)) as stream:
            await stream.send(b"\x00there and back\n")
            with anyio.fail_after(30.0):
                assert await stream.receive() == b"\x00there and back\n"
        async with sandbox.open_process(("no-such-program",)) as stream:
            with anyio.fail_after(30.0):
                assert await stream.receive() == b""


async def test_a_large_file_that_is_cut_off_on_its_way_out_is_told(
    provider: OpenSandboxProvider, stand_in: StandInServer, owners: Owners
) -> None:
    async with made(provider, owners) as (label, sandbox):
        await ran(sandbox, "head -c 6000000 /dev/zero > big; ln -s big link")

        async def read(path: str) -> int:
            async with sandbox.get(path) as chunks:
                return sum([len(chunk) async for chunk in chunks])

        async with execd_of(stand_in, label) as execd:
            await go_wrong(execd, cut_download=1)
            with pytest.raises(TransferCut) as caught:
                await read("big")
            assert (caught.value.announced, caught.value.got < 6_000_000) == (
                6_000_000,
                True,
            )
            assert await read("big") == await read("link") == 6_000_000
            # What execd does not give comes through the worker.
            await go_wrong(execd, refuse_download=1)
            assert await read("big") == 6_000_000
            await go_wrong(execd, drop_download=1)
            assert await read("big") == 6_000_000
