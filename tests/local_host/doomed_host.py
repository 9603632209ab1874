# SPDX-License-Identifier: Apache-2.0
"""A process that uses the local provider until it is killed.

`hold` makes one sandbox, with one command under way and one that was detached;
`churn` makes and destroys sandboxes one after the other. Each prints a line for
what it has begun and for what it has done.
"""

import sys
from pathlib import Path

import anyio

from livery.adapters.local_host import LocalHostConfig, open_local_host
from livery.domain.claims import ClaimId, OwnerId
from livery.ports.contracts.provider_context import put_word
from livery.ports.required.sandbox import Command, shell
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

OWNER = OwnerId("owner-of-the-test")


def say(*words: str) -> None:
    print(*words, flush=True)


async def hold(root: Path, *words: str) -> None:
    claim, attached, detached = words
    async with open_local_host(LocalHostConfig(root=root)) as provider:
        label = ClaimLabel(claim=ClaimId(claim), owner=OWNER)
        sandbox = await provider.create(label, SandboxSpec())
        await put_word(sandbox, "word", "kept")
        script = f"setsid sleep {detached} >/dev/null 2>&1 </dev/null & env > env"
        launched = await sandbox.exec(
            Command(argv=("/bin/sh", "-c", script), timeout_seconds=30.0, detaches=True)
        )
        assert launched.succeeded, launched
        say("held", claim)
        await sandbox.exec(shell(f"sleep {attached}", timeout_seconds=600.0))


async def churn(root: Path, *words: str) -> None:
    assert not words
    async with open_local_host(LocalHostConfig(root=root)) as provider:
        number = 0
        while True:
            number += 1
            label = ClaimLabel(claim=ClaimId(f"churned-{number}"), owner=OWNER)
            say("began", label.claim)
            await provider.create(label, SandboxSpec())
            say("made", label.claim)
            await provider.destroy(label)
            say("ended", label.claim)


if __name__ == "__main__":
    act = {"hold": hold, "churn": churn}[sys.argv[1]]
    anyio.run(act, Path(sys.argv[2]), *sys.argv[3:])
