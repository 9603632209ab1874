# SPDX-License-Identifier: Apache-2.0
"""From a spec to the container that the engine is asked for, without asking it.

What the engine would read in another way than it was meant is refused here, by
the name of the field. The labels say whose the container is, so that it can be
found, adopted and reaped by anybody who reads them, and by nobody else.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import attrs

from ...domain.claims import ClaimId, OwnerId
from ...domain.image_names import is_image_name, no_image_name
from ...domain.names import to_name
from ...domain.plain_texts import NO_TEXT, no_texts
from ...ports.required.sandbox_provider import (
    ClaimLabel,
    Network,
    SandboxSpec,
    SpecRefused,
)
from .engine_facts import ImageFacts
from .keep_alive import keep_alive

CLAIM, OWNER = "livery.claim", "livery.owner"
EXPIRES, DIGEST = "livery.expires", "livery.spec"
USER, WORKDIR = "livery.user", "livery.workdir"
LIFETIME = "livery.lifetime"
RESERVED = "livery."

NAME_PREFIX = "livery"
ROOT = "0:0"
MEMORY_MIB_MIN = 6
"""The engine takes no less."""
KERNEL_FOLDERS = frozenset({"dev", "proc", "sys"})
"""What is in there is no file that could be taken out and put elsewhere."""
SECONDS_MAX = 365 * 86_400.0
LOG_BYTES_MAX = "1m"
PATIENCE_MARGIN_SECONDS = 60.0
OPTIONS = frozenset({"read_only", "shm_size_mib"})

_VARIABLE = re.compile(r"[^=\0]+")


@attrs.frozen(kw_only=True)
class ContainerRules:
    """What the configuration says about every container."""

    provider: str
    network: str
    no_new_privileges: bool


@attrs.frozen
class _Check:
    provider: str

    def demand(self, holds: bool, field: str, reason: str) -> None:
        if not holds:
            raise SpecRefused(provider=self.provider, field=field, reason=reason)


def check_spec(spec: SandboxSpec, *, provider: str) -> None:
    """Say no to what no container can be made from.

    Raises:
        SpecRefused: The first field that is wrong, with what would be right.
    """
    demand = _Check(provider).demand
    demand(bool(spec.image), "image", "no image is named")
    demand(
        is_image_name(spec.image or ""),
        "image",
        no_image_name(spec.image or ""),
    )
    demand(_is_plain_path(spec.workdir), "workdir", "an absolute path is needed")
    top = next((part for part in spec.workdir.split("/") if part not in ("", ".")), "")
    demand(bool(top), "workdir", "the root itself is no working folder")
    demand(
        top not in KERNEL_FOLDERS,
        "workdir",
        f"/{top} is the kernel's; name a folder elsewhere, such as /workspace",
    )
    for name, value in spec.env.items():
        good = bool(_VARIABLE.fullmatch(name)) and "\0" not in value
        demand(good, f"env.{name}", "a name has no '=', neither part a NUL")
    for name in spec.metadata:
        demand(
            bool(name) and not name.startswith(RESERVED),
            f"metadata.{name}",
            f"labels under {RESERVED!r} are Livery's own",
        )
    demand(spec.user is None or spec.user != "", "user", "it is empty")
    demand(
        spec.cpus is None or (math.isfinite(spec.cpus) and spec.cpus >= 0.01),
        "cpus",
        "at least 0.01 are needed",
    )
    demand(
        spec.memory_mib is None or spec.memory_mib >= MEMORY_MIB_MIN,
        "memory_mib",
        f"at least {MEMORY_MIB_MIN} are needed",
    )
    demand(
        spec.processes_max is None or spec.processes_max >= 1,
        "processes_max",
        "at least 1 is needed",
    )
    for index, mount in enumerate(spec.mounts):
        for field, path in (("source", mount.source), ("target", mount.target)):
            demand(
                _is_plain_path(path),
                f"mounts[{index}].{field}",
                "an absolute path is needed",
            )
    for index, port in enumerate(spec.ports):
        demand(1 <= port <= 65535, f"ports[{index}]", "a port is 1 to 65535")
    demand(len({*spec.ports}) == len(spec.ports), "ports", "one is named twice")
    demand(
        not spec.ports or spec.network is not Network.NONE,
        "ports",
        "a sandbox without a network has none",
    )
    demand(
        spec.entrypoint is None or bool(spec.entrypoint), "entrypoint", "it is empty"
    )
    for field in (
        "lifetime_seconds",
        "create_timeout_seconds",
        "pull_timeout_seconds",
        "ready_timeout_seconds",
    ):
        seconds: float = getattr(spec, field)
        demand(
            math.isfinite(seconds) and 0 < seconds <= SECONDS_MAX,
            field,
            f"more than 0 and at most {SECONDS_MAX:.0f} seconds are needed",
        )
    _check_options(spec, demand=_Check(provider))
    for field in no_texts(attrs.asdict(spec), ""):
        demand(False, field, NO_TEXT)


def _check_options(spec: SandboxSpec, *, demand: _Check) -> None:
    for name, value in spec.provider_options.items():
        field = f"provider_options.{name}"
        known = ", ".join(sorted(OPTIONS))
        demand.demand(name in OPTIONS, field, f"unknown; known are {known}")
        if name == "read_only":
            demand.demand(isinstance(value, bool), field, "true or false is needed")
        else:
            good = isinstance(value, int) and not isinstance(value, bool) and value > 0
            demand.demand(good, field, "a whole number of MiB is needed")


def spec_digest(spec: SandboxSpec) -> str:
    """Return a digest that equal specs share; the order of keys does not count."""
    text = json.dumps(attrs.asdict(spec), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def to_labels(
    label: ClaimLabel, spec: SandboxSpec, *, user: str, now: float
) -> dict[str, str]:
    """Return all labels of the container; ours go over the user's.

    When it expires is known once it is ready; the label says when at the latest.
    """
    latest = now + patience_seconds(spec) + spec.lifetime_seconds
    return {
        **spec.metadata,
        CLAIM: label.claim,
        OWNER: label.owner,
        EXPIRES: datetime.fromtimestamp(latest, UTC).isoformat(),
        DIGEST: spec_digest(spec),
        LIFETIME: repr(spec.lifetime_seconds),
        USER: user,
        WORKDIR: spec.workdir,
    }


def label_of(labels: Mapping[str, str]) -> ClaimLabel | None:
    """Return whose a container is; None when it is not one of ours."""
    if CLAIM not in labels or OWNER not in labels:
        return None
    return ClaimLabel(claim=ClaimId(labels[CLAIM]), owner=OwnerId(labels[OWNER]))


def expires_at(labels: Mapping[str, str]) -> float | None:
    """Return when a container ends itself at the latest, in Unix seconds."""
    try:
        return datetime.fromisoformat(labels.get(EXPIRES, "")).timestamp()
    except ValueError:
        return None


def lifetime_seconds(labels: Mapping[str, str]) -> float | None:
    """Return how long a container lives once it is ready."""
    try:
        return float(labels.get(LIFETIME, ""))
    except ValueError:
        return None


def container_name(claim: ClaimId) -> str:
    """Return the name of the container of a claim."""
    return to_name(NAME_PREFIX, claim)


def patience_seconds(spec: SandboxSpec) -> float:
    """Return how long a container waits for its mark before it ends itself."""
    return (
        spec.create_timeout_seconds
        + spec.ready_timeout_seconds
        + PATIENCE_MARGIN_SECONDS
    )


def sandbox_user(spec: SandboxSpec, image: ImageFacts) -> str:
    """Return whom commands run as: the spec's word, else the image's, else root."""
    return spec.user or image.user or ROOT


def to_config(
    spec: SandboxSpec, *, user: str, labels: Mapping[str, str], rules: ContainerRules
) -> dict[str, object]:
    """Return the body of the request that makes the container.

    Commands run as the sandbox's user, but the first process and the worker are
    root's: they end what any user left behind. An own entry point runs as the
    user, with the image's folder and health check.
    """
    config: dict[str, object] = {
        "Image": spec.image,
        "Entrypoint": keep_alive(
            spec.entrypoint,
            lifetime_seconds=spec.lifetime_seconds,
            patience_seconds=patience_seconds(spec),
        ),
        "Cmd": [],
        "User": user if spec.entrypoint else ROOT,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "Labels": dict(labels),
        "ExposedPorts": {f"{port}/tcp": {} for port in spec.ports},
        "HostConfig": _host_config(spec, rules=rules),
    }
    if spec.entrypoint is None:
        # What the image would check is its own entry point, which does not run.
        config |= {"WorkingDir": "/", "Healthcheck": {"Test": ["NONE"]}}
        # The first process heeds no other one, and whoever stops it would wait.
        config["StopSignal"] = "SIGKILL"
    return config


def _host_config(spec: SandboxSpec, *, rules: ContainerRules) -> dict[str, object]:
    host: dict[str, object] = {
        "Init": spec.entrypoint is not None,
        "NetworkMode": "none" if spec.network is Network.NONE else rules.network,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": _log_config(spec),
        # Unlike a bind of the old kind, a mount with a missing source is refused.
        "Mounts": [
            {
                "Type": "bind",
                "Source": mount.source,
                "Target": mount.target,
                "ReadOnly": mount.read_only,
            }
            for mount in spec.mounts
        ],
        "PortBindings": {
            f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]
            for port in spec.ports
        },
        "SecurityOpt": ["no-new-privileges"] if rules.no_new_privileges else [],
    }
    if spec.cpus is not None:
        host["NanoCpus"] = round(spec.cpus * 1_000_000_000)
    if spec.memory_mib is not None:
        # The same limit with swap means no swap.
        host["Memory"] = host["MemorySwap"] = spec.memory_mib * 1024 * 1024
    if spec.processes_max is not None:
        host["PidsLimit"] = spec.processes_max
    if spec.provider_options.get("read_only"):
        host["ReadonlyRootfs"] = True
        host["Tmpfs"] = {
            "/tmp": "exec,mode=1777",
            spec.workdir: "exec,mode=1777",
        }
    if size := spec.provider_options.get("shm_size_mib"):
        assert isinstance(size, int)
        host["ShmSize"] = size * 1024 * 1024
    return host


def _log_config(spec: SandboxSpec) -> dict[str, object]:
    if spec.entrypoint is None:
        return {"Type": "none"}  # The first process is silent.
    return {
        "Type": "json-file",
        "Config": {"max-size": LOG_BYTES_MAX, "max-file": "1"},
    }


def _is_plain_path(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and ".." not in path.split("/")
