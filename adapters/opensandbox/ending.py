# SPDX-License-Identifier: Apache-2.0
"""Ending and freezing sandboxes; an end is one that was looked for and not seen."""

import time

import anyio

from ...ports.required.sandbox import SandboxFailed, SandboxLost
from ...ports.required.sandbox_provider import (
    ClaimLabel,
    DestroyFailed,
    ProviderUnreachable,
)
from .lifecycle import Lifecycle
from .lifecycle_facts import ApiRefused, SandboxFacts, State

DESTROY_SECONDS = 60.0
LOOK_SECONDS = 0.05
LOOK_SECONDS_MAX = 1.0


async def remove(
    lifecycle: Lifecycle,
    label: ClaimLabel,
    sandbox_id: str,
    *,
    seconds: float = DESTROY_SECONDS,
) -> None:
    """Remove a sandbox, in whatever state it is, until it is seen gone.

    Of two that remove one at the same time, the server says 500 to the second.

    Raises:
        DestroyFailed: It is still there after `seconds`.
    """
    deadline = time.monotonic() + seconds
    pause, said = LOOK_SECONDS, "it is still there"
    while True:
        try:
            await lifecycle.delete(sandbox_id)
        except ApiRefused as refused:
            said = str(refused)
        if await lifecycle.get(sandbox_id) is None:
            return
        if time.monotonic() > deadline:
            raise DestroyFailed(
                provider=lifecycle.provider, claim=label.claim, reason=said
            )
        await anyio.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS_MAX)


async def set_frozen(
    lifecycle: Lifecycle, facts: SandboxFacts | None, *, frozen: bool
) -> None:
    """Freeze or thaw a sandbox; one that is so already stays so.

    Raises:
        SandboxLost: It is not there, or has ended.
        SandboxFailed: The server would not.
    """
    facts = _live(lifecycle, facts)
    if (facts.state is State.PAUSED) is frozen:
        return
    try:
        if frozen:
            await lifecycle.pause(facts.sandbox_id)
        else:
            await lifecycle.resume(facts.sandbox_id)
    except (ApiRefused, ProviderUnreachable) as refused:
        # Somebody else may have done it, or ended it, meanwhile.
        again = _live(lifecycle, await lifecycle.get(facts.sandbox_id))
        if (again.state is State.PAUSED) is frozen:
            return
        raise SandboxFailed(
            provider=lifecycle.provider,
            sandbox=facts.sandbox_id,
            operation="freeze" if frozen else "thaw",
            reason=str(refused),
        ) from refused


def _live(lifecycle: Lifecycle, facts: SandboxFacts | None) -> SandboxFacts:
    if facts is not None and facts.is_live:
        return facts
    raise SandboxLost(
        provider=lifecycle.provider,
        sandbox="of the claim" if facts is None else facts.sandbox_id,
        reason="its sandbox is gone" if facts is None else facts.end_reason,
    )
