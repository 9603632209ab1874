# SPDX-License-Identifier: Apache-2.0
"""What binds a claim to a sandbox: the objects, and the reasons why not."""

import copy
import datetime
from typing import Any, NamedTuple

import attrs

from .pods import Pod

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
CORE = "agents.x-k8s.io/v1beta1"
RESTRICTED = ("kubernetes.io", "k8s.io")
LABEL_MAX = 63

Key = tuple[str, str]
"""Namespace and name."""


class Kind(NamedTuple):
    """A kind of object."""

    version: str
    plural: str


CLAIMS = Kind(EXTENSIONS, "sandboxclaims")
POOLS = Kind(EXTENSIONS, "sandboxwarmpools")
TEMPLATES = Kind(EXTENSIONS, "sandboxtemplates")
SANDBOXES = Kind(CORE, "sandboxes")
GATEWAYS = Kind("gateway.networking.k8s.io/v1", "gateways")


class Refused(NamedTuple):
    """Why a claim is not ready."""

    reason: str
    message: str


@attrs.define(kw_only=True, eq=False)
class Bound:
    """A sandbox with its pod, and the claim that it is bound to."""

    namespace: str
    name: str
    sandbox_uid: str
    pod: Pod
    claim: Key | None = None
    uid: str = ""
    """The claim's."""
    metadata: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """What the claim wants on the pod."""
    is_told: bool = False
    """Whether the claim says Ready."""
    is_dead: bool = False


def key_of(found: dict[str, Any]) -> Key:
    """Return an object's namespace and name."""
    return found["metadata"]["namespace"], found["metadata"]["name"]


def condition(status: str, reason: str, message: str) -> dict[str, Any]:
    """Return a Ready condition."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def needs_cold_start(claim: dict[str, Any]) -> bool:
    """Return whether no pool member can serve a claim."""
    return bool(claim["spec"].get("env") or claim["spec"].get("volumeClaimTemplates"))


def refusal_of(
    claim: dict[str, Any],
    pool: dict[str, Any] | None,
    template: dict[str, Any] | None,
) -> Refused | None:
    """Return why a claim can have no sandbox, in the real controller's words."""
    spec = claim["spec"]
    if pool is None:
        name = spec["warmPoolRef"]["name"]
        return Refused("WarmPoolNotFound", f'SandboxWarmPool "{name}" not found')
    if template is None:
        name = pool["spec"]["sandboxTemplateRef"]["name"]
        return Refused("TemplateNotFound", f'SandboxTemplate "{name}" not found')
    allows = template["spec"]
    if spec.get("env") and allows["envVarsInjectionPolicy"] == "Disallowed":
        return Refused(
            "EnvVarsInjectionRejected",
            "environment variable injection is not allowed by the template",
        )
    if (
        spec.get("volumeClaimTemplates")
        and allows["volumeClaimTemplatesPolicy"] == "Disallowed"
    ):
        return Refused(
            "VolumeClaimTemplatesError",
            "volume claim templates are not allowed by the template",
        )
    return _metadata_refusal(spec.get("additionalPodMetadata", {}))


def _metadata_refusal(metadata: dict[str, Any]) -> Refused | None:
    for key, value in metadata.get("labels", {}).items():
        if len(value) > LABEL_MAX:
            return Refused(
                "InvalidMetadata", f"label {key}: must be no more than 63 characters"
            )
    for key in (*metadata.get("labels", {}), *metadata.get("annotations", {})):
        domain = key.partition("/")[0] if "/" in key else ""
        if domain.endswith(RESTRICTED):
            return Refused("InvalidMetadata", f"{key}: domain is restricted")
    return None


def pod_template(
    template: dict[str, Any], claim: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the pod template of a sandbox, with what a claim adds on a cold start."""
    made = copy.deepcopy(template["spec"]["podTemplate"])
    added = claim["spec"].get("env", []) if claim else []
    if added:
        container = made["spec"]["containers"][0]
        container["env"] = [
            *container.get("env", []),
            *({"name": one["name"], "value": one["value"]} for one in added),
        ]
    return made


def sandbox_object(name: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return the Sandbox of a pod."""
    return {
        "apiVersion": CORE,
        "kind": "Sandbox",
        "metadata": {"name": name},
        "spec": {"podTemplate": template},
    }
