# SPDX-License-Identifier: Apache-2.0
"""A run whose episodes another server runs: `livery run --via URL`.

The tasks are read here and the results kept here; sandboxes, harness and grading are
the server's, which may be ours or NeMo Gym's.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

import attrs

from ..adapters.gym_servers.reach import REACH_SECONDS
from ..adapters.results_folder import ResultsFolder
from ..ports.provided.collect_rollouts import (
    CollectRollouts,
    Progress,
    RunsEpisodes,
)
from ..ports.required.faults import Fault
from .built_in import WORLDS
from .composition import source_of, world_of
from .plug_ins import ExtraMissing, Surroundings, WorldPlugIn, find
from .run_plan import RunPlan
from .run_tasks import RunTasks, load_tasks
from .server_urls import to_url


@attrs.frozen
class EnvironmentAbsent(Fault):
    """The server that is to run the episodes is not there."""

    kind: ClassVar[str] = "environment_absent"
    message: ClassVar[str] = (
        "--via: {reason}. Start the environment server, or correct the address; nothing"
        " was run."
    )

    reason: str


@attrs.frozen(kw_only=True)
class RemoteParts:
    """What such a run is made of, read and checked."""

    plan: RunPlan
    tasks: RunTasks


def prepare_via(plan: RunPlan, source: str, surroundings: Surroundings) -> RemoteParts:
    """Read the tasks; whether they can be done is for the server to say.

    Raises:
        UrlRefused, TasksRefused, PlugInUnknown, PlugInTwice, PlugInBroken,
        ExtraMissing: As they say; nothing was made.
    """
    assert plan.via is not None, "it says which server runs the episodes"
    to_url("--via", plan.via)
    world = find(WorldPlugIn, world_of(source, plan), WORLDS).make(surroundings)
    opened = source_of(source, attrs.evolve(surroundings, world=world))
    tasks = load_tasks(opened, named=source, limit=plan.limit)
    return RemoteParts(plan=plan, tasks=tasks)


@asynccontextmanager
async def open_environment(
    plan: RunPlan, *, reach_seconds: float = REACH_SECONDS
) -> AsyncGenerator[RunsEpisodes]:
    """Open the connections to the server that runs the episodes, and look for it.

    Raises:
        ExtraMissing: The client's library is not installed.
        EnvironmentAbsent: The server cannot be reached, though it was waited for.
    """
    try:
        from ..adapters.gym_servers.asking import GymServer, open_gym_client
        from ..adapters.gym_servers.environment import HttpEnvironment
    except ModuleNotFoundError as missing:
        raise ExtraMissing("option", "--via", str(missing.name), "server") from missing
    assert plan.via is not None, "it says which server runs the episodes"
    async with open_gym_client() as http:
        environment = HttpEnvironment(
            server=GymServer(
                url=to_url("--via", plan.via), http=http, reach_seconds=reach_seconds
            )
        )
        if reason := await environment.absent():
            raise EnvironmentAbsent(reason)
        yield environment


def wired_via(
    parts: RemoteParts,
    environment: RunsEpisodes,
    folder: ResultsFolder,
    on_progress: Callable[[Progress], None],
) -> CollectRollouts:
    """Return the use case of the whole run."""
    return CollectRollouts(
        run_episode=environment,
        results=folder.log,
        task=parts.tasks.tasks.__getitem__,
        concurrency=parts.plan.concurrency,
        on_progress=on_progress,
    )
