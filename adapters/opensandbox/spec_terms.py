# SPDX-License-Identifier: Apache-2.0
"""From a spec to the request that makes a sandbox, without asking the server.

The server ignores what it does not know and answers 500 to much of what is wrong,
so whatever can be seen here is refused here, by the name of the field.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import cast

import attrs

from ...domain.image_names import is_image_name, no_image_name
from ...domain.plain_texts import NO_TEXT, no_texts
from ...ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    Network,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)
from .keep_alive import KEEP_ALIVE
from .metadata import (
    CLAIM,
    LABEL_NAME,
    LABEL_VALUE,
    LIFETIME,
    MAKING,
    OWNER,
    PORTS,
    RESERVED,
    SPEC,
    TOKEN,
    USER,
    WORKDIR,
    encoded,
)
from .network_policy import check_reachable

ROOT = "0:0"
SECONDS_MAX = 365 * 86_400.0
TIMEOUT_SECONDS_MIN = 60
"""The server takes no less."""
PATIENCE_MARGIN_SECONDS = 60.0
MEMORY_MIB_MIN = 6
OPTIONS = frozenset({"extensions", "snapshot", "volumes"})
VOLUME_WORDS = frozenset({"name", "host", "pvc", "mountPath", "readOnly", "subPath"})
SPOOL_FOLDER = "/opt/opensandbox"
"""Where execd keeps the output of commands: out of reach of `rm -rf /tmp/*`."""
EXECD_GRACE = "10ms"
"""How long execd keeps a stream open behind its last event."""
EXECD_VARIABLES = ("EXECD_ACCESS_TOKEN", "EXECD_API_GRACE_SHUTDOWN")

_VARIABLE = re.compile(r"[^=\0]+")


@attrs.frozen
class _Check:
    provider: str

    def demand(self, holds: bool, field: str, reason: str) -> None:
        if not holds:
            raise SpecRefused(provider=self.provider, field=field, reason=reason)


def check_spec(
    spec: SandboxSpec, *, provider: str, capabilities: frozenset[Capability]
) -> None:
    """Say no to what no sandbox can be made from.

    Raises:
        SpecRefused: The first field that is wrong, with what would be right.
        Unsupported: The first ability that is asked for and not there.
    """
    _check_abilities(spec, provider=provider, capabilities=capabilities)
    demand = _Check(provider).demand
    snapshot = spec.provider_options.get("snapshot")
    demand(
        bool(spec.image) or snapshot is not None,
        "image",
        "neither an image nor provider_options.snapshot is named",
    )
    demand(
        spec.image is None or is_image_name(spec.image),
        "image",
        no_image_name(spec.image or ""),
    )
    demand(_is_plain_path(spec.workdir), "workdir", "an absolute path is needed")
    demand(spec.workdir != "/", "workdir", "the root itself is no working folder")
    for name, value in spec.env.items():
        good = bool(_VARIABLE.fullmatch(name)) and "\0" not in value
        demand(good, f"env.{name}", "a name has no '=', neither part a NUL")
        demand(
            not name.startswith(("EXECD_", "OPENSANDBOX_")),
            f"env.{name}",
            "variables of this name are the server's own",
        )
    for name, value in spec.metadata.items():
        field = f"metadata.{name}"
        demand(
            not name.startswith((RESERVED, "opensandbox.io/")),
            field,
            f"labels under {RESERVED!r} are Livery's own",
        )
        demand(
            bool(LABEL_NAME.fullmatch(name)) and bool(LABEL_VALUE.fullmatch(value)),
            field,
            "names and values have at most 63 of A-Z a-z 0-9 . _ -",
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
    for index, port in enumerate(spec.ports):
        demand(1 <= port <= 65535, f"ports[{index}]", "a port is 1 to 65535")
    demand(len({*spec.ports}) == len(spec.ports), "ports", "one is named twice")
    demand(
        spec.entrypoint is None or bool(spec.entrypoint), "entrypoint", "it is empty"
    )
    for index, mount in enumerate(spec.mounts):
        for part, path in (("source", mount.source), ("target", mount.target)):
            demand(
                _is_plain_path(path),
                f"mounts[{index}].{part}",
                "an absolute path is needed",
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
    _check_options(spec, check=_Check(provider))
    check_reachable(spec, provider=provider)
    for field in no_texts(attrs.asdict(spec), ""):
        demand(False, field, NO_TEXT)


def _check_abilities(
    spec: SandboxSpec, *, provider: str, capabilities: frozenset[Capability]
) -> None:
    def need(capability: Capability, detail: str) -> None:
        if capability not in capabilities:
            raise Unsupported(
                provider=provider, capability=capability.value, detail=detail
            )

    if spec.network is not Network.DEFAULT:
        listed = spec.network is Network.LISTED
        need(
            Capability.NETWORK_LISTED if listed else Capability.NETWORK_NONE,
            "egress is off in its options; the server needs its egress sidecar for it",
        )
    if spec.processes_max is not None:
        raise Unsupported(
            provider=provider,
            capability=Capability.RESOURCE_LIMITS.value,
            detail="processes_max is a setting of the server, not of a sandbox",
        )
    if spec.mounts:
        need(
            Capability.MOUNTS,
            "host_mounts is off; the server must allow-list the folders too",
        )


def _check_options(spec: SandboxSpec, *, check: _Check) -> None:
    known = ", ".join(sorted(OPTIONS))
    for name, value in spec.provider_options.items():
        field = f"provider_options.{name}"
        check.demand(name in OPTIONS, field, f"unknown; known are {known}")
        if name == "snapshot":
            good = isinstance(value, str) and bool(value)
            check.demand(good, field, "the id of a snapshot is needed")
            check.demand(not spec.image, "image", "a snapshot has its own image")
        elif name == "extensions":
            good = isinstance(value, Mapping) and all(
                isinstance(word, str)
                for pair in cast("Mapping[object, object]", value).items()
                for word in pair
            )
            check.demand(good, field, "texts under names are needed")
        else:
            _check_volumes(value, check)


def _check_volumes(value: object, check: _Check) -> None:
    field = "provider_options.volumes"
    check.demand(isinstance(value, list | tuple), field, "a list is needed")
    for index, volume in enumerate(cast("list[object]", value)):
        place = f"{field}[{index}]"
        check.demand(isinstance(volume, Mapping), place, "a table is needed")
        words = cast("Mapping[str, object]", volume)
        for word in words:
            check.demand(
                word in VOLUME_WORDS,
                f"{place}.{word}",
                f"unknown; known are {', '.join(sorted(VOLUME_WORDS))}",
            )
        for word in ("name", "mountPath"):
            good = isinstance(words.get(word), str)
            check.demand(good, f"{place}.{word}", "a text is needed")
        one = ("host" in words) is not ("pvc" in words)
        check.demand(one, place, "either host or pvc is needed")


def spec_digest(spec: SandboxSpec) -> str:
    """Return a digest that equal specs share; the order of keys does not count."""
    text = json.dumps(attrs.asdict(spec), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def patience_seconds(spec: SandboxSpec) -> int:
    """Return the time-out that the sandbox is made with, until it is ready."""
    seconds = (
        spec.create_timeout_seconds
        + spec.ready_timeout_seconds
        + PATIENCE_MARGIN_SECONDS
    )
    return max(TIMEOUT_SECONDS_MIN, math.ceil(seconds))


def to_body(label: ClaimLabel, spec: SandboxSpec, *, token: str) -> dict[str, object]:
    """Return the request that makes the sandbox; ours goes over the user's."""
    limits: dict[str, str] = {}
    if spec.cpus is not None:
        limits["cpu"] = f"{round(spec.cpus * 1000)}m"
    if spec.memory_mib is not None:
        limits["memory"] = f"{spec.memory_mib}Mi"
    body: dict[str, object] = {
        "timeout": patience_seconds(spec),
        "resourceLimits": limits,
        "env": to_environment(spec, token=token),
        "metadata": to_metadata(label, spec, token=token),
        "entrypoint": list(spec.entrypoint or KEEP_ALIVE),
    }
    if snapshot := spec.provider_options.get("snapshot"):
        body["snapshotId"] = snapshot
    else:
        body["image"] = {"uri": spec.image}
    if volumes := _volumes(spec):
        body["volumes"] = volumes
    if extensions := spec.provider_options.get("extensions"):
        body["extensions"] = dict(cast("Mapping[str, str]", extensions))
    return body


