# SPDX-License-Identifier: Apache-2.0
"""The soak: real servers, a real Docker Engine, and faults between all of them.

Clients come at random and each message on each hop may go wrong. When the last client
is answered the faults stop, and everything has to come to rest by itself.
"""

import logging
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import attrs

from livery.adapters.docker_engine.engine_address import EngineAddress

from .. import peers
from ..docker_engine import raw_engine
from ..harnesses.claude_code.scripted_model import scripted_model
from .chances import Chances
from .clients import Answers, crowd, moments
from .fault_proxy import fault_proxy
from .figures import (
    Series,
    every_seconds,
    not_at_rest,
    read_gauges,
    sample,
)
from .report import Report
from .servers import Server, Ways, serving, settings
from .workload import Outside, says

REST_SECONDS_MAX: Final = 600.0
LOOK_SECONDS: Final = 1.0

CLIENT: Final = "client to environment"
RESOURCES: Final = "environment to resources"
AGENT: Final = "environment to agent"
RESOURCES_DOCKER: Final = "resources to Docker"
AGENT_DOCKER: Final = "agent to Docker"
MODEL: Final = "agent to model"
HOPS: Final = (CLIENT, RESOURCES, AGENT, RESOURCES_DOCKER, AGENT_DOCKER, MODEL)

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Plan:
    """What is to be done."""

    minutes: float
    rate: float
    """Arrivals a second, on average."""
    faults: float
    """The share of messages with which something goes wrong, on each hop."""
    seed: int
    folder: Path
    """An empty folder for settings, state and what the servers say."""
    pace: float = 1.0


@attrs.frozen
class Stage:
    """All that runs while clients come."""

    servers: tuple[Server, ...]
    url: str
    """Where clients ask, through a proxy."""
    owner: str


async def soak(plan: Plan) -> Report:
    """Carry the plan out, and return what came of it."""
    hops = {hop: Chances(hop, plan.faults, plan.seed, pace=plan.pace) for hop in HOPS}
    outside = Outside(plan.folder / "outside")
    answers = Answers()
    report = Report(
        minutes=plan.minutes,
        rate=plan.rate,
        share=plan.faults,
        seed=plan.seed,
        hops=tuple(hops.values()),
        answers=answers,
    )
    async with _stage(plan, hops, outside) as stage:
        report.series = [Series(server.name) for server in stage.servers]
        arrivals = moments(plan.rate, plan.minutes * 60, plan.seed)
        report.arrivals = len(arrivals)
        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            every = every_seconds(plan.minutes * 60)
            group.start_soon(sample, stage.servers, report.series, every)
            calm = plan.faults == 0.0
            await crowd(stage.url, arrivals, answers, plan.seed, calm=calm)
            report.seconds = anyio.current_time() - began
            group.cancel_scope.cancel()
        await _calmed(hops.values())
        await _rest(stage, report)
        for server in stage.servers:
            if server.popen.poll() is not None:
                report.died.append(f"{server.name}: status {server.popen.returncode}")
        for server in reversed(stage.servers):
            report.ends[server.name] = await server.end()
        report.left = raw_engine.labelled(f"livery.owner={stage.owner}")
        report.starts = outside.starts()
        report.logs = {server.name: server.said() for server in stage.servers}
    return report


async def _calmed(hops: Collection[Chances]) -> None:
    """Let nothing go wrong any more, and wait for the last duplicate.

    What one of them makes after the servers have ended would be nobody's.
    """
    for hop in hops:
        hop.share = 0.0
    while any(hop.under_way for hop in hops):  # noqa: ASYNC110
        await anyio.sleep(LOOK_SECONDS)


async def _rest(stage: Stage, report: Report) -> None:
    """Wait until all gauges are back and Docker has nothing of ours."""
    began = anyio.current_time()
    with anyio.move_on_after(REST_SECONDS_MAX):
        while True:
            try:
                report.gauges = await read_gauges(stage.servers)
            except (aiohttp.ClientError, OSError) as failure:
                log.warning("No gauges: %r", failure)
                report.gauges = {}
            here = await anyio.to_thread.run_sync(
                raw_engine.labelled, f"livery.owner={stage.owner}"
            )
            rests = report.gauges and not any(map(not_at_rest, report.gauges.values()))
            if rests and not here:
                break
            await anyio.sleep(LOOK_SECONDS)
    report.rest_seconds = anyio.current_time() - began


@asynccontextmanager
async def _stage(
    plan: Plan, hops: dict[str, Chances], outside: Outside
) -> AsyncGenerator[Stage]:
    """Start the model, the proxies and the servers, each before who asks it."""
    docker = EngineAddress(path=str(peers.docker_socket()))
    folder, image = plan.folder, peers.image()
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(scripted_model(choice=says))

        async def before(hop: str, url: str, path: Path | None = None) -> str:
            server = docker if path is not None else _address(url)
            opened = fault_proxy(hops[hop], server, path)
            address = await stack.enter_async_context(opened)
            if path is not None:
                return address.url
            return f"http://{address.host}:{address.port}"

        ways = Ways(
            model=await before(MODEL, model.url),
            resources_docker=await before(RESOURCES_DOCKER, "", folder / "rd.sock"),
            agent_docker=await before(AGENT_DOCKER, "", folder / "ad.sock"),
        )

        async def begun(name: str, docker: str) -> Server:
            text = settings(outside, image, ways, docker)
            return await stack.enter_async_context(serving(name, text, folder))

        resources = await begun("resources", ways.resources_docker)
        agent = await begun("agent", ways.agent_docker)
        ways = attrs.evolve(
            ways,
            resources=await before(RESOURCES, resources.url),
            agent=await before(AGENT, agent.url),
        )
        environment = await begun("environment", ways.agent_docker)
        url = await before(CLIENT, environment.url)
        owner = (folder / "state" / "owner").read_text().strip()
        yield Stage((environment, resources, agent), url, owner)


def _address(url: str) -> EngineAddress:
    host, _, port = url.removeprefix("http://").partition(":")
    return EngineAddress(host=host, port=int(port))
