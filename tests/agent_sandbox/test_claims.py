# SPDX-License-Identifier: Apache-2.0
"""Claims: bound, failed with the cluster's own words, given up, adopted, ended."""

import json
import time
from pathlib import Path

import anyio
import pytest

from livery.domain.claims import ClaimId
from livery.ports.contracts.sandbox_context import comes_true
from livery.ports.required.sandbox import (
    Exited,
    Liveness,
    Lost,
    SandboxAccess,
    SandboxLost,
    shell,
)
from livery.ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    DestroyFailed,
    ProviderForbidden,
    ProviderUnreachable,
    SandboxSpec,
    SpecRefused,
)

from ..model_gateway.upstream import answer
from .fake_cluster import Stream, cuts, says
from .stand_in import (
    OWNER,
    SOON_SECONDS,
    Stable,
    name_of,
    new_label,
    stable,
    until,
)

pytestmark = pytest.mark.anyio


def slow(at: Stable, **changes: object) -> SandboxSpec:
    return at.spec(create_timeout_seconds=300.0, **changes)


@pytest.mark.case("FC-004")
async def test_a_create_that_is_given_up_leaves_no_claim_and_no_watch(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(at.provider.create, new_label(), slow(at))
                await until(lambda: at.cluster.all("sandboxclaims"))
                await until(lambda: at.cluster.watches_now == 1)
                scope.cancel()

        assert scope.cancelled_caught
        assert at.cluster.all("sandboxclaims") == []
        await until(lambda: at.cluster.watches_now == 0)


@pytest.mark.case("FC-012")
async def test_a_pool_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        options = {"warmpool": "late-pool"}
        with anyio.fail_after(SOON_SECONDS):
            with pytest.raises(CreateFailed, match="WarmPoolNotFound: no pool late"):
                await at.provider.create(
                    new_label(), slow(at, provider_options=options)
                )
        assert at.cluster.all("sandboxclaims") == []

        # Made late, it serves the next one.
        at.cluster.put("sandboxwarmpools", "late-pool", {"spec": {}})
        label = new_label()
        await at.provider.create(label, slow(at, provider_options=options))
        await at.provider.destroy(label)


@pytest.mark.case("FC-243")
@pytest.mark.parametrize(
    "reason", ["TemplateNotFound", "InvalidMetadata", "PodFailed", "ClaimExpired"]
)
async def test_a_claim_that_can_never_succeed_says_why(
    tmp_path: Path, reason: str
) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        label = new_label()

        async def fail() -> None:
            await until(lambda: at.cluster.get("sandboxclaims", name_of(label)))
            at.cluster.set_ready(name_of(label), "False", "SandboxNotReady", "wait")
            at.cluster.set_ready(name_of(label), "False", reason, "the words of it")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            with anyio.fail_after(SOON_SECONDS):
                with pytest.raises(CreateFailed, match=f"{reason}: the words of it"):
                    await at.provider.create(label, slow(at))
        assert at.cluster.all("sandboxclaims") == []


@pytest.mark.case("FC-011")
async def test_a_quota_is_named_in_seconds(tmp_path: Path) -> None:
    words = 'pods "x" is forbidden: exceeded quota: no-pods, requested: pods=1'
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        label = new_label()

        async def refuse() -> None:
            await until(lambda: at.cluster.get("sandboxclaims", name_of(label)))
            at.cluster.set_ready(name_of(label), "False", "ReconcilerError", words)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse)
            with anyio.fail_after(SOON_SECONDS):
                with pytest.raises(CapacityExhausted, match="exceeded quota: no-pods"):
                    await at.provider.create(label, slow(at))
        assert at.cluster.all("sandboxclaims") == []

        at.cluster.will("create", says(403, "Forbidden", words))
        with pytest.raises(CapacityExhausted, match="no-pods"):
            await at.provider.create(new_label(), slow(at))


async def test_what_the_api_server_refuses_is_told_by_its_kind(tmp_path: Path) -> None:
    refusals = {
        says(403, "Forbidden", "user cannot create"): ProviderForbidden,
        says(422, "Invalid", "spec.x: Invalid value"): SpecRefused,
        says(
            400, "BadRequest", 'admission webhook "w" denied the request: no'
        ): SpecRefused,
        says(404, "NotFound", 'namespaces "agents" not found'): SpecRefused,
        says(404, "", "the server could not find it"): ProviderUnreachable,
        says(409, "Conflict", "odd"): CreateFailed,
    }
    async with stable(tmp_path) as at:
        for script, kind in refusals.items():
            at.cluster.will("create", script)
            with pytest.raises(kind):
                await at.provider.create(new_label(), at.spec())
        assert at.cluster.all("sandboxclaims") == []


