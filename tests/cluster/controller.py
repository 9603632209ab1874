# SPDX-License-Identifier: Apache-2.0
"""The pool controller's double: binds claims to sandboxes that are Docker containers.

It does to the API server's objects what the real controller does: pool members are
made ahead, a claim adopts one (whose name is not the claim's) or starts cold, name,
addresses and Ready are written in one update, expiry and deletion end the pod. A pod
that ends by itself is noticed. Claims that cannot succeed get the real reasons.
"""

import datetime
import itertools
import re
from typing import Any

import anyio
import anyio.abc
import attrs
import httpx

from .binding import (
    CLAIMS,
    POOLS,
    SANDBOXES,
    TEMPLATES,
    Bound,
    Key,
    Refused,
    condition,
    key_of,
    needs_cold_start,
    pod_template,
    refusal_of,
    sandbox_object,
)
from .kube import Kube
from .pods import Pods

TICK_SECONDS = 0.2
LATEST_RECONCILERS = 8
DEATH_LOOKS_EVERY = 5
"""In ticks: how often the pods are looked at."""


@attrs.define(kw_only=True)
class Behaviour:
    """What the controller is told to do wrong, or late."""

    holds: bool = False
    """No claim is bound; those that wait say `AdoptionPending`."""
    bind_seconds: float = 0.0
    fails_with: str = ""
    """`Reason: words` that every claim from now on fails with."""
    ends_pods: bool = True
    """Whether the pod and Sandbox of a deleted claim are ended."""
    notices_deaths: bool = True
    end_seconds: float = 0.0
    """How long a pod stays after its claim has gone."""


