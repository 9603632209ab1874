# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of each server has every route that is there, and no other."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import BaseRoute, Route

from livery.ports.required.world import World

from ..benchmarks.served import EmptyWorld
from ..resources_server.serving import BoxWorld
from .listening_servers import NAMES, listening_servers

pytestmark = pytest.mark.anyio

NAME = re.compile(r"\{(\w+)\}")
ALL_HAVE = {("GET", "/metrics"), ("GET", "/readyz"), ("GET", "/healthz")}


def there(routes: Sequence[BaseRoute]) -> set[tuple[str, str]]:
    """Return what can be asked; HEAD comes with each GET."""
    found: set[tuple[str, str]] = set()
    for route in routes:
        assert isinstance(route, Route), "others could not be compared"
        path = re.sub(r":\w+\}", "}", route.path)
        found |= {(method, path) for method in route.methods or ()} - {("HEAD", path)}
    return found


def told(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Return what the document has, whose paths have all their names described."""
    found: set[tuple[str, str]] = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            described = [one["name"] for one in operation.get("parameters", ())]
            assert described == NAME.findall(path), path
            assert operation["responses"]["200"]["content"], path
            found.add((method.upper(), path))
    return found


@pytest.mark.parametrize(
    ("world", "has_apps"),
    [(BoxWorld(wants_sandbox=False), True), (EmptyWorld(), False)],
)
async def test_the_document_has_every_route_and_no_other(
    tmp_path: Path, world: World, has_apps: bool
) -> None:
    async with (
        listening_servers(tmp_path, world=world) as servers,
        httpx.AsyncClient() as client,
    ):
        replies = {
            name: await client.get(f"{servers[name].url}/openapi.json")
            for name in NAMES
        }

    found = {name: told(reply.json()) for name, reply in replies.items()}
    assert found == {name: there(servers[name].routes) for name in NAMES}
    assert all(each >= ALL_HAVE for each in found.values())
    assert (("POST", "/mcp") in found["resources"]) is has_apps
