# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the cluster, told apart by status and reason.

`ClusterRefused` is the API server's own no, for the callers inside this folder to
answer; `ClusterSilent` is no answer at all. Everything else is a fault of the
provider's port already. The cluster's texts are kept short; they are read only
where it gives one status to different things.
"""

import json
from typing import cast

import attrs
from kubernetes.client.exceptions import ApiException

from ...ports.required.sandbox_provider import (
    CapacityExhausted,
    CreateFailed,
    ProviderForbidden,
    ProviderUnreachable,
    SpecRefused,
)
from .claim_facts import tells_quota
from .kubernetes_package import refusal_of

TEXT_CHARACTERS_MAX = 600


@attrs.frozen
class ClusterRefused(Exception):
    """The API server answered with an error."""

    status: int
    reason: str
    """Its word for machines: "AlreadyExists", "Forbidden", …"""
    text: str
    retry_after_seconds: float | None = None

    def __str__(self) -> str:
        return f"the API server answers {self.status}: {self.text}"


@attrs.frozen
class ClusterSilent(Exception):
    """No answer came; whether the request arrived is unknown."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class ClusterPlace:
    """Which cluster it is, for messages."""

    provider: str
    address: str

    def unreachable(self, reason: str) -> ProviderUnreachable:
        """Return the fault that nobody answers, or not in time."""
        return ProviderUnreachable(
            provider=self.provider, address=self.address, reason=reason
        )

    def fault(
        self, failure: ClusterRefused | ClusterSilent
    ) -> ProviderUnreachable | ProviderForbidden:
        """Return the fault for a no where an answer should be certain."""
        if isinstance(failure, ClusterRefused) and failure.status in {401, 403}:
            return ProviderForbidden(
                provider=self.provider, address=self.address, reason=failure.text
            )
        return self.unreachable(str(failure))

    def from_create(self, refused: ClusterRefused, *, claim: str) -> Exception:
        """Return the fault for a claim that the cluster would not make."""
        if tells_quota(refused.text) or refused.status == 429:
            return CapacityExhausted(provider=self.provider, quota=refused.text)
        if "admission webhook" in refused.text or refused.status in {400, 422}:
            return self.refused("spec", refused.text)
        if refused.status in {401, 403}:
            return self.fault(refused)
        if refused.status == 404 and "namespaces" in refused.text:
            return self.refused("provider_options.namespace", refused.text)
        if refused.status == 404:
            return self.unreachable(
                "it knows no SandboxClaims (v1beta1); install agent-sandbox there"
            )
        return CreateFailed(
            provider=self.provider, claim=claim, step="create", reason=str(refused)
        )

    def refused(self, field: str, reason: str) -> SpecRefused:
        """Return the fault that a field of the spec is not taken."""
        return SpecRefused(provider=self.provider, field=field, reason=reason)


def to_refused(failure: ApiException) -> ClusterRefused:
    """Return the API server's no, with its text on one line and not too long."""
    refusal = refusal_of(failure)
    words = _status(refusal.body)
    said = str(words.get("message") or refusal.reason or "(without a word)")
    after = str(refusal.headers.get("Retry-After", ""))
    return ClusterRefused(
        status=refusal.status,
        reason=str(words.get("reason") or ""),
        text=" ".join(said.split())[:TEXT_CHARACTERS_MAX],
        retry_after_seconds=float(after) if after.isdigit() else None,
    )


def _status(body: str) -> dict[str, object]:
    """Return the fields of a `Status`; whatever else stands there is its message."""
    try:
        words: object = json.loads(body)
    except ValueError:
        return {"message": body}
    return cast("dict[str, object]", words) if isinstance(words, dict) else {}