class Controller:
    """The double, over one API server."""

    def __init__(self, kube: Kube, pods: Pods, tasks: anyio.abc.TaskGroup) -> None:
        """Work through `kube` as the administrator."""
        self.behaviour = Behaviour()
        self.claims: dict[Key, dict[str, Any]] = {}
        self.bound: dict[str, Bound] = {}
        """By the claim's uid."""
        self._kube = kube
        self._pods = pods
        self._tasks = tasks
        self._pools: dict[Key, dict[str, Any]] = {}
        self._templates: dict[Key, dict[str, Any]] = {}
        self._members: dict[Key, list[Bound]] = {}
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._numbers = itertools.count(1)
        self._limiter = anyio.CapacityLimiter(LATEST_RECONCILERS)
        self._filling = anyio.Lock()

    async def run(self) -> None:
        """Watch and tick until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._kube.follow, TEMPLATES, self._templates, self._look)
            group.start_soon(self._kube.follow, POOLS, self._pools, self._look)
            group.start_soon(self._kube.follow, CLAIMS, self.claims, self._seen)
            for tick in itertools.count():
                await anyio.sleep(TICK_SECONDS)
                await self._expire()
                if tick % DEATH_LOOKS_EVERY == 0 and self.behaviour.notices_deaths:
                    await self._look_for_deaths()

    def look_again(self) -> None:
        """Look at every claim again."""
        for key in list(self.claims):
            self._soon(key)

    def ready_members(self, key: Key) -> int:
        """Return how many sandboxes of a pool wait for a claim."""
        return len(self._members.get(key, []))

    def sandboxes(self) -> list[Bound]:
        """Return every sandbox that there is, bound or waiting."""
        return [*self.bound.values(), *itertools.chain(*self._members.values())]

    def named(self, sandbox: str) -> Bound:
        """Return the sandbox of that name."""
        return next(one for one in self.sandboxes() if one.name == sandbox)

    def _seen(self, key: Key) -> None:
        self._soon(key)

    def _look(self, key: Key) -> None:
        """Something of a pool has changed: fill it, and look at who waits."""
        self._tasks.start_soon(self._fill_all)
        self.look_again()

    def _soon(self, key: Key) -> None:
        if key in self._busy:
            self._again.add(key)
            return
        self._busy.add(key)
        self._tasks.start_soon(self._reconciled, key)

    async def _reconciled(self, key: Key) -> None:
        try:
            async with self._limiter:
                await self._reconcile(key)
        except httpx.HTTPError:
            # The API server is away or another writer was first: look again.
            await anyio.sleep(TICK_SECONDS)
            self._again.add(key)
        finally:
            self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._soon(key)

    async def _reconcile(self, key: Key) -> None:
        claim = self.claims.get(key)
        uid = claim["metadata"]["uid"] if claim else ""
        for other in [
            b for b in self.bound.values() if b.claim == key and b.uid != uid
        ]:
            await self._end(other)
        if claim is None:
            return
        if claim["metadata"].get("deletionTimestamp"):
            await self._finish(key, claim)
        elif uid not in self.bound:
            await self._bind(key, claim)
        elif not self.bound[uid].is_told:
            # The API server went away between binding and telling.
            await self._tell_ready(self.bound[uid])

    async def _finish(self, key: Key, claim: dict[str, Any]) -> None:
        """End what a claim has that only waits for its finalizers."""
        bound = self.bound.get(claim["metadata"]["uid"])
        if bound is not None:
            await self._end(bound)
        kept = claim["metadata"].get("finalizers", [])
        if "foregroundDeletion" in kept:
            # In a cluster the garbage collector does it, once the pod is gone.
            kept = [one for one in kept if one != "foregroundDeletion"]
            await self._kube.patch(CLAIMS, key, {"metadata": {"finalizers": kept}})

    async def _bind(self, key: Key, claim: dict[str, Any]) -> None:
        if self.behaviour.fails_with:
            reason, _, words = self.behaviour.fails_with.partition(": ")
            await self._say(key, claim, Refused(reason, words))
            return
        pool = self._pools.get((key[0], claim["spec"]["warmPoolRef"]["name"]))
        name = pool["spec"]["sandboxTemplateRef"]["name"] if pool else ""
        template = self._templates.get((key[0], name))
        refused = refusal_of(claim, pool, template)
        if refused is not None:
            await self._say(key, claim, refused)
            return
        if self.behaviour.holds:
            pending = Refused("AdoptionPending", "waiting for a sandbox of the pool")
            await self._say(key, claim, pending)
            return
        assert pool is not None
        assert template is not None
        if self.behaviour.bind_seconds:
            await anyio.sleep(self.behaviour.bind_seconds)
        bound = await self._adopted(key, claim, pool)
        if bound is None:
            bound = await self._made(key[0], key[1], pod_template(template, claim))
        bound.claim, bound.uid = key, claim["metadata"]["uid"]
        bound.metadata = claim["spec"].get("additionalPodMetadata", {})
        self.bound[bound.uid] = bound
        if self.claims.get(key) is None:
            await self._end(bound)  # It went while its sandbox was made.
            return
        await self._tell_ready(bound)
        self._tasks.start_soon(self._fill_all)

    async def _adopted(
        self, key: Key, claim: dict[str, Any], pool: dict[str, Any]
    ) -> Bound | None:
        waiting = self._members.get(key_of(pool), [])
        if not waiting or needs_cold_start(claim):
            return None
        bound = waiting.pop(0)
        owner = {
            "apiVersion": claim["apiVersion"],
            "kind": "SandboxClaim",
            "name": key[1],
            "uid": claim["metadata"]["uid"],
            "controller": True,
        }
        try:
            await self._kube.patch(
                SANDBOXES,
                (key[0], bound.name),
                {"metadata": {"ownerReferences": [owner]}},
            )
        except BaseException:
            waiting.insert(0, bound)
            raise
        return bound

    async def _made(self, namespace: str, name: str, template: dict[str, Any]) -> Bound:
        pod = await self._pods.make(name, template)
        try:
            # What an earlier try left, when the API server went away in between.
            await self._kube.delete(SANDBOXES, (namespace, name))
            made = await self._kube.create(
                SANDBOXES, namespace, sandbox_object(name, template)
            )
            bound = Bound(
                namespace=namespace,
                name=name,
                sandbox_uid=made["metadata"]["uid"],
                pod=pod,
            )
            await self._tell_sandbox(bound, "True", "DependenciesReady", [pod.ip])
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._pods.end(pod.container)
            raise
        return bound

    async def _tell_ready(self, bound: Bound) -> None:
        # One update, as the real one: who sees Ready sees name and addresses.
        status = {
            "sandbox": {"name": bound.name, "podIPs": [bound.pod.ip]},
            "conditions": [condition("True", "DependenciesReady", "Pod is Ready")],
        }
        assert bound.claim is not None
        await self._kube.patch_status(CLAIMS, bound.claim, {"status": status})
        bound.is_told = True

    async def _tell_sandbox(
        self, bound: Bound, status: str, reason: str, addresses: list[str]
    ) -> None:
        told = {
            "podIPs": addresses,
            "nodeName": "node-1",
            "conditions": [condition(status, reason, reason)],
        }
        key = (bound.namespace, bound.name)
        await self._kube.patch_status(SANDBOXES, key, {"status": told})

    async def _say(self, key: Key, claim: dict[str, Any], refused: Refused) -> None:
        found = claim.get("status", {}).get("conditions", [])
        if any(
            (one["reason"], one["message"]) == (refused.reason, refused.message)
            for one in found
        ):
            return
        told = condition("False", refused.reason, refused.message)
        await self._kube.patch_status(CLAIMS, key, {"status": {"conditions": [told]}})

    async def _end(self, bound: Bound) -> None:
        """End a sandbox: its object at once, its pod after its time."""
        if not self.behaviour.ends_pods:
            return
        await self._kube.delete(SANDBOXES, (bound.namespace, bound.name))
        self.bound.pop(bound.uid, None)
        if self.behaviour.end_seconds:
            await anyio.sleep(self.behaviour.end_seconds)
        await self._pods.end(bound.pod.container)

    async def _fill_all(self) -> None:
        async with self._filling:
            for key, pool in list(self._pools.items()):
                await self._fill(key, pool)
            for key in [key for key in self._members if key not in self._pools]:
                await self._empty(key)

    async def _fill(self, key: Key, pool: dict[str, Any]) -> None:
        members = self._members.setdefault(key, [])
        name = pool["spec"]["sandboxTemplateRef"]["name"]
        try:
            while len(members) < pool["spec"].get("replicas", 1):
                template = self._templates.get((key[0], name))
                if template is None or self._pools.get(key) is None:
                    return
                fresh = f"{key[1]}-{next(self._numbers):05d}"
                members.append(await self._made(key[0], fresh, pod_template(template)))
                self.look_again()
        except httpx.HTTPError:
            return  # The next change tries again.

    async def _empty(self, key: Key) -> None:
        """End the members of a pool that is gone."""
        try:
            while self._members[key]:
                await self._end(self._members[key][0])
                del self._members[key][0]
        except httpx.HTTPError:
            return  # The next change tries again.
        del self._members[key]

    async def _expire(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        for key, claim in list(self.claims.items()):
            life = claim["spec"].get("lifecycle", {})
            if "shutdownTime" not in life or claim["metadata"].get("deletionTimestamp"):
                continue
            if _moment(life["shutdownTime"]) > now:
                continue
            try:
                await self._expire_one(key, claim, life.get("shutdownPolicy", "Retain"))
            except httpx.HTTPError:
                continue  # The next tick tries again.

    async def _expire_one(self, key: Key, claim: dict[str, Any], policy: str) -> None:
        if policy != "Retain":
            foreground = policy == "DeleteForeground"
            await self._kube.delete(CLAIMS, key, foreground=foreground)
            return
        bound = self.bound.get(claim["metadata"]["uid"])
        if bound is not None:
            await self._end(bound)
        await self._say(key, claim, Refused("ClaimExpired", "Claim has expired"))

    async def _look_for_deaths(self) -> None:
        watched = self.sandboxes()
        if not watched:
            return
        running = await self._pods.running()
        for one in watched:
            if one.pod.container not in running and not one.is_dead:
                one.is_dead = True
                await self.tell_death(one, "PodFailed")

    async def tell_death(self, bound: Bound, reason: str) -> None:
        """Write that a sandbox's pod is no more."""
        try:
            await self._tell_sandbox(bound, "False", reason, [])
            if bound.claim is not None:
                status = {
                    "sandbox": {"name": bound.name, "podIPs": None},
                    "conditions": [
                        condition("False", reason, f"pod is gone: {reason}")
                    ],
                }
                await self._kube.patch_status(CLAIMS, bound.claim, {"status": status})
        except httpx.HTTPError:
            bound.is_dead = False

    async def replace(self, sandbox: str) -> None:
        """Have another sandbox of the same name stand in for one."""
        bound = self.named(sandbox)
        bound.is_dead = True  # Nobody is to notice.
        await self._pods.end(bound.pod.container)
        fresh = await self._made(bound.namespace, bound.name, bound.pod.template)
        bound.pod, bound.sandbox_uid = fresh.pod, fresh.sandbox_uid
        bound.is_dead = False
        if bound.claim is not None:
            await self._tell_ready(bound)

    async def move(self, sandbox: str, address: str) -> None:
        """Write another address for a sandbox's pod."""
        bound = self.named(sandbox)
        bound.pod.ip = address
        await self._tell_sandbox(bound, "True", "DependenciesReady", [address])
        if bound.claim is not None:
            await self._tell_ready(bound)


def _moment(text: str) -> datetime.datetime:
    # Older Pythons read at most six digits after the point.
    return datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
