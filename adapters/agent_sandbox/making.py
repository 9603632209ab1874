# SPDX-License-Identifier: Apache-2.0
"""Making the SandboxClaim of a claim, and undoing it when anything after fails.

The claim has the name of ours, so that the API server itself keeps two of them from
being made; whether one that is there may be adopted, its annotations decide. It is
whole from its first manifest, its end included: a process that dies here leaves
nothing that lives for ever. It is ended by its UID, so a successor never is.
"""

import logging
import time

import anyio
import anyio.lowlevel
import attrs

from ...ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    DestroyFailed,
    SandboxSpec,
)
from .claim_facts import (
    ClaimFacts,
    SandboxFacts,
    Words,
    objects,
    part,
    text,
    to_claim,
)
from .claim_watch import ClaimWatch, Followed
from .cluster import CLAIM, SANDBOX, Cluster
from .cluster_faults import ClusterRefused, ClusterSilent
from .images import Images
from .manifests import (
    DIGEST,
    Route,
    claim_name,
    label_of,
    spec_digest,
    to_manifest,
    to_time,
)
from .standing import Bound, Standing

UNDO_SECONDS = 90.0
LOST_REPLY_LOOKS = 5
LOOK_SECONDS = 0.2
REMOVING_SECONDS = 30.0
SANDBOX_LOOKS = 20
EXPIRY_SLACK_SECONDS = 1.0
GONE_LOOK_SECONDS = 0.05
GONE_LOOK_SECONDS_MAX = 1.0

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Made:
    """A claim that is bound."""

    bound: Bound
    is_ours: bool
    """Whether this call made it; one that was adopted is not ours to undo."""


@attrs.frozen(kw_only=True)
class Making:
    """Makes the SandboxClaim of one claim."""

    provider: str
    managed_by: str
    cluster: Cluster
    watch: ClaimWatch
    images: Images
    label: ClaimLabel
    spec: SandboxSpec
    route: Route
    needs_address: bool
    """Whether the pod's own address is how it is reached."""
    close_seconds: float

    async def make(self) -> Made:
        """Return the claim, made here or adopted, once it is bound.

        Raises:
            SpecRefused: Nothing was made.
            CapacityExhausted, CreateFailed: What was made was undone.
            ClaimTaken: Another spec or another owner has the name.
        """
        with self.watch.follow(claim_name(self.label.claim)) as followed:
            facts, is_ours = await self._claim()
            self.watch.is_made(followed, facts)
            try:
                # Whoever gave up meanwhile is told now, when it can be undone.
                await anyio.lowlevel.checkpoint()
                bound = await self._until_bound(followed)
            except BaseException as failure:
                await self.undo(facts, failure, is_ours=is_ours)
                raise
        return Made(bound=bound, is_ours=is_ours)

    async def expire(self, bound: Bound) -> float:
        """Have the lifetime count from now on; return when it is over.

        The first manifest allowed for the time that making it may take.
        """
        at = time.time() + self.spec.lifetime_seconds
        told = bound.claim.shutdown_at
        if told is not None and abs(told - at) <= EXPIRY_SLACK_SECONDS:
            return told
        changed = await self.cluster.patch(
            CLAIM,
            bound.claim.namespace,
            bound.claim.name,
            {
                "metadata": {"uid": bound.claim.uid},
                "spec": {"lifecycle": {"shutdownTime": to_time(at)}},
            },
        )
        return to_claim(changed).shutdown_at or at

    async def undo(
        self, facts: ClaimFacts, failure: BaseException, *, is_ours: bool
    ) -> None:
        """Take back a claim that was made for nothing, whoever has given up."""
        if not is_ours:
            return
        reason = f"not gone within {UNDO_SECONDS:g} s"
        with anyio.move_on_after(UNDO_SECONDS, shield=True):
            try:
                await remove(
                    self.cluster,
                    facts,
                    claim=self.label.claim,
                    provider=self.provider,
                    seconds=self.close_seconds,
                )
                return
            except Exception as left:
                reason = str(left)
        told = f"its claim {facts.namespace}/{facts.name} is left behind: {reason}"
        _log.error("claim %s: %s", self.label.claim, told)
        failure.add_note(told)

    def failed(self, step: str, reason: str) -> CreateFailed:
        """Return the fault that a step failed."""
        return CreateFailed(
            provider=self.provider, claim=self.label.claim, step=step, reason=reason
        )

    async def _claim(self) -> tuple[ClaimFacts, bool]:
        """Ask for the claim until there is one; tell whether this call made it."""
        now = time.time()
        patience = self.spec.create_timeout_seconds + self.spec.ready_timeout_seconds
        manifest = to_manifest(
            self.label,
            self.spec,
            self.route,
            now=now,
            shutdown_at=now + max(self.spec.lifetime_seconds, patience),
            managed_by=self.managed_by,
        )
        deadline = time.monotonic() + REMOVING_SECONDS
        while True:
            try:
                made = await self.cluster.create(CLAIM, self.route.namespace, manifest)
                return to_claim(made), True
            except ClusterSilent as lost:
                found = await self._after_lost_reply()
                if found is None:
                    raise self.cluster.place.fault(lost) from lost
                _log.info("%s was made although %s", found.name, lost.reason)
                return self._adopted(found), True
            except ClusterRefused as refused:
                if refused.reason != "AlreadyExists":
                    fault = self.cluster.place.from_create(
                        refused, claim=self.label.claim
                    )
                    raise fault from refused
                there = await self._there()
                if there is not None and not there.is_ending:
                    return self._adopted(there), False
                if time.monotonic() > deadline:
                    raise self.failed("create", str(refused)) from refused
            # The one that has the name is on its way out.
            await anyio.sleep(LOOK_SECONDS)

    async def _there(self) -> ClaimFacts | None:
        name = claim_name(self.label.claim)
        try:
            found = await self.cluster.get(CLAIM, self.route.namespace, name)
        except (ClusterRefused, ClusterSilent) as failure:
            raise self.cluster.place.fault(failure) from failure
        return None if found is None else to_claim(found)

    async def _after_lost_reply(self) -> ClaimFacts | None:
        """Look for what may have been made although no answer came."""
        with anyio.CancelScope(shield=True):
            for _ in range(LOST_REPLY_LOOKS):
                if (facts := await self._there()) is not None:
                    return facts
                await anyio.sleep(LOOK_SECONDS)
        return None

    def _adopted(self, facts: ClaimFacts) -> ClaimFacts:
        """Return a claim that is there, when it is ours by all its annotations."""
        if label_of(facts) != self.label:
            raise self._taken("it belongs to another owner, or is not Livery's")
        if facts.annotations.get(DIGEST) != spec_digest(self.spec, self.route):
            raise self._taken("it was made from another spec")
        return facts

    async def _until_bound(self, followed: Followed) -> Bound:
        seconds = self.spec.create_timeout_seconds

        def is_decided(seen: Followed) -> bool:
            facts = seen.facts
            return (
                seen.is_gone
                or facts is None
                or facts.is_ending
                or facts.failure is not None
                or facts.quota is not None
                or (facts.is_bound and bool(facts.pod_ips or not self.needs_address))
            )

        try:
            with anyio.fail_after(seconds):
                await followed.until(is_decided)
                return await self._bound(followed)
        except TimeoutError as late:
            told = "nothing" if followed.facts is None else followed.facts.told
            reason = f"it was not bound within {seconds:g} s; its claim tells {told}"
            raise self.failed("bind", reason) from late
        except (ClusterRefused, ClusterSilent) as failure:
            raise self.cluster.place.fault(failure) from failure

    async def _bound(self, followed: Followed) -> Bound:
        facts = followed.facts
        if followed.is_gone or facts is None or facts.is_ending:
            raise self.failed("bind", "its claim was deleted by another")
        if (failure := facts.failure) is not None:
            raise self.failed("bind", failure.told)
        if (quota := facts.quota) is not None:
            raise CapacityExhausted(provider=self.provider, quota=quota)
        assert facts.sandbox_name is not None, "a bound claim names its sandbox"
        sandbox = await self._sandbox(facts.namespace, facts.sandbox_name)
        wrong = await self.images.mismatch(sandbox, self.route)
        if wrong is not None:
            raise self.failed("image", wrong)
        return Bound(claim=facts, sandbox=sandbox)

    async def _sandbox(self, namespace: str, name: str) -> SandboxFacts:
        for _ in range(SANDBOX_LOOKS):
            found = await Standing(self.cluster).sandbox(namespace, name)
            if found is not None:
                return found
            await anyio.sleep(LOOK_SECONDS)
        raise self.failed("bind", f"there is no Sandbox {name}, which its claim names")

    def _taken(self, reason: str) -> ClaimTaken:
        return ClaimTaken(provider=self.provider, claim=self.label.claim, reason=reason)


