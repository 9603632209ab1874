# SPDX-License-Identifier: Apache-2.0
"""The real `opensandbox-server` on the local engine, with our execd in its sandboxes.

There is one for all tests: two on the same engine end each other's sandboxes.
"""

import io
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import attrs
import httpx

from .. import peers
from ..docker_engine import raw_engine

API_KEY = "key-of-the-tests"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
EXECD_IMAGE = "livery-test/execd-{pid}:1"
EGRESS_IMAGE = "livery-test/no-such-egress:1"

_CONFIG = """\
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
max_sandbox_timeout_seconds = 86400

[runtime]
type = "docker"
execd_image = "{execd}"

[store]
type = "sqlite"
path = "{home}/store.db"

[docker]
network_mode = "bridge"
port_range_min = 42000
port_range_max = 46000
publish_host = "127.0.0.1"
drop_capabilities = ["NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"]
no_new_privileges = true
pids_limit = 4096

[ingress]
mode = "direct"

[egress]
image = "{egress}"
mode = "dns+nft"
"""


@attrs.define
class RealServer:
    """A server that runs, can be stopped, and started again as it was."""

    home: Path
    port: int
    image: str
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.home / "server.toml"
        config.write_text(
            _CONFIG.format(
                port=self.port,
                key=API_KEY,
                execd=self.image,
                egress=EGRESS_IMAGE,
                home=self.home,
            )
        )
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [peers.opensandbox_program("opensandbox-server"), "--config", config],
                env={**os.environ, "HOME": str(self.home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, self._told()
            assert time.monotonic() < until, self._told()
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.address}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def _told(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")[-2000:]


def set_up(base_image: str) -> RealServer:
    """Make the image with our execd, and a server that is not started yet."""
    home = Path(tempfile.mkdtemp(prefix="livery-opensandbox-"))
    image = EXECD_IMAGE.format(pid=os.getpid())
    make_execd_image(base_image, image)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    return RealServer(home=home, port=port, image=image)


def take_down(server: RealServer) -> None:
    """Remove what `set_up` made."""
    raw_engine.remove_image(server.image)
    shutil.rmtree(server.home, ignore_errors=True)


def make_execd_image(base: str, name: str) -> None:
    """Put our two files on top of `base`; the server starts `tail` in it once."""
    folder = Path(__file__).with_name("execd_image")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for source, target in (("execd.py", "execd"), ("bootstrap.sh", "bootstrap.sh")):
            content = (folder / source).read_bytes()
            entry = tarfile.TarInfo(target)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    container = f"livery-test-execd-{secrets.token_hex(4)}"
    status, raw = raw_engine.request(
        "POST",
        "/containers/create",
        {"Image": base, "Cmd": ["true"]},
        query={"name": container},
    )
    assert status == 201, raw
    try:
        status, raw = raw_engine.request(
            "PUT",
            f"/containers/{container}/archive?path=/",
            content=packed.getvalue(),
        )
        assert status == 200, raw
        raw_engine.commit(container, name)
    finally:
        raw_engine.remove(container)
