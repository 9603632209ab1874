# SPDX-License-Identifier: Apache-2.0
"""One watch of a namespace: whatever happens to it, no event is lost or made up."""

import resource
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from livery.adapters.agent_sandbox.claim_facts import to_claim
from livery.adapters.agent_sandbox.claim_watch import WATCH_SECONDS, Followed
from livery.adapters.agent_sandbox.kubernetes_package import CONNECTIONS_MAX
from livery.ports.required.sandbox import Liveness
from livery.ports.required.sandbox_provider import (
    ClaimLabel,
    CreateFailed,
    ProviderForbidden,
)

from .fake_cluster import EXPIRED, Silent, cuts, in_watch, says
from .stand_in import SOON_SECONDS, Stable, name_of, new_label, stable, until

pytestmark = pytest.mark.anyio

MANY = 1000
MANY_BYTES_MAX = 100 * 1024 * 1024
STATUSES = 300
STATUSES_A_SECOND_MIN = 10.0


async def waiting(at: Stable, label: ClaimLabel) -> None:
    await at.provider.create(label, at.spec(create_timeout_seconds=300.0))


async def fails_once_told(at: Stable, label: ClaimLabel) -> None:
    """Have a claim that waits fail, so that its create ends."""
    at.cluster.set_ready(name_of(label), "False", "PodFailed", "told")


async def one_waits(at: Stable, trouble: Callable[[], Awaitable[None]]) -> None:
    """Make trouble while one claim waits, then see that it hears of its end."""
    at.cluster.binds = False
    label = new_label()
    heard: list[CreateFailed] = []

    async def create() -> None:
        try:
            await waiting(at, label)
        except CreateFailed as failed:
            heard.append(failed)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        await until(lambda: at.cluster.get("sandboxclaims", name_of(label)))
        await until(lambda: at.cluster.watches_now == 1)
        await trouble()
        await fails_once_told(at, label)
        await until(lambda: heard)
    assert heard[0].reason == "PodFailed: told"


@pytest.mark.case("FC-229")
@pytest.mark.parametrize("form", ["event", "status"])
async def test_an_expired_watch_lists_again_without_haste(
    tmp_path: Path, form: str
) -> None:
    async with stable(tmp_path) as at:
        script = (
            in_watch(EXPIRED)
            if form == "event"
            else says(410, "Expired", "too old resource version")
        )

        async def expire() -> None:
            at.cluster.will("watch", *[script] * 4)
            listed = at.cluster.asked.count("list sandboxclaims")
            begun = time.monotonic()
            at.cluster.cut_watches()
            await until(
                lambda: at.cluster.asked.count("list sandboxclaims") >= listed + 4
            )
            # Each is waited for longer than the one before.
            assert time.monotonic() - begun >= 0.05 + 0.1 + 0.2

        await one_waits(at, expire)


async def test_a_watch_that_is_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:

        async def cut() -> None:
            listed = at.cluster.asked.count("list sandboxclaims")
            at.cluster.cut_watches()
            await until(lambda: at.cluster.watches_now == 0)
            await until(lambda: at.cluster.watches_now == 1)
            assert at.cluster.asked.count("list sandboxclaims") == listed

        await one_waits(at, cut)
        assert at.cluster.watches_most == 1