@pytest.mark.case("FC-118")
async def test_a_busy_api_server_is_given_the_time_that_it_asks_for(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:
        busy = says(429, "TooManyRequests", "later", "Retry-After: 1")
        at.cluster.will("create", busy)
        label, begun = new_label(), time.monotonic()
        await at.provider.create(label, at.spec())
        assert time.monotonic() - begun >= 1.0
        await at.provider.destroy(label)

        at.cluster.will("create", *[says(429, "TooManyRequests", "full")] * 4)
        with pytest.raises(CapacityExhausted, match="full"):
            await at.provider.create(new_label(), at.spec())


@pytest.mark.case("FC-001")
async def test_a_lost_reply_is_adopted(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.lost_replies.append("create")
        label = new_label()
        made = await at.provider.create(label, at.spec())

        assert len(at.cluster.all("sandboxclaims")) == 1
        ended = await made.exec(shell("echo on", timeout_seconds=20.0))
        assert ended.how == Exited(0)
        await at.provider.destroy(label)


async def test_a_reply_that_never_was_is_told(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.will("create", cuts)
        with pytest.raises(ProviderUnreachable):
            await at.provider.create(new_label(), at.spec())

        at.cluster.lost_replies.append("create")
        at.cluster.will("get", *[cuts] * 4)
        with pytest.raises(ProviderUnreachable):
            await at.provider.create(new_label(), at.spec())


@pytest.mark.case("FC-021")
async def test_a_name_that_is_on_its_way_out_is_waited_for(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        at.cluster.binds = False
        old = at.cluster.put(
            "sandboxclaims",
            name_of(label),
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        )
        at.cluster.binds = True
        made: list[str] = []

        async def create() -> None:
            await at.provider.create(label, slow(at))
            found = at.cluster.get("sandboxclaims", name_of(label))
            assert found is not None
            made.append(str(found["metadata"]["uid"]))  # type: ignore[index]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            await until(lambda: at.cluster.asked.count("create sandboxclaims") > 1)
            at.cluster.drop("sandboxclaims", name_of(label))
        assert made != [old["metadata"]["uid"]]  # type: ignore[index]
        await at.provider.destroy(label)


async def test_a_name_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        at.cluster.put("sandboxclaims", name_of(label), {"metadata": {}})

        with pytest.raises(ClaimTaken):
            await at.provider.create(label, at.spec())
        with pytest.raises(ClaimTaken):
            await at.provider.destroy(label)
        assert await at.provider.find(label) is None
        assert at.cluster.get("sandboxclaims", name_of(label)) is not None


async def test_a_claim_that_another_deletes_is_told(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        label = new_label()

        async def delete() -> None:
            await until(lambda: at.cluster.get("sandboxclaims", name_of(label)))
            at.cluster.drop("sandboxclaims", name_of(label))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete)
            with pytest.raises(CreateFailed, match="deleted by another"):
                await at.provider.create(label, slow(at))


async def test_a_claim_that_no_list_and_no_event_ever_showed_is_told(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:
        label, is_gone = new_label(), anyio.Event()

        async def comes_and_goes(stream: Stream) -> bool:
            made = at.cluster.put("sandboxclaims", name_of(label), {"metadata": {}})
            at.cluster.drop("sandboxclaims", name_of(label))
            is_gone.set()
            await until(lambda: at.cluster.watches_now == 1)
            await stream.send(answer(201, json.dumps(made).encode()))
            return True

        async def comes_too_late(stream: Stream) -> bool:
            await is_gone.wait()
            return False

        at.cluster.will("create", comes_and_goes)
        at.cluster.will("list", comes_too_late)
        with pytest.raises(CreateFailed, match="deleted by another"):
            await at.provider.create(label, slow(at))
        assert at.cluster.watches_most == 1


async def test_a_claim_that_is_never_bound_is_told_with_its_last_words(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        spec = at.spec(create_timeout_seconds=0.5)
        with pytest.raises(CreateFailed, match="its controller has said nothing"):
            await at.provider.create(new_label(), spec)
        assert at.cluster.all("sandboxclaims") == []


@pytest.mark.case("FC-020")
async def test_a_member_of_an_old_template_is_given_back(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.image = "runs:0"
        with pytest.raises(CreateFailed, match="runs runs:0, and the template"):
            await at.provider.create(new_label(), at.spec())
        assert at.cluster.all("sandboxclaims") == []


async def test_an_image_that_may_not_be_looked_at_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stable(tmp_path) as at:
        for _ in range(2):
            label = new_label()
            # The Sandbox may be read, its pool may not.
            at.cluster.forbidden.add("sandboxwarmpools")
            await at.provider.create(label, at.spec())
            await at.provider.destroy(label)

    assert caplog.text.count("present image is not checked") == 1


@pytest.mark.case("FC-082")
async def test_the_real_name_is_the_status_and_expiry_ends_it(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        await at.provider.create(label, at.spec(lifetime_seconds=2.0))
        (sandbox,) = at.cluster.pods
        assert sandbox != name_of(label)

        await until(lambda: at.cluster.pods[sandbox].is_over)
        assert at.cluster.get("sandboxes", sandbox) is None
        assert await at.provider.find(label) is None
        await at.provider.destroy(label)


async def test_a_sandbox_that_was_replaced_is_lost(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        access = made.access()
        at.cluster.set_ready(
            name_of(label), "True", "SandboxReady", "", sandbox="other", ips=["1.2.3.4"]
        )

        async def is_over() -> bool:
            return (await made.status()).liveness is Liveness.ENDED

        assert await comes_true(is_over, seconds=SOON_SECONDS)
        ended = await made.exec(shell("echo on", timeout_seconds=5.0))
        assert isinstance(ended.how, Lost)
        assert "replaced" in ended.how.reason
        at.cluster.put("sandboxes", "other", {"spec": {}})
        with pytest.raises(SandboxLost, match="replaced"):
            await at.provider.connect(access, borrower=ClaimId("b"))
        await at.provider.destroy(label)


async def test_another_sandbox_of_the_same_name_is_another(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        (sandbox,) = at.cluster.pods
        at.cluster.drop("sandboxes", sandbox)
        assert (await made.status()).reason == "its Sandbox is gone"
        at.cluster.put("sandboxes", sandbox, {"spec": {}})
        assert "replaced" in (await made.status()).reason
        await at.provider.destroy(label)


async def test_what_does_not_go_is_left_for_the_reaper(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        async with at.open_again(close_seconds=0.3) as impatient:
            await impatient.create(label, at.spec())
            at.cluster.holds_deletion = True
            with pytest.raises(DestroyFailed):
                await impatient.destroy(label)
            listed = [one async for one in impatient.list(OWNER)]
            assert [one.label for one in listed] == [label]
            assert listed[0].state == "being deleted"
        at.cluster.holds_deletion = False
        await at.provider.destroy(label)


@pytest.mark.case("FC-088")
async def test_one_that_cannot_be_deleted_does_not_hide_the_others(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        labels = [new_label() for _ in range(5)]
        for label in labels:
            _claim_of(at, label)
        at.cluster.will("delete", *[says(500, "InternalError", "broken")] * 4)
        async with at.open_again(close_seconds=0.1) as provider:
            with pytest.raises(DestroyFailed, match="broken"):
                await provider.destroy(labels[2])
            for label in (*labels[:2], *labels[3:]):
                await provider.destroy(label)

            listed = [one async for one in provider.list(OWNER)]
            assert [one.label for one in listed] == [labels[2]]
            await provider.destroy(labels[2])


async def test_a_failure_that_is_kept_keeps_no_connection(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.will("get", says(403, "Forbidden", "not you"))
        async with at.open_again() as provider:
            with pytest.raises(ProviderForbidden) as kept:
                await provider.find(new_label())
            assert at.cluster.connections() == 1

        await until(lambda: at.cluster.connections() == 0)
        assert "not you" in str(kept.value)


async def test_a_server_that_knows_no_claims_yet_has_not_seen_one_go(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        label = new_label()
        _claim_of(at, label)
        unserved = says(404, "", "the server could not find the requested resource")
        at.cluster.will("delete", *[unserved] * 4)
        async with at.open_again(close_seconds=0.1) as provider:
            with pytest.raises(DestroyFailed, match="could not find"):
                await provider.destroy(label)
            listed = [one async for one in provider.list(OWNER)]
            assert [one.label for one in listed] == [label]
            await provider.destroy(label)


async def test_the_list_is_read_page_by_page(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        labels = {new_label() for _ in range(1203)}
        for label in labels:
            _claim_of(at, label)

        assert {one.label async for one in at.provider.list(OWNER)} == labels
        assert at.cluster.asked.count("list sandboxclaims") == 3


async def test_an_odd_descriptor_and_a_folder_that_is_none_are_refused(
    tmp_path: Path,
) -> None:
    async with stable(tmp_path) as at:

        async def refused(workdir: str = "/w", **descriptor: str) -> SpecRefused:
            access = SandboxAccess(
                provider="agent_sandbox", descriptor=descriptor, workdir=workdir
            )
            with pytest.raises(SpecRefused) as raised:
                await at.provider.connect(access, borrower=ClaimId("b"))
            return raised.value

        assert (await refused(odd="x")).field == "descriptor.odd"
        for odd in ("x", "a/b/../c", "../b", "a/..", "a/b?c", "/a/b"):
            assert (await refused(sandbox_id=odd)).field == "descriptor.sandbox_id"
        assert (await refused("w", sandbox_id="a/b")).field == "workdir"


async def test_what_is_ignored_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        spec = at.spec(
            cpus=1.0,
            memory_mib=64,
            processes_max=9,
            user="1:1",
            image="x:1",
            create_timeout_seconds=0.05,
        )
        for _ in range(2):
            with pytest.raises(CreateFailed):
                await at.provider.create(new_label(), spec)

    for word in ("cpus", "memory_mib", "processes_max", "user", "image x:1"):
        told = [line for line in caplog.messages if word in line]
        assert len(told) == 1, word


def _claim_of(at: Stable, label: ClaimLabel) -> None:
    at.cluster.put(
        "sandboxclaims",
        name_of(label),
        {
            "metadata": {
                "labels": {"livery.claim": "c", "livery.owner": label.owner},
                "annotations": {
                    "livery.claim": label.claim,
                    "livery.owner": label.owner,
                },
            }
        },
    )
