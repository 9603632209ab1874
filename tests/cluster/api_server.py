# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes API server for custom resources, with the upstream CRDs.

Where it comes from is `tests/peers.py`. Its storage is fresh at each start, and is
kept when the server alone is killed and started again.
"""

import functools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import attrs
import httpx
import yaml

from .. import peers

NAMESPACES = ("default", "agents", "others")
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
SERVED_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.1
WATCH_LOOK_SECONDS = 0.5

CRDS = (
    "agents.x-k8s.io_sandboxes.yaml",
    "extensions.agents.x-k8s.io_sandboxclaims.yaml",
    "extensions.agents.x-k8s.io_sandboxtemplates.yaml",
    "extensions.agents.x-k8s.io_sandboxwarmpools.yaml",
)
OWN = Path(__file__).parent
ROOT = OWN.parent.parent


@attrs.frozen(kw_only=True)
class ApiServer:
    """A server that runs; `folder` has its certificates and kubeconfigs."""

    folder: Path
    scripts: Path
    built: Path
    port: int
    etcd_port: int

    @property
    def url(self) -> str:
        """Where it answers, past every proxy."""
        return f"https://127.0.0.1:{self.port}"

    def trust(self, *, as_admin: bool) -> ssl.SSLContext:
        """Return what a client trusts, and shows when it is the administrator."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if as_admin:
            context.load_cert_chain(
                self.folder / "admin.crt", self.folder / "admin.key"
            )
        return context

    def stop(self) -> None:
        """End the server and its storage."""
        self._run("stop", str(self.folder))

    def kill(self) -> list[str]:
        """Kill the server alone, and return what starts it again."""
        pid = int((self.folder / "api.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._answers():
            assert time.monotonic() < deadline, "the API server outlives SIGKILL"
            time.sleep(LOOK_SECONDS)
        return [word.decode() for word in words if word]

    def start_again(self, words: list[str]) -> None:
        """Start the server on the storage that it had."""
        with open(self.folder / "api.log", "ab") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        (self.folder / "api.pid").write_text(str(process.pid))
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert process.poll() is None, "the API server ended"
            assert time.monotonic() < deadline, "the API server does not answer"
            time.sleep(LOOK_SECONDS)
        self.until_served()

    def load_crds(self) -> None:
        """Load what the tests speak of, and wait until each is served."""
        with self.client() as client:
            for crd in _crds():
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                client.post(path, json=crd).raise_for_status()
        self.until_served()

    def until_served(self) -> None:
        """Wait until every kind is listed and watched."""
        with self.client() as client:
            for crd in _crds():
                self._until_served(client, crd["spec"])

    def client(self) -> httpx.Client:
        """Return the administrator's client."""
        return httpx.Client(
            base_url=self.url,
            verify=self.trust(as_admin=True),
            timeout=60.0,
            trust_env=False,
        )

    def start(self) -> None:
        """Start everything with nothing stored."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run(str(self.folder))

    def _answers(self) -> bool:
        try:
            with httpx.Client(
                verify=self.trust(as_admin=False), trust_env=False
            ) as client:
                return client.get(f"{self.url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def _until_served(self, client: httpx.Client, spec: Any) -> None:
        version = next(one["name"] for one in spec["versions"] if one["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        deadline = time.monotonic() + SERVED_SECONDS_MAX
        while client.get(path).status_code != 200 or not _watches(client, path):
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(LOOK_SECONDS)

    def _run(self, *words: str) -> None:
        more = {
            "BUILT": str(self.built),
            "PORT": str(self.port),
            "ETCD_PORT": str(self.etcd_port),
            "NAMESPACES": ",".join(NAMESPACES),
            "RBAC": str(OWN / "rbac.yaml"),
        }
        ended = subprocess.run(
            [self.scripts / "start.sh", *words],
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_SECONDS_MAX,
        )
        assert ended.returncode == 0, ended.stderr.decode(errors="replace")


def start_api_server(folder: Path) -> ApiServer:
    """Unpack what is needed, start the server on free ports and load the CRDs."""
    built = ROOT / ".cache" / "k8s-apiserver"
    scripts = peers.k8s_apiserver()
    subprocess.run(
        [scripts / "setup.sh", built],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    port, etcd_port = free_ports()
    server = ApiServer(
        folder=folder, scripts=scripts, built=built, port=port, etcd_port=etcd_port
    )
    server.start()
    try:
        server.load_crds()
    except BaseException:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return server


def free_ports() -> tuple[int, int]:
    """Return two free ports, of which the second has a free one after it."""
    while True:
        with socket.socket() as one, socket.socket() as two, socket.socket() as next_:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            port, etcd_port = one.getsockname()[1], two.getsockname()[1]
            try:
                next_.bind(("127.0.0.1", etcd_port + 1))
            except (OSError, OverflowError):
                continue
            return port, etcd_port


def _watches(client: httpx.Client, path: str) -> bool:
    """Return whether a watch goes well: for a moment longer an event says 429."""
    params = {"watch": "1", "resourceVersion": "0"}
    try:
        with client.stream(
            "GET", path, params=params, timeout=WATCH_LOOK_SECONDS
        ) as answer:
            return '"ERROR"' not in next(answer.iter_lines(), "")
    except httpx.ReadTimeout:
        return True  # Nothing is there to be told.


@functools.cache
def _crds() -> list[dict[str, Any]]:
    found = [_stored_version_alone(peers.crds() / name) for name in CRDS]
    gateway = (OWN / "gateway_crd.json").read_text(encoding="utf-8")
    return [*found, json.loads(gateway)]


def _stored_version_alone(path: Path) -> dict[str, Any]:
    """Return a CRD without its older versions, which need a webhook to convert."""
    crd = cast("dict[str, Any]", yaml.safe_load(path.read_text(encoding="utf-8")))
    spec = crd["spec"]
    spec["versions"] = [one for one in spec["versions"] if one["storage"]]
    spec["conversion"] = {"strategy": "None"}
    return crd