async def test_what_happens_between_two_watches_is_not_missed(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:

        async def compacted() -> None:
            at.cluster.will("watch", cuts, says(500, "InternalError", "etcd"))
            at.cluster.cut_watches()
            at.cluster.compact()

        await one_waits(at, compacted)


async def test_an_error_of_another_kind_is_no_end(tmp_path: Path) -> None:
    odd = {"type": "ERROR", "object": {"kind": "Status", "code": 500}}
    async with stable(tmp_path) as at:

        async def err() -> None:
            at.cluster.will("watch", in_watch(odd, "no object"), in_watch(odd))
            at.cluster.cut_watches()

        await one_waits(at, err)


async def test_a_restarted_api_server_is_found_again(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:

        async def restart() -> None:
            at.cluster.will("any", *[cuts] * 4)
            at.cluster.cut_watches()

        await one_waits(at, restart)


async def test_a_new_token_is_read_when_the_old_one_is_over(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:

        async def expire() -> None:
            at.cluster.token = "second"
            at.cluster.kubeconfig()
            at.cluster.cut_watches()
            await until(lambda: at.cluster.watches_now == 1)

        await one_waits(at, expire)
        assert await at.provider.find(new_label()) is None


@pytest.mark.parametrize("text", ["", "a: [", "just text"])
async def test_a_configuration_that_is_half_written_is_read_again(
    tmp_path: Path, text: str
) -> None:
    async with stable(tmp_path) as at:

        async def expire() -> None:
            at.cluster.token = "second"
            path = tmp_path / "kubeconfig"
            path.write_text(text)
            at.cluster.cut_watches()
            with pytest.raises(ProviderForbidden):
                await at.provider.find(new_label())
            at.cluster.kubeconfig()
            await until(lambda: at.cluster.watches_now == 1)

        await one_waits(at, expire)
        assert await at.provider.find(new_label()) is None


async def test_a_token_that_nobody_takes_is_told(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.token = "second"
        with pytest.raises(ProviderForbidden):
            await at.provider.find(new_label())
        with anyio.fail_after(SOON_SECONDS):
            with pytest.raises(ProviderForbidden):
                await waiting(at, new_label())


async def test_who_may_not_watch_does_not_wait_for_nothing(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        words = "sandboxclaims is forbidden: cannot list"
        at.cluster.will("list", *[says(403, "Forbidden", words)] * 50)
        with anyio.fail_after(SOON_SECONDS):
            with pytest.raises(ProviderForbidden, match="cannot list"):
                await waiting(at, new_label())
        assert at.cluster.all("sandboxclaims") == []


@pytest.mark.case("FC-039")
async def test_a_character_that_is_split_between_pieces_is_whole(
    tmp_path: Path,
) -> None:
    words = "文件が見つかりません" * 500
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        label = new_label()

        async def fail() -> None:
            await until(lambda: at.cluster.get("sandboxclaims", name_of(label)))
            at.cluster.set_ready(name_of(label), "False", "PodFailed", words)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            with pytest.raises(CreateFailed) as failed:
                await waiting(at, label)
        assert failed.value.reason == f"PodFailed: {words}"


async def test_a_claim_that_a_list_lacks_is_asked_for(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        await until(lambda: at.cluster.watches_now == 1)
        seen = at.cluster.asked.count("get sandboxclaims")

        # Lists and watches are late; the claim is there.
        at.cluster.hides.add(name_of(label))
        at.cluster.compact()
        at.cluster.cut_watches()
        await until(lambda: at.cluster.asked.count("get sandboxclaims") > seen)
        assert (await made.status()).liveness is Liveness.RUNNING
        at.cluster.hides.clear()
        await at.provider.destroy(label)


async def test_news_of_another_generation_are_not_taken(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        plain = {"metadata": {"labels": {"livery.claim": "c"}}}
        old = at.cluster.put("sandboxclaims", "c", plain)
        watch = at.provider.watch("agents")
        with watch.follow("c") as followed:
            await until(lambda: at.cluster.watches_now == 1)
            at.cluster.drop("sandboxclaims", "c")
            new = at.cluster.put("sandboxclaims", "c", plain)
            followed.is_made(to_claim(new))
            at.cluster.set_ready("c", "True", "SandboxReady", "", sandbox="s")

            def is_bound(seen: Followed) -> bool:
                return seen.facts is not None and seen.facts.is_bound

            with anyio.fail_after(SOON_SECONDS):
                await followed.until(is_bound)
            assert not followed.is_gone
            assert followed.facts is not None
            assert followed.facts.uid == new["metadata"]["uid"]  # type: ignore[index]
            assert followed.facts.uid != old["metadata"]["uid"]  # type: ignore[index]


async def test_a_thousand_claims_wait_with_one_watch(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        labels = [new_label() for _ in range(MANY)]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        failed: list[str] = []

        async def create(label: ClaimLabel) -> None:
            try:
                await waiting(at, label)
            except CreateFailed as fault:
                failed.append(fault.reason)

        async with anyio.create_task_group() as tasks:
            for label in labels:
                tasks.start_soon(create, label)
            with anyio.fail_after(10 * SOON_SECONDS):
                while len(at.cluster.all("sandboxclaims")) < MANY:  # noqa: ASYNC110
                    await anyio.sleep(0.1)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
            await until(lambda: at.cluster.watches_now == 1)
            # The stand-in's own objects are counted along.
            assert used < MANY_BYTES_MAX
            for label in labels:
                at.cluster.set_ready(name_of(label), "False", "PodFailed", "x")
        assert failed == ["PodFailed: x"] * MANY
        assert at.cluster.watches_most == 1


async def test_a_watch_that_is_never_answered_ends_with_its_provider(
    tmp_path: Path,
) -> None:
    silent = Silent()
    async with stable(tmp_path) as at:
        at.cluster.binds = False
        at.cluster.will("watch", silent)
        async with at.open_again() as provider, anyio.create_task_group() as tasks:
            tasks.start_soon(provider.create, new_label(), at.spec())
            await until(lambda: silent.now == 1)
            tasks.cancel_scope.cancel()

        # Long before the time is over that an answer may take.
        with anyio.fail_after(WATCH_SECONDS / 2):
            await until(lambda: silent.now == 0)


@pytest.mark.case("FC-231")
async def test_threads_are_few_however_many_calls_there_are(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        before = threading.active_count()
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(at.provider.find, new_label())
        assert threading.active_count() <= before + CONNECTIONS_MAX + 1


@pytest.mark.case("FC-136")
async def test_status_is_told_often_enough(tmp_path: Path) -> None:
    async with stable(tmp_path) as at:
        label = new_label()
        made = await at.provider.create(label, at.spec())
        begun = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for _ in range(STATUSES):
                tasks.start_soon(made.status)
        assert STATUSES / (time.monotonic() - begun) >= STATUSES_A_SECOND_MIN
        await at.provider.destroy(label)
