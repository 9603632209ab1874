# SPDX-License-Identifier: Apache-2.0
"""From a spec to the SandboxClaim that the cluster is asked for, without asking it.

What the cluster or the sandbox would read in another way than it was meant is
refused here, by the name of the field. Nothing that belongs to one session alone
stands in the claim's `env`: that would keep it from the warm pool's members.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

import attrs

from ...domain.claims import ClaimId, OwnerId
from ...domain.names import LABEL_VALUE, to_label_value, to_name
from ...domain.plain_texts import NO_TEXT, no_texts
from ...ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    Network,
    SandboxSpec,
    SpecRefused,
    Unsupported,
)
from .claim_facts import ClaimFacts, Words

CLAIM, OWNER = "livery.claim", "livery.owner"
EXPIRES, DIGEST = "livery.expires", "livery.spec"
WORKDIR, VARIABLES, PORTS = "livery.workdir", "livery.env", "livery.ports"
RESERVED = ("livery.", "agents.x-k8s.io/", "app.kubernetes.io/managed-by")
MANAGED_BY = "app.kubernetes.io/managed-by"
REQUESTED_AT = "agents.x-k8s.io/client-first-requested-at"
API_VERSION, KIND = "extensions.agents.x-k8s.io/v1beta1", "SandboxClaim"
NAME_PREFIX = "livery"
SELECTOR = CLAIM
"""All claims of ours, whoever owns them."""

SECONDS_MAX = 365 * 86_400.0
OPTIONS = frozenset(
    {"namespace", "pod_annotations", "pod_labels", "volume_claim_templates", "warmpool"}
)
SHUTDOWN_POLICY = "Delete"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9][a-z0-9-]*)*")
"""Of an object: it becomes a part of a path, in which dots and slashes lead elsewhere."""
_KEY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)


@attrs.frozen(kw_only=True)
class Pools:
    """Which warm pool serves a spec."""

    provider: str
    namespace: str
    namespaces: tuple[str, ...] = ()
    """Others in which claims may be made, and are looked for."""
    warmpool: str | None = None
    """For what no other word sends elsewhere."""
    image_warmpools: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @property
    def all_namespaces(self) -> tuple[str, ...]:
        """Every namespace in which claims of ours may be, the usual one first."""
        return tuple(dict.fromkeys((self.namespace, *self.namespaces)))


@attrs.frozen(kw_only=True)
class Route:
    """Where a claim goes."""

    namespace: str
    pool: str
    is_by_image: bool
    """Whether the spec's image chose the pool."""


@attrs.frozen
class _Check:
    provider: str

    def demand(self, holds: bool, field: str, reason: str) -> None:
        if not holds:
            raise SpecRefused(provider=self.provider, field=field, reason=reason)


def check_spec(spec: SandboxSpec, *, provider: str) -> None:
    """Say no to what no claim can be made from.

    Raises:
        Unsupported: It asks for what a claim cannot give.
        SpecRefused: The first field that is wrong, with what would be right.
    """
    for capability, is_asked, detail in (
        (
            Capability.ENTRYPOINT,
            spec.entrypoint is not None,
            "the pool's template decides what keeps the sandbox alive",
        ),
        (
            Capability.NETWORK_NONE,
            spec.network is Network.NONE,
            "the pool's template decides what the sandbox reaches",
        ),
        (
            Capability.NETWORK_LISTED,
            spec.network is Network.LISTED,
            "the pool's template decides what the sandbox reaches",
        ),
        (Capability.MOUNTS, bool(spec.mounts), "its pods run on other machines"),
    ):
        if is_asked:
            raise Unsupported(
                provider=provider, capability=capability.value, detail=detail
            )
    demand = _Check(provider).demand
    demand(_is_plain_path(spec.workdir), "workdir", "an absolute path is needed")
    demand(spec.workdir != "/", "workdir", "the root itself is no working folder")
    for name, value in spec.env.items():
        good = bool(_VARIABLE.fullmatch(name)) and "\0" not in value
        demand(good, f"env.{name}", "a name that a shell knows is needed, and no NUL")
    _check_labels(spec.metadata, field="metadata", check=_Check(provider))
    for index, port in enumerate(spec.ports):
        demand(1 <= port <= 65535, f"ports[{index}]", "a port is 1 to 65535")
    demand(len({*spec.ports}) == len(spec.ports), "ports", "one is named twice")
    for field in (
        "lifetime_seconds",
        "create_timeout_seconds",
        "ready_timeout_seconds",
    ):
        seconds: float = getattr(spec, field)
        demand(
            math.isfinite(seconds) and 0 < seconds <= SECONDS_MAX,
            field,
            f"more than 0 and at most {SECONDS_MAX:.0f} seconds are needed",
        )
    _check_options(spec, check=_Check(provider))
    for field in no_texts(attrs.asdict(spec), ""):
        demand(False, field, NO_TEXT)


def _check_labels(labels: Mapping[str, str], *, field: str, check: _Check) -> None:
    for name, value in labels.items():
        where = f"{field}.{name}"
        check.demand(bool(_KEY.fullmatch(name)), where, "it is no Kubernetes label")
        check.demand(
            not name.startswith(RESERVED), where, "labels of that name are not yours"
        )
        check.demand(
            bool(LABEL_VALUE.fullmatch(value)),
            where,
            "its value is none of a Kubernetes label (63 of A-Z a-z 0-9 . _ -)",
        )


