# SPDX-License-Identifier: Apache-2.0
"""Making the sandbox of a claim, and undoing it when anything after fails.

The server keeps nothing from being made twice and gives no name, so the claim is in
the metadata of the first request: what is there is looked for before, and after an
answer that did not come. The answer is waited for even by a call that is given up.
Where two were made all the same, the older one is the claim's.
"""

import logging
import secrets
import time

import anyio
import attrs

from ...ports.required.sandbox_provider import (
    CapacityExhausted,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    ImageMissing,
    ProviderUnreachable,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)
from .ending import LOOK_SECONDS_MAX, remove
from .lifecycle import Lifecycle
from .lifecycle_facts import ApiRefused, SandboxFacts, State
from .metadata import CLAIM, SPEC, encoded, label_of
from .spec_terms import spec_digest, to_body

UNDO_SECONDS = 90.0
LOST_REPLY_SECONDS = 10.0
"""How long what may have been made although no answer came is looked for."""
CREATES_MAX = 2
"""How often it is asked for, where no answer came and nothing was found."""
TOKEN_BYTES = 24
_FULL = ("QUOTA", "CAPACITY", "EXHAUSTED")

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Made:
    """A claim's sandbox, as the server tells it."""

    facts: SandboxFacts
    is_ours: bool
    """Whether this call made it; one that was adopted is not ours to undo."""


