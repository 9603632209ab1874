# SPDX-License-Identifier: Apache-2.0
"""Ending and freezing containers; an end is one that was looked for and not seen."""

import time

import anyio

from ...ports.required.sandbox import SandboxFailed, SandboxLost
from ...ports.required.sandbox_provider import ClaimLabel, DestroyFailed
from .container_config import container_name, label_of
from .engine import Engine
from .engine_facts import ContainerFacts
from .engine_faults import EngineRefused

DESTROY_SECONDS = 60.0
LOOK_SECONDS = 0.02
LOOK_SECONDS_MAX = 1.0


async def remove(
    engine: Engine,
    label: ClaimLabel,
    container: str,
    *,
    seconds: float = DESTROY_SECONDS,
) -> None:
    """Remove a container, in whatever state it is, until it is seen gone.

    Raises:
        DestroyFailed: It is still there after `seconds`.
    """
    deadline = time.monotonic() + seconds
    pause, said = LOOK_SECONDS, "it is still there"
    while True:
        try:
            await engine.remove(container)
        except EngineRefused as refused:
            if refused.status in {401, 403}:
                raise engine.place.forbidden(refused) from refused
            said = refused.text
        facts = await engine.inspect(container)
        if facts is None:
            return
        if time.monotonic() > deadline:
            raise DestroyFailed(
                provider=engine.place.provider, claim=label.claim, reason=said
            )
        await _press(engine, facts)
        await anyio.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS_MAX)


async def set_frozen(engine: Engine, label: ClaimLabel, *, frozen: bool) -> None:
    """Freeze or thaw the container of a claim; one that is so already stays so.

    Raises:
        SandboxLost: It is not there, or has ended.
        SandboxFailed: The engine would not.
    """
    name = container_name(label.claim)
    facts = await _live(engine, label, name)
    if (facts.state == "paused") is frozen:
        return
    try:
        if frozen:
            await engine.pause(facts.container_id)
        else:
            await engine.unpause(facts.container_id)
    except EngineRefused as refused:
        # Somebody else may have done it, or ended it, meanwhile.
        again = await _live(engine, label, name)
        if (again.state == "paused") is frozen:
            return
        raise SandboxFailed(
            provider=engine.place.provider,
            sandbox=name,
            operation="freeze" if frozen else "thaw",
            reason=refused.text,
        ) from refused


async def _live(engine: Engine, label: ClaimLabel, name: str) -> ContainerFacts:
    facts = await engine.inspect(name)
    if facts is not None and label_of(facts.labels) == label and facts.is_live:
        return facts
    reason = "its container is gone" if facts is None else facts.end_reason
    raise SandboxLost(provider=engine.place.provider, sandbox=name, reason=reason)


async def _press(engine: Engine, facts: ContainerFacts) -> None:
    """Do what may help a removal that was not done."""
    try:
        if facts.state == "paused":
            await engine.unpause(facts.container_id)
        if facts.state in {"running", "paused", "restarting"}:
            await engine.kill(facts.container_id)
    except EngineRefused:
        return  # The next look tells.
