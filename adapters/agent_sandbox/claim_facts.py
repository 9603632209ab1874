# SPDX-License-Identifier: Apache-2.0
"""What objects of the cluster tell, read once.

A claim is bound when its condition `Ready` is true and it names its Sandbox; the
addresses of its pod count only together with that. Reasons that never recover are
known by name; every other one is waited for.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import cast

import attrs

Words = Mapping[str, object]

READY = "Ready"
TERMINAL = frozenset(
    {
        "ClaimExpired",
        "EnvVarsInjectionRejected",
        "InvalidConfiguration",
        "InvalidMetadata",
        "PodFailed",
        "PodSucceeded",
        "SandboxExpired",
        "TemplateNotFound",
        "VolumeClaimTemplatesError",
    }
)
"""Reasons of `Ready` that no waiting mends."""
TERMINAL_OF_ANY = frozenset({"WarmPoolNotFound"})
"""Reasons that are final under whatever type of condition they stand."""
QUOTA_WORDS = ("exceeded quota", "quota exceeded")


@attrs.frozen
class Condition:
    """One condition of a status."""

    type: str
    status: str
    reason: str
    message: str

    @property
    def told(self) -> str:
        """The condition's own words."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


@attrs.frozen(kw_only=True)
class ClaimFacts:
    """A SandboxClaim as the cluster last told it."""

    namespace: str
    name: str
    uid: str
    version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    is_ending: bool
    shutdown_at: float | None
    """Unix seconds."""
    sandbox_name: str | None
    pod_ips: tuple[str, ...]
    conditions: tuple[Condition, ...]

    @property
    def is_bound(self) -> bool:
        """Whether it has a sandbox whose pod is ready."""
        return self.is_ready and self.sandbox_name is not None

    @property
    def is_ready(self) -> bool:
        """Whether its condition says so."""
        ready = self.condition(READY)
        return ready is not None and ready.status == "True"

    @property
    def failure(self) -> Condition | None:
        """The condition that no waiting mends, if there is one."""
        for found in self.conditions:
            if found.status == "True":
                continue
            if found.reason in TERMINAL_OF_ANY:
                return found
            if found.type == READY and found.reason in TERMINAL:
                return found
        return None

    @property
    def quota(self) -> str | None:
        """The words of a quota that stands in the way, if one does."""
        for found in self.conditions:
            if found.status != "True" and tells_quota(found.message):
                return found.told
        return None

    @property
    def told(self) -> str:
        """What it says of its state, for people."""
        ready = self.condition(READY)
        return ready.told if ready is not None else "its controller has said nothing"

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type."""
        return next((each for each in self.conditions if each.type == kind), None)


@attrs.frozen(kw_only=True)
class SandboxFacts:
    """A Sandbox as the cluster told it."""

    name: str
    uid: str
    is_ending: bool
    images: tuple[str, ...]
    """Of its pod template, in order."""


def tells_quota(text: str) -> bool:
    """Whether a text of the cluster says that a quota is used up."""
    return any(word in text.lower() for word in QUOTA_WORDS)


def to_claim(words: Words) -> ClaimFacts:
    """Read a SandboxClaim."""
    metadata, status = part(words, "metadata"), part(words, "status")
    lifecycle = part(part(words, "spec"), "lifecycle")
    sandbox = part(status, "sandbox")
    return ClaimFacts(
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        version=text(metadata, "resourceVersion"),
        labels=texts(metadata, "labels"),
        annotations=texts(metadata, "annotations"),
        is_ending="deletionTimestamp" in metadata,
        shutdown_at=_time(text(lifecycle, "shutdownTime")),
        sandbox_name=text(sandbox, "name") or None,
        pod_ips=tuple(str(each) for each in items(sandbox, "podIPs") if each),
        conditions=tuple(
            Condition(*(text(each, key) for key in _CONDITION))
            for each in objects(status, "conditions")
        ),
    )


def to_sandbox(words: Words) -> SandboxFacts:
    """Read a Sandbox."""
    metadata = part(words, "metadata")
    return SandboxFacts(
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        is_ending="deletionTimestamp" in metadata,
        images=images_of(words),
    )


def images_of(words: Words) -> tuple[str, ...]:
    """Return the images of a pod template, which a Sandbox and a template have."""
    pod = part(part(part(words, "spec"), "podTemplate"), "spec")
    return tuple(text(each, "image") for each in objects(pod, "containers"))


def part(words: Words, key: str) -> Words:
    """Return an object inside another, empty when there is none."""
    found = words.get(key)
    return cast("Words", found) if isinstance(found, Mapping) else {}


def text(words: Words, key: str) -> str:
    """Return a text inside an object, empty when there is none."""
    found = words.get(key)
    return found if isinstance(found, str) else ""


def texts(words: Words, key: str) -> dict[str, str]:
    """Return an object of texts."""
    return {name: str(value) for name, value in part(words, key).items()}


def items(words: Words, key: str) -> list[object]:
    """Return a list inside an object, empty when there is none."""
    found = words.get(key)
    return cast("list[object]", found) if isinstance(found, list) else []


def objects(words: Words, key: str) -> list[Words]:
    """Return the objects of a list inside an object."""
    found = items(words, key)
    return [cast("Words", each) for each in found if isinstance(each, Mapping)]


_CONDITION = ("type", "status", "reason", "message")


def _time(told: str) -> float | None:
    try:
        return datetime.fromisoformat(told).timestamp()
    except ValueError:
        return None
