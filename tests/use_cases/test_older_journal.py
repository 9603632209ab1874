# SPDX-License-Identifier: Apache-2.0
"""A journal that was put back from an older copy: what it does not know is not scored."""

from pathlib import Path

import pytest

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.local_host.host_settings import LocalHostConfig
from livery.adapters.local_host.sandbox_provider import open_local_host
from livery.adapters.system_clock import SystemClock
from livery.adapters.worker_scripts import program
from livery.domain.activations import Outcome, RunId
from livery.domain.claims import ClaimId
from livery.domain.tasks import EpisodeId
from livery.ports.provided.activate_harness import ActivateHarness, Attempt
from livery.ports.required.harness import HarnessRequest
from livery.ports.required.sandbox_provider import ClaimLabel, SandboxSpec

from .stable import OWNER, Ground, task

pytestmark = pytest.mark.anyio


async def test_a_run_that_had_begun_before_its_intent_is_not_begun_again_nor_measured(
    tmp_path: Path,
) -> None:
    ground = Ground(tmp_path)
    label = ClaimLabel(claim=ClaimId("claim-1"), owner=OWNER)
    request = HarnessRequest(
        episode=EpisodeId("r1"), task=task().task_id, parameters={"input": "do"}
    )
    config = LocalHostConfig(root=ground.folder / "sandboxes")
    async with open_local_host(config) as provider:
        sandbox = await provider.create(label, SandboxSpec())
        activate = ActivateHarness(
            harness=ground.counting("echo done"),
            artifacts=MemoryArtifactStore(),
            clock=SystemClock(),
            supervisor_program=program("supervisor"),
        )
        fresh = Attempt(
            run=RunId("run-1"), request=request, sandbox=sandbox, fresh=True
        )
        first = await activate(fresh)
        # The journal that knew of it is gone: the intent is as if it was the first.
        second = await activate(fresh)
        await provider.destroy(label)

    assert first.outcome is Outcome.COMPLETED
    assert second.outcome is Outcome.SANDBOX_ERROR
    assert "older copy" in second.reason
    assert len(ground.starts) == 1
