# SPDX-License-Identifier: Apache-2.0
"""The administrator's client of the API server, as far as the double needs one."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

from .api_server import ApiServer
from .binding import Key, Kind, key_of

AGAIN_SECONDS = 0.2
REQUEST_SECONDS = 30.0
MERGE = {"Content-Type": "application/merge-patch+json"}


class Kube:
    """Objects of the API server."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """Ask through `client`."""
        self._client = client

    @staticmethod
    @asynccontextmanager
    async def open(server: ApiServer) -> AsyncGenerator["Kube"]:
        """Open the client for as long as the block."""
        async with httpx.AsyncClient(
            base_url=server.url,
            verify=server.trust(as_admin=True),
            timeout=REQUEST_SECONDS,
            trust_env=False,
        ) as client:
            yield Kube(client)

    async def create(
        self, kind: Kind, namespace: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        """Create an object."""
        return await self._asked("POST", _path(kind, namespace), body)

    async def list(self, kind: Kind, namespace: str) -> list[dict[str, Any]]:
        """Return the objects of a namespace as the server has them now."""
        found = await self._asked("GET", _path(kind, namespace))
        return [dict(one) for one in found["items"]]

    async def apply(self, kind: Kind, key: Key, body: dict[str, Any]) -> None:
        """Write an object as it shall be, whether it is there or not."""
        await self._client.request(
            "PATCH",
            _path(kind, *key),
            params={"fieldManager": "tests", "force": "true"},
            content=json.dumps({**body, "metadata": {"name": key[1]}}),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def patch(self, kind: Kind, key: Key, body: dict[str, Any]) -> None:
        """Merge into an object; one that is gone is left so."""
        await self._asked("PATCH", _path(kind, *key), body)

    async def patch_status(self, kind: Kind, key: Key, body: dict[str, Any]) -> None:
        """Merge into an object's status; one that is gone is left so."""
        await self._asked("PATCH", f"{_path(kind, *key)}/status", body)

    async def delete(self, kind: Kind, key: Key, *, foreground: bool = False) -> None:
        """Delete an object that may be gone."""
        policy = "Foreground" if foreground else "Background"
        await self._asked("DELETE", _path(kind, *key), {"propagationPolicy": policy})

    async def follow(
        self, kind: Kind, kept: dict[Key, dict[str, Any]], seen: Callable[[Key], None]
    ) -> None:
        """Keep a table of all objects of a kind, whatever becomes of the server."""
        while True:
            try:
                listed = await self._asked("GET", _path(kind))
                fresh = {key_of(one): one for one in listed["items"]}
                gone = [key for key in kept if key not in fresh]
                for key in gone:
                    del kept[key]
                kept.update(fresh)
                for key in (*gone, *fresh):
                    seen(key)
                await self._watch(
                    kind, listed["metadata"]["resourceVersion"], kept, seen
                )
            except (httpx.HTTPError, ValueError, KeyError):
                await anyio.sleep(AGAIN_SECONDS)

    async def _watch(
        self,
        kind: Kind,
        version: str,
        kept: dict[Key, dict[str, Any]],
        seen: Callable[[Key], None],
    ) -> None:
        params = {"watch": "1", "resourceVersion": version}
        async with self._client.stream(
            "GET", _path(kind), params=params, timeout=None
        ) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                event = json.loads(line)
                found = event["object"]
                if event["type"] == "ERROR":
                    return
                key = key_of(found)
                if event["type"] == "DELETED":
                    kept.pop(key, None)
                else:
                    kept[key] = found
                seen(key)

    async def _asked(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = await self._client.request(
            method,
            path,
            content=None if body is None else json.dumps(body),
            headers=MERGE
            if method == "PATCH"
            else {"Content-Type": "application/json"},
        )
        if method in ("PATCH", "DELETE") and _is_gone(answer):
            return {}
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def _is_gone(answer: httpx.Response) -> bool:
    """Return whether it is the object that is not there.

    A server that has just started answers 404 to every path of a kind that it does
    not serve yet, without a name.
    """
    if answer.status_code != 404 or "json" not in answer.headers["Content-Type"]:
        return False
    return "name" in answer.json().get("details", {})


def _path(kind: Kind, namespace: str = "", name: str = "") -> str:
    path = f"/apis/{kind.version}"
    if namespace:
        path += f"/namespaces/{namespace}"
    return f"{path}/{kind.plural}" + (f"/{name}" if name else "")
