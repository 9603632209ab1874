# SPDX-License-Identifier: Apache-2.0
"""Kubernetes agent-sandbox as a place that makes sandboxes.

Each sandbox is what a SandboxClaim of ours takes from a warm pool. The cluster ends
it at its time, whether we live or not. What a claim cannot give is refused; cores,
memory, processes, the user and an image without a pool of its own are what the
pool's template says, and a spec that asks for others is told so once.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from ...domain.claims import ClaimId, OwnerId
from ...ports.provided.worker_channel import ChannelEnded, WorkerFailed
from ...ports.required.sandbox import (
    Command,
    Exited,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
)
from ...ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    ClaimTaken,
    ListedSandbox,
    SandboxSpec,
    SpecRefused,
)
from .berths import Berth
from .claim_facts import ClaimFacts, objects, to_claim
from .claim_watch import ClaimWatch
from .cluster import CLAIM, Cluster
from .cluster_faults import ClusterRefused, ClusterSilent
from .configuration import CAPABILITIES, AgentSandboxConfig, check_config
from .connections import Connections, Mode, NoWay
from .images import Images
from .making import Made, Making, remove
from .manifests import (
    NAME,
    SELECTOR,
    WORKDIR,
    check_spec,
    claim_name,
    label_of,
    owner_selector,
    ports_of,
    to_route,
)
from .opening import OpeningFailed, key_of
from .runtime_api import RuntimeFailed, RuntimeRefused
from .sandbox import AgentSandbox
from .standing import Bound, Standing
from .terms import pools_of
from .warnings import Warnings

PROBE_SECONDS = 30.0
DESCRIPTOR_WORDS = frozenset({"sandbox_id", "sandbox_uid"})
_NotReady = (
    OpeningFailed,
    RuntimeFailed,
    RuntimeRefused,
    NoWay,
    ChannelEnded,
    WorkerFailed,
)
_Unread = (ClusterRefused, ClusterSilent)
"""The way to a sandbox may stand in the cluster."""


@asynccontextmanager
async def open_agent_sandbox(
    config: AgentSandboxConfig,
) -> AsyncGenerator["AgentSandboxProvider"]:
    """Open the provider; the cluster is not asked anything before the first call.

    Raises:
        SpecRefused: The configuration, or the cluster's own, cannot be used.
    """
    check_config(config)
    cluster = await anyio.to_thread.run_sync(
        lambda: Cluster(config.cluster, provider=config.name, patience=config.patience)
    )
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                connections = Connections(config.connection, cluster)
                yield AgentSandboxProvider(
                    config, cluster=cluster, connections=connections, tasks=tasks
                )
            except Exception as raised:
                failure = raised  # Raised below: a task group would wrap it.
            finally:
                # Watches and workers' channels run here.
                tasks.cancel_scope.cancel()
    finally:
        await cluster.aclose()
    if failure is not None:
        raise failure


class AgentSandboxProvider:
    """Makes sandboxes that warm pools of one cluster give."""

    def __init__(
        self,
        config: AgentSandboxConfig,
        *,
        cluster: Cluster,
        connections: Connections,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Use `cluster`; watches and channels run in `tasks`."""
        self._config = config
        self._cluster = cluster
        self._connections = connections
        self._tasks = tasks
        self._standing = Standing(cluster)
        self._images = Images(cluster)
        self._watches: dict[str, ClaimWatch] = {}
        self._warnings = Warnings(config.name)
        self._pools = pools_of(config)

    @property
    def name(self) -> str:
        """The short word for the provider in configuration and messages."""
        return self._config.name

    @property
    def capabilities(self) -> Capabilities:
        """What a spec may ask for; see `CAPABILITIES`."""
        return CAPABILITIES

    def watch(self, namespace: str) -> ClaimWatch:
        """Return the one watch of a namespace, started at its first use."""
        if namespace not in self._watches:
            watch = ClaimWatch(self._cluster, namespace, selector=SELECTOR)
            self._watches[namespace] = watch
            self._tasks.start_soon(watch.run)
        return self._watches[namespace]

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> AgentSandbox:
        """Make the sandbox of a claim, or return the one that it has."""
        check_spec(spec, provider=self.name)
        route = to_route(spec, pools=self._pools)
        self._warnings.of_what_is_ignored(spec, route)
        making = Making(
            provider=self.name,
            managed_by=self._config.managed_by,
            cluster=self._cluster,
            watch=self.watch(route.namespace),
            images=self._images,
            label=label,
            spec=spec,
            route=route,
            needs_address=self._config.connection.mode is Mode.IN_CLUSTER,
            close_seconds=self._config.close_seconds,
        )
        made = await making.make()
        try:
            return await self._make_ready(making, made)
        except BaseException as failure:
            await making.undo(made.bound.claim, failure, is_ours=made.is_ours)
            raise

    async def find(self, label: ClaimLabel) -> AgentSandbox | None:
        """Return the live sandbox of a claim, or None when there was seen to be none."""
        facts = await self._claim(claim_name(label.claim))
        if facts is None or label_of(facts) != label:
            return None
        bound = await self._bound(facts)
        if isinstance(bound, str):
            return None
        sandbox = self._sandbox(self._berth(bound, label))
        try:
            with anyio.fail_after(self._config.connect_seconds):
                await sandbox.make_ready(seconds=self._config.connect_seconds)
        except SandboxLost:
            return None
        except (*_NotReady, *_Unread, TimeoutError) as failure:
            if not (isinstance(failure, OpeningFailed) and failure.is_loss):
                await self._gone_or_failed(bound, "find", failure)
            return None
        return sandbox

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell the claim, whichever of its sandboxes is meant."""
        namespace, name, _ = self._reference(access)
        return SandboxId(f"{namespace}/{name}")

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> AgentSandbox:
        """Reach a claimed sandbox that another lent, also one not made by Livery."""
        namespace, name, uid = self._reference(access)
        reference = f"{namespace}/{name}"
        facts = await self._claim(name, namespaces=(namespace,))
        if facts is None:
            raise self._lost(reference, "there is no such claim")
        bound = await self._bound(facts)
        if isinstance(bound, str):
            raise self._lost(reference, bound)
        if uid and bound.sandbox.uid != uid:
            raise self._lost(reference, "sandbox replaced: the claim has another now")
        sandbox = self._sandbox(
            Berth(
                provider=self.name,
                bound=bound,
                workdir=access.workdir,
                key=key_of(borrower),
                env={},
                ports=ports_of(facts),
                expires_at=facts.shutdown_at,
                is_borrowed=True,
            )
        )
        # What is wrong with its inside is found now, not under the first command.
        try:
            with anyio.fail_after(self._config.connect_seconds):
                await sandbox.make_ready(seconds=self._config.connect_seconds)
        except (*_NotReady, *_Unread, TimeoutError) as failure:
            await self._gone_or_failed(bound, "connect", failure)
            raise self._lost(reference, "it ended meanwhile") from failure
        return sandbox

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every claim with the owner's label, the ended ones included."""
        selector = owner_selector(owner)
        for namespace in self._pools.all_namespaces:
            pages = self._cluster.pages(CLAIM, namespace, selector=selector)
            try:
                found = [
                    each async for page in pages for each in objects(page, "items")
                ]
            except (ClusterRefused, ClusterSilent) as failure:
                raise self._cluster.place.fault(failure) from failure
            for facts in map(to_claim, found):
                label = label_of(facts)
                if label is None or label.owner != owner:
                    continue
                yield ListedSandbox(
                    label=label,
                    sandbox_id=SandboxId(f"{facts.namespace}/{facts.name}"),
                    expires_at=facts.shutdown_at,
                    state="being deleted" if facts.is_ending else facts.told,
                )

    async def destroy(self, label: ClaimLabel) -> None:
        """End the claim, and what it owns, until both are seen gone."""
        facts = await self._claim(claim_name(label.claim))
        if facts is None:
            return
        if label_of(facts) != label:
            raise ClaimTaken(
                provider=self.name,
                claim=label.claim,
                reason="its annotations name another owner or claim",
            )
        await remove(
            self._cluster,
            facts,
            claim=label.claim,
            provider=self.name,
            seconds=self._config.close_seconds,
        )

    async def aclose(self) -> None:
        """Let go of connections; sandboxes go on."""
        await self._cluster.aclose()

    async def _make_ready(self, making: Making, made: Made) -> AgentSandbox:
        seconds = making.spec.ready_timeout_seconds
        berth = self._berth(made.bound, making.label)
        sandbox = self._sandbox(attrs.evolve(berth, env=making.spec.env))
        step = "ready"
        try:
            with anyio.fail_after(seconds):
                await sandbox.make_ready(seconds=seconds)
                await self._probe(making, sandbox)
            if sandbox.holds_token:
                self._warnings.of_a_token(making.route.pool)
            step = "expire"
            if made.is_ours:
                sandbox.expires(await making.expire(made.bound))
        except TimeoutError as late:
            reason = f"it did not answer within {seconds:g} s"
            raise making.failed("ready", reason) from late
        except OpeningFailed as failed:
            if failed.what == "workdir":
                raise SpecRefused(
                    provider=self.name, field="workdir", reason=failed.reason
                ) from failed
            raise making.failed("ready", str(failed)) from failed
        except SandboxLost as lost:
            raise making.failed("ready", lost.reason) from lost
        except _NotReady as failed:
            raise making.failed("ready", str(failed)) from failed
        except _Unread as failed:
            raise making.failed(step, str(failed)) from failed
        return sandbox

    async def _probe(self, making: Making, sandbox: AgentSandbox) -> None:
        """Have as many commands answer in a row as is wanted; the start was one."""
        answered = 1
        while answered < self._config.probes_count:
            await anyio.sleep(self._config.probes_pause_seconds)
            probe = Command(argv=("true",), timeout_seconds=PROBE_SECONDS)
            ended = await sandbox.exec(probe)
            answered = answered + 1 if ended.how == Exited(0) else 0

    async def _claim(
        self, name: str, *, namespaces: tuple[str, ...] | None = None
    ) -> ClaimFacts | None:
        """Look for a claim where claims of ours may be."""
        for namespace in namespaces or self._pools.all_namespaces:
            try:
                found = await self._cluster.get(CLAIM, namespace, name)
            except (ClusterRefused, ClusterSilent) as failure:
                raise self._cluster.place.fault(failure) from failure
            if found is not None:
                return to_claim(found)
        return None

    async def _bound(self, facts: ClaimFacts) -> Bound | str:
        """Return a claim with its Sandbox, or why it has none that works."""
        if facts.is_ending:
            return "its claim is being deleted"
        if not facts.is_bound or facts.sandbox_name is None:
            return f"its claim tells {facts.told}"
        try:
            sandbox = await self._standing.sandbox(facts.namespace, facts.sandbox_name)
        except (ClusterRefused, ClusterSilent) as failure:
            raise self._cluster.place.fault(failure) from failure
        if sandbox is None or sandbox.is_ending:
            return "its Sandbox is gone"
        return Bound(claim=facts, sandbox=sandbox)

    async def _gone_or_failed(
        self, bound: Bound, operation: str, failure: Exception
    ) -> None:
        """Return when the sandbox is gone; raise what failed when it is not."""
        try:
            _, reason = await self._standing.now(bound)
        except (ClusterRefused, ClusterSilent) as silent:
            raise self._cluster.place.fault(silent) from silent
        if reason is None:
            raise SandboxFailed(
                provider=self.name,
                sandbox=f"{bound.claim.namespace}/{bound.claim.name}",
                operation=operation,
                reason=str(failure)
                or f"no answer within {self._config.connect_seconds:g} s",
            ) from failure

    def _berth(self, bound: Bound, label: ClaimLabel) -> Berth:
        return Berth(
            provider=self.name,
            bound=bound,
            workdir=bound.claim.annotations.get(WORKDIR, ""),
            key=key_of(label.claim),
            env=None,
            ports=ports_of(bound.claim),
            expires_at=bound.claim.shutdown_at,
        )

    def _sandbox(self, berth: Berth) -> AgentSandbox:
        return AgentSandbox(
            berth,
            standing=self._standing,
            connections=self._connections,
            watch=self.watch(berth.bound.claim.namespace),
            tasks=self._tasks,
            config=self._config.hands,
        )

    def _reference(self, access: SandboxAccess) -> tuple[str, str, str]:
        for word in access.descriptor:
            if word not in DESCRIPTOR_WORDS:
                raise self._refused(f"descriptor.{word}", "it is not known")
        namespace, _, name = access.descriptor.get("sandbox_id", "").partition("/")
        if not (NAME.fullmatch(namespace) and NAME.fullmatch(name)):
            raise self._refused("descriptor.sandbox_id", "namespace/claim is needed")
        if not access.workdir.startswith("/"):
            raise self._refused("workdir", "an absolute path is needed")
        return namespace, name, access.descriptor.get("sandbox_uid", "")

    def _lost(self, sandbox: str, reason: str) -> SandboxLost:
        return SandboxLost(provider=self.name, sandbox=sandbox, reason=reason)

    def _refused(self, field: str, reason: str) -> SpecRefused:
        return SpecRefused(provider=self.name, field=field, reason=reason)
