# SPDX-License-Identifier: Apache-2.0
"""The controller's double makes good what it could not write while the server was away."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from .binding import CLAIMS, POOLS, SANDBOXES, TEMPLATES, Key, Kind
from .controller import Controller
from .pods import Pod

pytestmark = pytest.mark.anyio

SECONDS_MAX = 30.0
CLAIM: Key = ("agents", "one")
POOL: Key = ("agents", "pool")


class FlakyKube:
    """Objects in memory; the calls of `fails` cannot be sent, each once."""

    def __init__(self, *fails: tuple[str, str]) -> None:
        self._fails = list(fails)
        self._followed: dict[Kind, Any] = {}
        self.objects: dict[tuple[Kind, Key], dict[str, Any]] = {}

    async def follow(
        self, kind: Kind, kept: dict[Key, dict[str, Any]], seen: Any
    ) -> None:
        self._followed[kind] = kept, seen
        for (found, key), one in self.objects.items():
            if found == kind:
                kept[key] = one
                seen(key)
        await anyio.sleep_forever()

    def take_away(self, kind: Kind, key: Key) -> None:
        """Delete an object as a client does, and tell who follows."""
        del self.objects[kind, key]
        kept, seen = self._followed[kind]
        del kept[key]
        seen(key)

    async def create(
        self, kind: Kind, namespace: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        self._sent("create", kind)
        self.objects[kind, (namespace, body["metadata"]["name"])] = body
        body["metadata"]["uid"] = f"uid-{len(self.objects)}"
        return body

    async def patch(self, kind: Kind, key: Key, body: dict[str, Any]) -> None:
        self._sent("patch", kind)
        self.objects[kind, key]["metadata"] |= body["metadata"]

    async def patch_status(self, kind: Kind, key: Key, body: dict[str, Any]) -> None:
        self._sent("patch_status", kind)
        self.objects[kind, key]["status"] = body["status"]

    async def delete(self, kind: Kind, key: Key, *, foreground: bool = False) -> None:
        self._sent("delete", kind)
        self.objects.pop((kind, key), None)

    def _sent(self, call: str, kind: Kind) -> None:
        if (call, kind.plural) in self._fails:
            self._fails.remove((call, kind.plural))
            raise httpx.ConnectError("the API server is away")


class CountedPods:
    """Pods that are names alone."""

    def __init__(self) -> None:
        self.running_now: set[str] = set()
        self.made = 0

    async def make(self, name: str, template: dict[str, Any]) -> Pod:
        self.made += 1
        container = f"{name}-{self.made}"
        self.running_now.add(container)
        return Pod(
            name=name,
            container=container,
            container_ip="192.0.2.1",
            ip="192.0.2.1",
            template=template,
        )

    async def end(self, container: str) -> None:
        self.running_now.discard(container)

    async def running(self) -> set[str]:
        return self.running_now


async def until(seen: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS_MAX):
        while not seen():  # noqa: ASYNC110  # What is waited for has no event.
            await anyio.sleep(0.01)


@asynccontextmanager
async def controller(kube: FlakyKube, pods: CountedPods) -> AsyncGenerator[Controller]:
    async with anyio.create_task_group() as tasks:
        made = Controller(kube, pods, tasks)  # type: ignore[arg-type]  # As far as it asks.
        tasks.start_soon(made.run)
        yield made
        tasks.cancel_scope.cancel()


def kube_with_a_claim(*fails: tuple[str, str]) -> FlakyKube:
    kube = FlakyKube(*fails)
    named = {"namespace": "agents"}
    template: dict[str, Any] = {"spec": {"podTemplate": {"spec": {"containers": [{}]}}}}
    kube.objects[TEMPLATES, ("agents", "plain")] = template
    kube.objects[POOLS, POOL] = {
        "metadata": {**named, "name": "pool"},
        "spec": {"replicas": 1, "sandboxTemplateRef": {"name": "plain"}},
    }
    kube.objects[CLAIMS, CLAIM] = {
        "apiVersion": CLAIMS.version,
        "metadata": {**named, "name": "one", "uid": "claim-uid"},
        "spec": {"warmPoolRef": {"name": "pool"}},
    }
    return kube


@pytest.mark.parametrize(
    "fails",
    [
        [("patch_status", "sandboxclaims")],
        [("patch_status", "sandboxclaims")] * 3,
        [("patch", "sandboxes")],
        [("create", "sandboxes")],
        [("patch_status", "sandboxes")],
        [("delete", "sandboxes"), ("patch_status", "sandboxclaims")],
    ],
)
async def test_a_claim_gets_ready_and_ends_whatever_could_not_be_written_at_first(
    fails: list[tuple[str, str]],
) -> None:
    kube = kube_with_a_claim(*fails)
    pods = CountedPods()

    async with controller(kube, pods) as made:
        await until(lambda: "status" in kube.objects[CLAIMS, CLAIM])
        told = kube.objects[CLAIMS, CLAIM]["status"]["sandbox"]["name"]
        assert made.named(told).pod.container in pods.running_now
        assert made.named(told).claim == CLAIM

        kube.take_away(CLAIMS, CLAIM)
        await until(lambda: (SANDBOXES, ("agents", told)) not in kube.objects)
        await until(
            lambda: (
                pods.running_now
                == {one.pod.container for one in made.sandboxes() if not one.uid}
            )
        )
