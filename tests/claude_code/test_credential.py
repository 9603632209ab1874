# SPDX-License-Identifier: Apache-2.0
"""The real program's sandbox, and all that is kept of its run: no real credential."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from livery.adapters.docker_engine import open_docker_engine
from livery.domain.agent_sessions import AgentSessionId
from livery.ports.required.sandbox import Command, Sandbox
from livery.ports.required.sandbox_provider import ClaimLabel

from ..agent_server.scripted import seed
from ..agent_server.test_claude_code import command_lines, files_with
from ..harnesses.claude_code.scripted_model import scripted_model
from . import mending
from .test_graded_runs import SEEDS, WORKDIR, acted, agent_server, closed, options

__all__ = ["options"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.peer("claude_code"),
    pytest.mark.peer("docker"),
]

LOOK_SECONDS = 120.0
LOOK = (
    "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > seen 2> /dev/null;"
    " cp -r /task/. .; true"
)


async def files_inside(sandbox: Sandbox, word: str) -> list[str]:
    """Return the files of a sandbox that hold a word, which is in no command line."""
    look = "exec grep -rlF -f - / --exclude-dir=proc --exclude-dir=sys"
    command = Command(
        argv=("/bin/sh", "-c", look),
        timeout_seconds=LOOK_SECONDS,
        user="0",
        stdin=f"{word}\n".encode(),
    )
    return (await sandbox.exec(command)).stdout.kept.decode().splitlines()


@pytest.mark.case("FC-174")
async def test_the_real_program_is_given_a_placeholder_and_nothing_more(
    tmp_path: Path, test_image: str, options: Mapping[str, str]
) -> None:
    looking = mending.model_at(WORKDIR, ("Bash", {"command": LOOK}))
    async with (
        scripted_model(choice=looking) as model,
        agent_server(tmp_path, model, options, test_image) as (routes, client),
        open_docker_engine() as provider,
    ):
        seeded = await client.post(SEEDS, json=seed("own"))
        assert seeded.status_code == 200, seeded.text
        response = await acted(client, "own")
        sessions = routes.served.sessions
        claim = (await sessions.standing(AgentSessionId("own"))).state.claim
        own = sessions.sandboxes.own
        assert claim is not None
        assert own is not None
        label = ClaimLabel(claim=claim, owner=own.claim.owner)
        sandbox = await provider.find(label)
        assert sandbox is not None
        placeholders = await files_inside(sandbox, "sk-livery-")
        real = await files_inside(sandbox, mending.REAL)
        lines = command_lines()
        await sandbox.disconnect()
        observed = await closed(client, "own")

    # That the looks find what is there, is seen by the placeholder.
    assert f"{WORKDIR}/seen" in placeholders
    assert real == []
    assert all(mending.REAL in head for head in model.heads)
    assert mending.REAL not in lines
    assert mending.REAL not in str((response, observed))
    assert files_with(tmp_path, mending.MEND) != []
    assert files_with(tmp_path, mending.REAL) == []
