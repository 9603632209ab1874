# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: what a server has done and what stands open, for who may ask it.

What writes the page is loaded when the first one is asked for.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..ports.provided.measures import Measures
from ..ports.required.faults import Fault
from .composition import Foundation, Watched

PATH: Final = "/metrics"
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Endpoint = Callable[[Request], Awaitable[Response]]


def metrics_endpoint(foundation: Foundation) -> Endpoint | None:
    """Return the endpoint of what is watched; None where nothing is."""
    watched = foundation.watched
    if watched is None:
        return None

    async def metrics(request: Request) -> Response:
        return Response(await _written(watched), media_type=MEDIA_TYPE)

    return metrics


def metrics_routes(foundation: Foundation) -> tuple[Route, ...]:
    """Return the route, where there is one."""
    endpoint = metrics_endpoint(foundation)
    return () if endpoint is None else (Route(PATH, endpoint, methods=["GET"]),)


async def _written(watched: Watched) -> bytes:
    from .metrics_families import put_together, written

    try:
        census = await watched.census()
    except Fault:
        census = None  # The page says so: this is when the rest is needed most.
    parts = watched.parts
    if parts.among_others:
        return written(census) + put_together(await parts.told())
    return written(census) + parts.own()


def part_of(measures: Measures) -> bytes:
    """Return what this process has in the page."""
    from .metrics_families import written_part

    return written_part(measures)
