# SPDX-License-Identifier: Apache-2.0
"""Which sandbox it is and how it is used, read from what the server tells of it."""

import hashlib
import time

import attrs

from ...domain.claims import ClaimId
from .lifecycle_facts import SandboxFacts
from .metadata import (
    EXPIRES,
    LIFETIME,
    TOKEN,
    USER,
    WORKDIR,
    decoded,
    ports_of,
    seconds_of,
)
from .spec_terms import ROOT

SCRATCH_HEX = 12


@attrs.frozen(kw_only=True)
class Berth:
    """Which sandbox it is, and how it is used."""

    provider: str
    sandbox_id: str
    workdir: str
    scratch: str
    user: str
    expires_at: float | None
    """When it ends at the latest, however often it is renewed."""
    token: str = attrs.field(repr=False)
    """What its execd asks for; empty where it asks for nothing."""
    ports: frozenset[int] = frozenset()
    is_borrowed: bool = False


def berth_of_claim(facts: SandboxFacts, *, provider: str, claim: ClaimId) -> Berth:
    """Return the berth of the claim that a sandbox was made for.

    Of one that is not ready yet, when it ends counts from now.
    """
    limit = seconds_of(facts.metadata, EXPIRES)
    lifetime = seconds_of(facts.metadata, LIFETIME)
    if limit is None and lifetime is not None:
        limit = time.time() + lifetime
    return Berth(
        provider=provider,
        sandbox_id=facts.sandbox_id,
        workdir=decoded(facts.metadata, WORKDIR) or "/",
        scratch=scratch_folder(claim),
        user=decoded(facts.metadata, USER) or ROOT,
        expires_at=limit,
        token=decoded(facts.metadata, TOKEN) or "",
        ports=ports_of(facts.metadata),
    )


def berth_of_borrower(
    facts: SandboxFacts, *, provider: str, borrower: ClaimId, workdir: str
) -> Berth:
    """Return the berth of who borrows a sandbox, ours or another's."""
    limit = seconds_of(facts.metadata, EXPIRES)
    return Berth(
        provider=provider,
        sandbox_id=facts.sandbox_id,
        workdir=workdir,
        scratch=scratch_folder(borrower),
        user=decoded(facts.metadata, USER) or ROOT,
        expires_at=limit or facts.expires_at,
        token=decoded(facts.metadata, TOKEN) or "",
        ports=ports_of(facts.metadata),
        is_borrowed=True,
    )


def scratch_folder(claim: str) -> str:
    """Return the folder for what is put down on behalf of `claim`."""
    return f"/tmp/.run-{hashlib.sha256(claim.encode()).hexdigest()[:SCRATCH_HEX]}"