def to_environment(spec: SandboxSpec, *, token: str) -> dict[str, str]:
    """Return the sandbox's variables: execd's settings, and the user's own."""
    return {
        "TMPDIR": SPOOL_FOLDER,
        **spec.env,
        "EXECD_API_GRACE_SHUTDOWN": EXECD_GRACE,
        "EXECD_ACCESS_TOKEN": token,
    }


def to_metadata(label: ClaimLabel, spec: SandboxSpec, *, token: str) -> dict[str, str]:
    """Return what the sandbox carries on the server."""
    texts = {
        CLAIM: label.claim,
        OWNER: label.owner,
        SPEC: spec_digest(spec),
        USER: spec.user or ROOT,
        WORKDIR: spec.workdir,
        LIFETIME: repr(spec.lifetime_seconds),
        PORTS: "-".join(map(str, spec.ports)) or "none",
        TOKEN: token,
        MAKING: "yes",
    }
    found = dict(spec.metadata)
    for name, text in texts.items():
        found |= encoded(name, text)
    return found


def _volumes(spec: SandboxSpec) -> list[object]:
    given = cast("list[object]", spec.provider_options.get("volumes") or [])
    mounts: list[object] = [
        {
            "name": f"livery-{index}",
            "host": {"path": mount.source},
            "mountPath": mount.target,
            "readOnly": mount.read_only,
        }
        for index, mount in enumerate(spec.mounts)
    ]
    return [*given, *mounts]


def _is_plain_path(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and ".." not in path.split("/")