async def remove(
    cluster: Cluster, facts: ClaimFacts, *, claim: str, provider: str, seconds: float
) -> None:
    """Delete a claim, and what it owns, until both are seen gone.

    Raises:
        DestroyFailed: It is still there after `seconds`.
    """
    deadline = time.monotonic() + seconds
    pause, said = GONE_LOOK_SECONDS, "it is still there"
    while True:
        try:
            if await _is_gone(cluster, facts):
                return
            await cluster.delete(CLAIM, facts.namespace, facts.name, uid=facts.uid)
            if await _is_gone(cluster, facts):
                return
        except ClusterRefused as refused:
            if refused.status in {401, 403}:
                raise cluster.place.fault(refused) from refused
            said = str(refused)
        except ClusterSilent as silent:
            said = str(silent)
        if time.monotonic() > deadline:
            raise DestroyFailed(provider=provider, claim=claim, reason=said)
        await anyio.sleep(pause)
        pause = min(2 * pause, GONE_LOOK_SECONDS_MAX)


async def _is_gone(cluster: Cluster, facts: ClaimFacts) -> bool:
    """Whether the claim, and the Sandbox that it had, were seen to be no more."""
    found = await cluster.get(CLAIM, facts.namespace, facts.name)
    now = None if found is None else to_claim(found)
    if now is not None and now.uid == facts.uid:
        return False
    if facts.sandbox_name is None:
        return True
    owned = await cluster.get(SANDBOX, facts.namespace, facts.sandbox_name)
    return owned is None or not _is_owned(owned, facts.uid)


def _is_owned(words: Words, uid: str) -> bool:
    """Whether an object belongs to the claim of a UID; one without an owner does not.

    A name that came back to the pool, or to another claim, is not ours to wait for.
    """
    owners = objects(part(words, "metadata"), "ownerReferences")
    return any(text(owner, "uid") == uid for owner in owners)