def _check_options(spec: SandboxSpec, *, check: _Check) -> None:
    known = ", ".join(sorted(OPTIONS))
    for name, value in spec.provider_options.items():
        field = f"provider_options.{name}"
        check.demand(name in OPTIONS, field, f"unknown; known are {known}")
        if name in {"warmpool", "namespace"}:
            good = isinstance(value, str) and bool(NAME.fullmatch(value))
            check.demand(good, field, "the name of a Kubernetes object is needed")
        elif name == "volume_claim_templates":
            good = isinstance(value, list | tuple) and all(
                isinstance(each, Mapping) for each in cast("list[object]", value)
            )
            check.demand(good, field, "a list of volume claim templates is needed")
        else:
            good = isinstance(value, Mapping) and all(
                isinstance(key, str) and isinstance(text, str)
                for key, text in cast("Mapping[object, object]", value).items()
            )
            check.demand(good, field, "a table of texts is needed")
            if name == "pod_labels":
                labels = cast("Mapping[str, str]", value)
                _check_labels(labels, field=field, check=check)


def to_route(spec: SandboxSpec, *, pools: Pools) -> Route:
    """Return where the claim of a spec goes.

    Raises:
        SpecRefused: No pool serves it, or the namespace is none of the provider's.
    """
    check = _Check(pools.provider)
    options = spec.provider_options
    namespace = str(options.get("namespace", pools.namespace))
    check.demand(
        namespace in pools.all_namespaces,
        "provider_options.namespace",
        f"claims are looked for in {', '.join(pools.all_namespaces)} alone;"
        " name it among the provider's namespaces",
    )
    named = options.get("warmpool")
    by_image = pools.image_warmpools.get(spec.image or "")
    pool = str(named) if named else by_image or pools.warmpool
    check.demand(
        pool is not None,
        "image" if spec.image else "provider_options.warmpool",
        "no warm pool serves it; set warmpool, or image_warmpools for the image",
    )
    return Route(
        namespace=namespace,
        pool=str(pool),
        is_by_image=not named and by_image is not None,
    )


def claim_name(claim: ClaimId) -> str:
    """Return the name of the SandboxClaim of a claim."""
    return to_name(NAME_PREFIX, claim)


def spec_digest(spec: SandboxSpec, route: Route) -> str:
    """Return a digest that equal specs share; the order of keys does not count."""
    words = {"spec": attrs.asdict(spec), "pool": route.pool}
    text = json.dumps(words, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def owner_selector(owner: OwnerId) -> str:
    """Return the label selector of an owner's claims."""
    return f"{OWNER}={to_label_value(owner)}"


def label_of(facts: ClaimFacts) -> ClaimLabel | None:
    """Return whose a claim is; None when it is not one of ours."""
    told = facts.annotations
    if CLAIM not in told or OWNER not in told:
        return None
    return ClaimLabel(claim=ClaimId(told[CLAIM]), owner=OwnerId(told[OWNER]))


def ports_of(facts: ClaimFacts) -> frozenset[int]:
    """Return the ports that were asked for."""
    return frozenset(int(port) for port in facts.annotations.get(PORTS, "").split())


def to_time(seconds: float) -> str:
    """Return Unix seconds as RFC 3339, the second that is not over yet."""
    whole = datetime.fromtimestamp(math.ceil(seconds), UTC)
    return whole.isoformat().replace("+00:00", "Z")


def to_manifest(
    label: ClaimLabel,
    spec: SandboxSpec,
    route: Route,
    *,
    now: float,
    shutdown_at: float,
    managed_by: str,
) -> Words:
    """Return the whole claim, its end included: nothing is added to it later."""
    options = spec.provider_options
    # Of a pod's labels, those in domains of the system are the controller's alone.
    ours = {
        CLAIM: to_label_value(label.claim),
        OWNER: to_label_value(label.owner),
    }
    annotations = {
        CLAIM: label.claim,
        OWNER: label.owner,
        EXPIRES: to_time(shutdown_at),
        DIGEST: spec_digest(spec, route),
        WORKDIR: spec.workdir,
        REQUESTED_AT: datetime.fromtimestamp(now, UTC).isoformat(),
    }
    if spec.env:
        annotations[VARIABLES] = str(len(spec.env))
    if spec.ports:
        annotations[PORTS] = " ".join(map(str, spec.ports))
    body: dict[str, object] = {
        "warmPoolRef": {"name": route.pool},
        "lifecycle": {
            "shutdownTime": to_time(shutdown_at),
            "shutdownPolicy": SHUTDOWN_POLICY,
        },
        "additionalPodMetadata": {
            "labels": {**_texts(options.get("pod_labels")), **ours},
            "annotations": _texts(options.get("pod_annotations")),
        },
    }
    if templates := options.get("volume_claim_templates"):
        body["volumeClaimTemplates"] = list(cast("list[object]", templates))
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": claim_name(label.claim),
            "namespace": route.namespace,
            "labels": {**spec.metadata, **ours, MANAGED_BY: managed_by},
            "annotations": annotations,
        },
        "spec": body,
    }


def _texts(found: object) -> dict[str, str]:
    return dict(cast("Mapping[str, str]", found)) if isinstance(found, Mapping) else {}


def _is_plain_path(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and ".." not in path.split("/")
