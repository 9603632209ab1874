# SPDX-License-Identifier: Apache-2.0
"""The Engine API by hand, over http.client: the look past the provider.

It blocks, asks one question at a time, and shares nothing with the adapter.
"""

import http.client
import io
import ipaddress
import json
import os
import socket
import tarfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from .. import peers

VERSION = "v1.41"


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, *, seconds: float = 60.0) -> None:
        super().__init__("docker", timeout=seconds)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def request(
    method: str,
    path: str,
    body: Any = None,
    *,
    query: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> tuple[int, bytes]:
    """Ask one thing and return the status and the answer."""
    connection = SocketConnection(str(peers.docker_socket()))
    try:
        headers = {"Content-Type": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/x-tar"
        elif body is not None:
            content = json.dumps(body).encode()
        target = f"/{VERSION}{path}" + (f"?{urlencode(query)}" if query else "")
        connection.request(method, target, body=content, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def labelled(label: str) -> tuple[str, ...]:
    """Name the containers, networks and volumes with a label, in any state."""
    filters = {"filters": json.dumps({"label": [label]})}
    _, raw = request("GET", "/containers/json", query={"all": "1", **filters})
    found = [f"container {one['Names'][0]} {one['State']}" for one in json.loads(raw)]
    _, raw = request("GET", "/networks", query=filters)
    found += [f"network {one['Name']}" for one in json.loads(raw)]
    _, raw = request("GET", "/volumes", query=filters)
    found += [f"volume {one['Name']}" for one in json.loads(raw)["Volumes"] or []]
    return tuple(found)


def inspect(container: str) -> Any:
    """Return what the engine tells of a container; None when there is none."""
    status, raw = request("GET", f"/containers/{quote(container)}/json")
    return None if status == 404 else json.loads(raw)


def run_container(
    image: str,
    argv: list[str],
    *,
    name: str,
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> str:
    """Make and start a container as somebody else would, and return its id."""
    body = {"Image": image, "Cmd": argv, "Labels": dict(labels or {}), **more}
    status, raw = request("POST", "/containers/create", body, query={"name": name})
    assert status == 201, raw
    container = str(json.loads(raw)["Id"])
    status, raw = request("POST", f"/containers/{container}/start")
    assert status == 204, raw
    return container


def kill(container: str) -> None:
    """End a container as an operator would."""
    request("POST", f"/containers/{quote(container)}/kill")


def remove(container: str) -> None:
    """Remove a container by force."""
    request("DELETE", f"/containers/{quote(container)}", query={"force": "1", "v": "1"})


def import_image(
    name: str, files: Mapping[str, bytes], links: Mapping[str, str], changes: list[str]
) -> None:
    """Make an image from files (all of mode 755) and links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    repository, _, tag = name.rpartition(":")
    query = [("fromSrc", "-"), ("repo", repository), ("tag", tag)]
    query += [("changes", change) for change in changes]
    status, raw = request(
        "POST", f"/images/create?{urlencode(query)}", content=packed.getvalue()
    )
    assert status == 200, raw


def commit(container: str, name: str, *changes: str) -> None:
    """Make an image from a container, with Dockerfile instructions laid over."""
    repository, _, tag = name.rpartition(":")
    query = [("container", container), ("repo", repository), ("tag", tag)]
    query += [("changes", change) for change in changes]
    status, raw = request("POST", f"/commit?{urlencode(query)}", {})
    assert status == 201, raw


def derive_image(base: str, name: str, *changes: str) -> None:
    """Make an image from another with Dockerfile instructions laid over."""
    container = f"livery-test-derive-{os.getpid()}"
    status, raw = request(
        "POST",
        "/containers/create",
        {"Image": base, "Cmd": ["true"]},
        query={"name": container},
    )
    assert status == 201, raw
    try:
        commit(container, name, *changes)
    finally:
        remove(container)


def count_of(kind: str) -> int:
    """Count the networks or the volumes that the engine has."""
    found = json.loads(request("GET", f"/{kind}")[1])
    return len(found if isinstance(found, list) else found["Volumes"] or [])


def remove_image(name: str) -> None:
    """Remove an image of the tests."""
    request("DELETE", f"/images/{name}", query={"force": "1"})


def host_address() -> str:
    """Return where containers reach this host."""
    _, raw = request("GET", "/networks/bridge")
    network = json.loads(raw)["IPAM"]["Config"][0]
    return network.get("Gateway") or str(ipaddress.ip_network(network["Subnet"])[1])
