# SPDX-License-Identifier: Apache-2.0
"""Pods: Docker containers that run the runtime server.

What a pod is made from is read from the template's pod, as far as a container of
Docker can be it: image, environment, a read-only root, and, by annotation, what
only tests ask for.
"""

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
from anyio import to_thread

from ..docker_engine import raw_engine

SERVER = Path(__file__).with_name("runtime_server.py")
INSIDE = "/opt/runtime_server.py"
RUN_LABEL = "livery-test.cluster"
NETWORK = "livery-test/network"
"""Annotation of a pod: the Docker network that it is on."""
PROXIED = "livery-test/proxied"
"""Annotation of a pod: its address is one of the fault proxy's."""
LIVES_SECONDS = 3600
"""A pod that everybody forgot ends by itself."""
STARTED_AT_ONCE = 4
IP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.02

# The server's end is not the pod's: the kubelet starts a container again.
_KEPT_UP = (
    f"end=$(( $(date +%s) + {LIVES_SECONDS} ));"
    " while [ $(date +%s) -lt $end ]; do"
    f' "$0" {INSIDE} & echo $! >/run/runtime.pid; wait $!;'
    " while [ -e /run/runtime.held ]; do sleep 0.05; done; done"
)


@attrs.define(kw_only=True)
class Pod:
    """One container that runs."""

    name: str
    container: str
    container_ip: str
    ip: str
    """What its status says: the container's address, or the proxy's for it."""
    template: dict[str, Any]
    """The pod template that it was made from."""


class Pods:
    """Makes and ends the pods of one cluster."""

    def __init__(self, run: str, proxied_ip: Callable[[str], str]) -> None:
        """Label with `run`; `proxied_ip` gives an address for a container's."""
        self._run = run
        self._proxied_ip = proxied_ip
        self._limiter = anyio.CapacityLimiter(STARTED_AT_ONCE)

    async def make(self, name: str, template: dict[str, Any]) -> Pod:
        """Start a pod; its server may not answer yet."""
        body = _container(template, self._run)
        path = "/containers/create"
        query = {"name": f"livery-test-{self._run}-{name}"}
        made = await self._ask("POST", path, body, query=query)
        container = str(made["Id"])
        try:
            await self._ask("POST", f"/containers/{container}/start")
            address = await self._address(container)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.end(container)
            raise
        annotations = template.get("metadata", {}).get("annotations", {})
        is_proxied = annotations.get(PROXIED) == "true"
        return Pod(
            name=name,
            container=container,
            container_ip=address,
            ip=self._proxied_ip(address) if is_proxied else address,
            template=template,
        )

    async def end(self, container: str) -> None:
        """Kill and remove a pod."""
        query = {"force": "1", "v": "1"}
        await self._ask("DELETE", f"/containers/{container}", query=query)

    async def kill(self, container: str) -> None:
        """Kill a pod as its node's end would."""
        await self._ask("POST", f"/containers/{container}/kill")

    async def restart(self, container: str) -> str:
        """Start a pod's container again, and return its address."""
        await self._ask("POST", f"/containers/{container}/restart", query={"t": "0"})
        return await self._address(container)

    async def run(self, container: str, script: str) -> None:
        """Run a script in a pod past its runtime server, to its end."""
        body = {"Cmd": ["/bin/sh", "-c", script]}
        made = await self._ask("POST", f"/containers/{container}/exec", body)
        await self._ask("POST", f"/exec/{made['Id']}/start", {"Detach": True})
        deadline = time.monotonic() + IP_SECONDS_MAX
        while (await self._ask("GET", f"/exec/{made['Id']}/json"))["Running"]:
            assert time.monotonic() < deadline, f"{script} does not end"
            await anyio.sleep(LOOK_SECONDS)

    async def running(self) -> set[str]:
        """Return the ids of the containers that run."""
        filters = {"label": [f"{RUN_LABEL}={self._run}"], "status": ["running"]}
        query = {"filters": json.dumps(filters)}
        found = await self._ask("GET", "/containers/json", query=query)
        return {one["Id"] for one in found}

    async def end_all(self) -> None:
        """Remove whatever carries this run's label."""
        await to_thread.run_sync(remove_all, self._run)

    async def _address(self, container: str) -> str:
        deadline = time.monotonic() + IP_SECONDS_MAX
        while True:
            facts = await self._ask("GET", f"/containers/{container}/json")
            networks = facts["NetworkSettings"]["Networks"].values()
            found = [one["IPAddress"] for one in networks if one["IPAddress"]]
            if found:
                return str(found[0])
            assert time.monotonic() < deadline, f"{container} has no address"
            await anyio.sleep(LOOK_SECONDS)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
    ) -> Any:
        ask = functools.partial(raw_engine.request, method, path, body, query=query)
        status, raw = await to_thread.run_sync(ask, limiter=self._limiter)
        assert status < 400 or status in (404, 409), (method, path, status, raw)
        return json.loads(raw) if raw.startswith((b"{", b"[")) else None


def remove_all(run: str) -> None:
    """Remove every container with the label of a run."""
    for told in raw_engine.labelled(f"{RUN_LABEL}={run}"):
        if told.startswith("container /"):
            raw_engine.remove(told.split()[1].removeprefix("/"))


def _container(template: dict[str, Any], run: str) -> dict[str, Any]:
    (container, *_) = template["spec"]["containers"]
    env = {one["name"]: one.get("value", "") for one in container.get("env", [])}
    annotations = template.get("metadata", {}).get("annotations", {})
    read_only = bool(container.get("securityContext", {}).get("readOnlyRootFilesystem"))
    host: dict[str, Any] = {
        # As in a pod, the first process is the image's own, which no other can kill.
        "Init": False,
        "NetworkMode": annotations.get(NETWORK, "bridge"),
        "Binds": [f"{SERVER}:{INSIDE}:ro"],
        "Tmpfs": {"/run": "rw,exec"},
    }
    if read_only:
        # As the pod that a cluster's owner writes: the base folder is a volume.
        host["ReadonlyRootfs"] = True
        host["Tmpfs"][env.get("SANDBOX_BASE_DIR", "/app")] = "rw,exec"
    return {
        "Image": container["image"],
        "Entrypoint": ["/bin/sh", "-c", _KEPT_UP, "python3"],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": {RUN_LABEL: run, "livery-test.pid": str(os.getpid())},
        "HostConfig": host,
    }