@attrs.frozen(kw_only=True)
class Making:
    """Makes the sandbox of one claim."""

    lifecycle: Lifecycle
    label: ClaimLabel
    spec: SandboxSpec
    policy: dict[str, object] | None
    """The network policy that is asked for; None without one."""

    async def make(self) -> Made:
        """Return the claim's sandbox, made and started here, or adopted.

        Raises:
            SpecRefused, ImageMissing: Nothing was made.
            CapacityExhausted, CreateFailed: What was made was undone.
            ClaimTaken: Another spec or another owner has the name.
        """
        there = await self._there()
        if there:
            return self._adopted(there[0], is_ours=False)
        made: SandboxFacts | None = None
        seconds = self.spec.create_timeout_seconds
        # The server pulls the image under the same request.
        patience = seconds + self.spec.pull_timeout_seconds
        with anyio.move_on_after(patience, shield=True):
            made = await self._made(patience)
        if made is None:
            raise self.failed(
                "create", f"the server was not done within {patience:g} s"
            )
        return await self._the_only_one(made)

    async def undo(self, made: Made, failure: BaseException) -> None:
        """Take back a sandbox that was made for nothing, whoever has given up."""
        if not made.is_ours:
            return
        with anyio.move_on_after(UNDO_SECONDS, shield=True) as scope:
            try:
                await remove(self.lifecycle, self.label, made.facts.sandbox_id)
                return
            except Exception as left:
                self._tell_left(made, failure, str(left))
        if scope.cancelled_caught:
            self._tell_left(made, failure, f"not gone within {UNDO_SECONDS:g} s")

    def failed(self, step: str, reason: str) -> CreateFailed:
        """Return the fault that a step failed."""
        return CreateFailed(
            provider=self.lifecycle.provider,
            claim=self.label.claim,
            step=step,
            reason=reason,
        )

    async def _made(self, patience: float) -> SandboxFacts:
        body = to_body(self.label, self.spec, token=secrets.token_hex(TOKEN_BYTES))
        if self.policy is not None:
            body["networkPolicy"] = self.policy
        for attempt in range(1, CREATES_MAX + 1):
            try:
                return await self.lifecycle.create(body, seconds=patience)
            except ApiRefused as refused:
                raise self._fault(refused) from refused
            except ProviderUnreachable as lost:
                found = await self._after_lost_reply()
                if found is not None and found.state is not State.PENDING:
                    _log.info("claim %s: made although %s", self.label.claim, lost)
                    return found
                if found is not None:
                    # What a server was making when it ended is never finished.
                    await remove(self.lifecycle, self.label, found.sandbox_id)
                if attempt == CREATES_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _the_only_one(self, made: SandboxFacts) -> Made:
        """Keep the oldest of the claim's sandboxes, which is mostly the only one."""
        ours = Made(facts=made, is_ours=True)
        try:
            there = await self._there()
            if not there or there[0].sandbox_id == made.sandbox_id:
                return ours
            found = self._adopted(there[0], is_ours=False)
        except BaseException as failure:
            await self.undo(ours, failure)
            raise
        await remove(self.lifecycle, self.label, made.sandbox_id)
        return found

    async def _there(self) -> list[SandboxFacts]:
        """Return the claim's sandboxes, the oldest first."""
        return await sandboxes_of(self.lifecycle, self.label)

    async def _after_lost_reply(self) -> SandboxFacts | None:
        """Look for what may have been made, or begun, although no answer came."""
        until = time.monotonic() + LOST_REPLY_SECONDS
        while True:
            found = await self._there()
            if found and found[0].state is not State.PENDING:
                return found[0]
            if time.monotonic() > until:
                return found[0] if found else None
            await anyio.sleep(LOOK_SECONDS_MAX)

    def _adopted(self, facts: SandboxFacts, *, is_ours: bool) -> Made:
        """Return a sandbox that is there, when it is the claim's by all it carries."""
        if label_of(facts.metadata) != self.label:
            raise self._taken("it belongs to another owner")
        if facts.metadata.get(SPEC) != spec_digest(self.spec):
            raise self._taken("it was made from another spec")
        if not facts.is_live:
            raise self.failed(
                "adopt", f"the sandbox of this claim has ended: {facts.end_reason}"
            )
        return Made(facts=facts, is_ours=is_ours)

    def _tell_left(self, made: Made, failure: BaseException, reason: str) -> None:
        told = f"its sandbox {made.facts.sandbox_id} is left behind: {reason}"
        _log.error("claim %s: %s", self.label.claim, told)
        failure.add_note(told)

    def _taken(self, reason: str) -> ClaimTaken:
        return ClaimTaken(
            provider=self.lifecycle.provider, claim=self.label.claim, reason=reason
        )

    def _fault(self, refused: ApiRefused) -> Exception:
        """Tell apart what the server answers alike: it says 500 to most of it."""
        provider, code = self.lifecycle.provider, refused.code
        image = self.spec.image or "of the snapshot"
        if "IMAGE_PULL_FAILED" in code:
            if self.spec.image and self.spec.image in refused.text:
                return ImageMissing(provider=provider, image=image, reason=refused.text)
            # It fetches images of its own too: execd's, and the egress sidecar's.
            return self.failed("pull", f"the server lacks an image: {refused.text}")
        if refused.status == 429 or any(word in code for word in _FULL):
            return CapacityExhausted(provider=provider, quota=str(refused))
        if code.endswith("API_NOT_SUPPORTED") or "UNSUPPORTED" in code:
            return Unsupported(
                provider=provider, capability="this request", detail=refused.text
            )
        if refused.status in {400, 413, 422}:
            return SpecRefused(
                provider=provider, field=_field(refused), reason=str(refused)
            )
        return self.failed("create", str(refused))


async def sandboxes_of(lifecycle: Lifecycle, label: ClaimLabel) -> list[SandboxFacts]:
    """Return what carries the claim, whoever owns it, the oldest first."""
    wanted = {CLAIM: encoded(CLAIM, label.claim)[CLAIM]}
    found = [
        facts
        async for facts in lifecycle.with_metadata(wanted)
        if (its := label_of(facts.metadata)) is not None and its.claim == label.claim
    ]
    return sorted(found, key=lambda facts: (facts.created_at, facts.sandbox_id))


def _field(refused: ApiRefused) -> str:
    """Return the field of ours that a no is about, as near as it tells."""
    told = f"{refused.code} {refused.text}".lower()
    words = {
        "metadata": "metadata",
        "timeout": "create_timeout_seconds",
        "volume": "mounts",
        "memory": "memory_mib",
        "cpu": "cpus",
        "entrypoint": "entrypoint",
        "env": "env",
        "image": "image",
        "snapshot": "provider_options.snapshot",
    }
    return next((field for word, field in words.items() if word in told), "the spec")
