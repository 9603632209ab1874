# SPDX-License-Identifier: Apache-2.0
"""An OpenSandbox server as a place that makes sandboxes.

Each sandbox carries its claim in its metadata, from the first request on. It is
ready when our worker answers in it, not when the server says `Running`; its
lifetime counts from then. The server ends it, whether Livery still lives or not.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from ...domain.claims import ClaimId, OwnerId
from ...ports.provided.worker_channel import ChannelEnded, WorkerFailed
from ...ports.required.sandbox import (
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
)
from ...ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    ListedSandbox,
    SandboxSpec,
    SpecRefused,
)
from ..http_client import open_http_client
from .berths import Berth, berth_of_borrower, berth_of_claim
from .command_events import StreamBroken
from .config import OpenSandboxConfig
from .ending import remove, set_frozen
from .enforcement import Enforcement
from .execd import ExecdGone
from .lifecycle import KEY_HEADER, SANDBOX_ID, Lifecycle
from .lifecycle_facts import ApiRefused, SandboxFacts, State
from .making import Made, Making, sandboxes_of
from .metadata import (
    EXPIRES,
    MAKING,
    OWNER,
    encoded,
    label_of,
    seconds_of,
)
from .network_policy import check_probe_addresses, policy_of
from .opening import OpeningFailed
from .places import Places
from .renewing import Renewals
from .sandbox import OpenSandbox
from .terms import terms_of, with_image
from .tunnel import NoDoor
from .way_in import WayIn

CONNECT_SECONDS = 60.0
DESCRIPTOR_WORDS = frozenset({"sandbox_id", "workdir", "ports"})

_NotReady = (
    ApiRefused,
    ChannelEnded,
    ExecdGone,
    NoDoor,
    OpeningFailed,
    StreamBroken,
    WorkerFailed,
)


@asynccontextmanager
async def open_opensandbox(
    config: OpenSandboxConfig | None = None,
) -> AsyncGenerator["OpenSandboxProvider"]:
    """Open the provider; the server is not asked anything before the first call.

    Raises:
        SpecRefused: One of the addresses that are to be probed is none.
    """
    config = config or OpenSandboxConfig()
    check_probe_addresses(config.probe_addresses, provider=config.name)
    key = {KEY_HEADER: config.api_key} if config.api_key else {}
    failure: Exception | None = None
    async with (
        open_http_client(
            config.address, headers=key, patience=config.patience, trust=config.trust
        ) as http,
        # Sandboxes are strangers: the key is not for them.
        open_http_client(
            config.address, patience=config.patience, trust=config.trust
        ) as keyless,
        anyio.create_task_group() as tasks,
    ):
        try:
            lifecycle = Lifecycle(
                http=http,
                provider=config.name,
                address=config.address,
                key=config.api_key,
            )
            places = Places(
                lifecycle=lifecycle,
                http=keyless,
                through_server=config.through_server,
                scheme=config.endpoint_scheme,
                api_key=config.api_key,
            )
            renewals = Renewals(lifecycle, config.lease_seconds)
            tasks.start_soon(renewals.run)
            yield OpenSandboxProvider(
                config, places=places, renewals=renewals, tasks=tasks
            )
        except Exception as raised:
            failure = raised  # Raised below: a task group would wrap it.
        finally:
            # The channels run here; what they run in a sandbox ends with them.
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


class OpenSandboxProvider:
    """Makes sandboxes on one OpenSandbox server."""

    def __init__(
        self,
        config: OpenSandboxConfig,
        *,
        places: Places,
        renewals: Renewals,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Use the server behind `places`; channels to the workers run in `tasks`."""
        self._config = config
        self._terms = terms_of(config)
        self._places = places
        self._lifecycle = places.lifecycle
        self._renewals = renewals
        self._tasks = tasks
        self._enforcement = Enforcement(
            lifecycle=places.lifecycle,
            python=config.python,
            addresses=config.probe_addresses,
            names=config.probe_names,
        )
        self._making: dict[ClaimLabel, anyio.Lock] = {}

    @property
    def name(self) -> str:
        """The short word for the provider in configuration and messages."""
        return self._config.name

    @property
    def capabilities(self) -> Capabilities:
        """What any server can do, and what this one is configured to."""
        return self._terms.capabilities

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> OpenSandbox:
        """Make the sandbox of a claim, or return the one that it has.

        The server pulls an image under the same request, so that the time for both
        is allowed. What it makes after that time is found by its metadata.
        """
        spec = with_image(spec, self._config)
        self._terms.check(spec)
        policy = policy_of(spec)
        making = Making(
            lifecycle=self._lifecycle,
            label=label,
            spec=spec,
            policy=None if policy is None else policy.to_words(),
        )
        async with self._alone(label):
            made = await making.make()
            try:
                return await self._make_ready(making, made)
            except BaseException as failure:
                await making.undo(made, failure)
                raise

    async def find(self, label: ClaimLabel) -> OpenSandbox | None:
        """Return the live sandbox of a claim, or None when there was seen to be none."""
        for facts in await sandboxes_of(self._lifecycle, label):
            # A moment after its end, the server has no word yet for how it is.
            if label_of(facts.metadata) == label and not _end_of(facts):
                return self._of_claim(label.claim, facts)
        return None

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell the id: the server knows a sandbox by no other word."""
        return SandboxId(self._reference(access))

    async def connect(self, access: SandboxAccess, *, borrower: ClaimId) -> OpenSandbox:
        """Reach a sandbox that another lent, also one that Livery did not make.

        Commands run as the user that its metadata tells, else as root.
        """
        reference = self._reference(access)
        facts = await self._lifecycle.get(reference)
        self._demand_lendable(reference, facts)
        assert facts is not None
        sandbox = self._sandbox(
            berth_of_borrower(
                facts, provider=self.name, borrower=borrower, workdir=access.workdir
            )
        )

        async def look() -> None:
            self._demand_lendable(reference, await self._lifecycle.get(reference))

        # What is wrong with its inside is found now, not under the first command.
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                await sandbox.make_ready(look, seconds=CONNECT_SECONDS / 2)
        except _NotReady as failure:
            await look()
            raise SandboxFailed(
                provider=self.name,
                sandbox=reference,
                operation="connect",
                reason=str(failure),
            ) from failure
        except TimeoutError as failure:
            raise self._lost(
                reference, f"it did not answer within {CONNECT_SECONDS:g} s"
            ) from failure
        return sandbox

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every sandbox that carries the owner, the ended ones included."""
        wanted = {OWNER: encoded(OWNER, owner)[OWNER]}
        async for facts in self._lifecycle.with_metadata(wanted):
            label = label_of(facts.metadata)
            if label is None or label.owner != owner:
                continue
            yield ListedSandbox(
                label=label,
                sandbox_id=SandboxId(facts.sandbox_id),
                expires_at=seconds_of(facts.metadata, EXPIRES) or facts.expires_at,
                state=facts.word,
            )

    async def destroy(self, label: ClaimLabel) -> None:
        """End whatever carries the claim, until it is seen gone."""
        found = await sandboxes_of(self._lifecycle, label)
        if any(label_of(facts.metadata) != label for facts in found):
            raise ClaimTaken(
                provider=self.name,
                claim=label.claim,
                reason="its metadata name another owner",
            )
        for facts in found:
            self._renewals.forget(facts.sandbox_id)
            await remove(self._lifecycle, label, facts.sandbox_id)

    async def freeze(self, label: ClaimLabel) -> None:
        """Stop every process of the sandbox; its time goes on all the same."""
        await set_frozen(self._lifecycle, await self._its(label), frozen=True)

    async def thaw(self, label: ClaimLabel) -> None:
        """Let the processes go on."""
        await set_frozen(self._lifecycle, await self._its(label), frozen=False)

    async def aclose(self) -> None:
        """Let go of connections; sandboxes go on."""

    @asynccontextmanager
    async def _alone(self, label: ClaimLabel) -> AsyncGenerator[None]:
        """Make for one claim one at a time: nothing at the server keeps two apart."""
        lock = self._making.setdefault(label, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._making.pop(label, None)

    async def _its(self, label: ClaimLabel) -> SandboxFacts | None:
        for facts in await sandboxes_of(self._lifecycle, label):
            if label_of(facts.metadata) == label:
                return facts
        return None

    async def _make_ready(self, making: Making, made: Made) -> OpenSandbox:
        budget = making.spec.ready_timeout_seconds
        sandbox = self._of_claim(making.label.claim, made.facts)

        async def look() -> None:
            facts = await self._lifecycle.get(made.facts.sandbox_id)
            if facts is None or not facts.is_live:
                raise _not_ready(making, facts, "")

        try:
            with anyio.fail_after(budget):
                await sandbox.make_ready(look, seconds=budget)
                await self._enforcement.demand(making.spec, sandbox)
                if MAKING in made.facts.metadata:
                    limit = await self._begin_lifetime(making, made)
                    sandbox.expire_at(limit)
                return sandbox
        except TimeoutError as failure:
            raise making.failed(
                "ready", f"it was not ready within {budget:g} s"
            ) from failure
        except OpeningFailed as failed:
            if failed.what in {"user", "workdir"}:
                raise SpecRefused(
                    provider=self.name, field=failed.what, reason=failed.reason
                ) from failed
            facts = await self._lifecycle.get(made.facts.sandbox_id)
            raise _not_ready(making, facts, str(failed)) from failed
        except _NotReady as failed:
            facts = await self._lifecycle.get(made.facts.sandbox_id)
            raise _not_ready(making, facts, str(failed)) from failed

    async def _begin_lifetime(self, making: Making, made: Made) -> float:
        """Have the sandbox end when its time is over, counted from now, once."""
        sandbox_id = made.facts.sandbox_id
        limit = time.time() + making.spec.lifetime_seconds
        await self._lifecycle.renew(sandbox_id, self._renewals.first(limit))
        changes = {MAKING: None, **encoded(EXPIRES, f"{limit:.3f}")}
        after = await self._lifecycle.change_metadata(sandbox_id, changes)
        if MAKING in after.metadata:
            raise ApiRefused(200, "", "the server does not change metadata")
        self._renewals.keep(sandbox_id, limit)
        return limit

    def _of_claim(self, claim: ClaimId, facts: SandboxFacts) -> OpenSandbox:
        berth = berth_of_claim(facts, provider=self.name, claim=claim)
        if EXPIRES in facts.metadata and berth.expires_at is not None:
            self._renewals.keep(berth.sandbox_id, berth.expires_at)
        return self._sandbox(berth)

    def _sandbox(self, berth: Berth) -> OpenSandbox:
        def on_disconnect() -> None:
            if not berth.is_borrowed:
                self._renewals.forget(berth.sandbox_id)

        way = WayIn(
            berth=berth,
            places=self._places,
            tasks=self._tasks,
            python=self._config.python,
            trust=self._config.trust,
        )
        return OpenSandbox(
            berth, places=self._places, way=way, on_disconnect=on_disconnect
        )

    def _reference(self, access: SandboxAccess) -> str:
        for word in access.descriptor:
            if word not in DESCRIPTOR_WORDS:
                raise self._refused(f"descriptor.{word}", "it is not known")
        reference = access.descriptor.get("sandbox_id", "")
        if not SANDBOX_ID.fullmatch(reference):
            reason = "an id is needed: letters, digits and _.-, the first no sign"
            raise self._refused("descriptor.sandbox_id", reason)
        if not access.workdir.startswith("/"):
            raise self._refused("workdir", "an absolute path is needed")
        return reference

    def _demand_lendable(self, reference: str, facts: SandboxFacts | None) -> None:
        if facts is None:
            raise self._lost(reference, "there is no such sandbox")
        if facts.state is State.PAUSED:
            raise self._lost(reference, "it is frozen")
        if reason := _end_of(facts):
            raise self._lost(reference, reason)

    def _lost(self, sandbox: str, reason: str) -> SandboxLost:
        return SandboxLost(provider=self.name, sandbox=sandbox, reason=reason)

    def _refused(self, field: str, reason: str) -> SpecRefused:
        return SpecRefused(provider=self.name, field=field, reason=reason)


def _end_of(facts: SandboxFacts) -> str:
    """Return how a sandbox ended; empty for one that lives."""
    limit = seconds_of(facts.metadata, EXPIRES)
    if limit is not None and limit <= time.time():
        return "expired: its lifetime is over"
    return "" if facts.is_live else facts.end_reason


def _not_ready(making: Making, facts: SandboxFacts | None, said: str) -> CreateFailed:
    if facts is None:
        return making.failed("ready", "its sandbox is gone")
    if not facts.is_live:
        return making.failed("ready", facts.end_reason)
    return making.failed("ready", said or f"its sandbox is {facts.word}")
