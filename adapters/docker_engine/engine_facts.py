# SPDX-License-Identifier: Apache-2.0
"""What the engine says of images and containers, as values of ours.

The engine leaves out or nulls what is empty, and versions differ in what they
say; only what is used is read, and what is missing reads as empty.
"""

from collections.abc import Mapping
from typing import cast

import attrs

NANOSECONDS = 1_000_000_000
HEALTH_INTERVAL_SECONDS = 30.0
HEALTH_TIMEOUT_SECONDS = 30.0
HEALTH_RETRIES = 3
"""What the engine takes for what a health check leaves out."""


@attrs.frozen(kw_only=True)
class HealthCheck:
    """An image's own check, in seconds."""

    interval_seconds: float
    timeout_seconds: float
    start_period_seconds: float
    retries: int

    @property
    def budget_seconds(self) -> float:
        """How long the engine may take to its first word on the health."""
        return (
            self.start_period_seconds
            + (self.interval_seconds + self.timeout_seconds) * self.retries
        )


@attrs.frozen(kw_only=True)
class ImageFacts:
    """What an image brings along."""

    user: str = ""
    health: HealthCheck | None = None


@attrs.frozen(kw_only=True)
class ContainerFacts:
    """A container as `inspect` tells it."""

    container_id: str
    name: str
    labels: Mapping[str, str]
    state: str
    """created, running, paused, restarting, removing, exited or dead."""
    exit_code: int
    out_of_memory: bool
    error: str
    user: str
    health: str
    """starting, healthy, unhealthy, or empty without a check."""
    ports: Mapping[int, tuple[str, int]]
    """Published TCP ports: where each is on the engine's host."""

    @property
    def is_live(self) -> bool:
        """Whether its processes are there, frozen or not."""
        return self.state in {"running", "paused"}

    @property
    def end_reason(self) -> str:
        """Say how it ended, for a container that has."""
        if self.state == "removing":
            return "it is being removed"
        told = f"its container is {self.state}, with status {self.exit_code}"
        if self.out_of_memory:
            told += ", after it ran out of memory"
        elif self.state == "exited" and self.exit_code == 0:
            told += ", as at the end of its lifetime"
        return f"{told}: {self.error}" if self.error else told


@attrs.frozen(kw_only=True)
class ListedContainer:
    """A container as the list tells it."""

    name: str
    labels: Mapping[str, str]
    state: str


def to_image(raw: object) -> ImageFacts:
    """Read the answer of an image's inspect."""
    return ImageFacts(
        user=_text(raw, "Config", "User"),
        health=to_health_check(_at(raw, "Config", "Healthcheck")),
    )


def to_health_check(raw: object) -> HealthCheck | None:
    """Read a health check; the engine counts in nanoseconds, 0 is its default."""
    test = _at(raw, "Test")
    if not isinstance(test, list) or not test or test == ["NONE"]:
        return None
    return HealthCheck(
        interval_seconds=_seconds(raw, "Interval") or HEALTH_INTERVAL_SECONDS,
        timeout_seconds=_seconds(raw, "Timeout") or HEALTH_TIMEOUT_SECONDS,
        start_period_seconds=_seconds(raw, "StartPeriod"),
        retries=_number(raw, "Retries") or HEALTH_RETRIES,
    )


def to_container(raw: object) -> ContainerFacts:
    """Read the answer of a container's inspect."""
    return ContainerFacts(
        container_id=_text(raw, "Id"),
        name=_text(raw, "Name").lstrip("/"),
        labels=_labels(_at(raw, "Config", "Labels")),
        state=_text(raw, "State", "Status"),
        exit_code=_number(raw, "State", "ExitCode"),
        out_of_memory=_at(raw, "State", "OOMKilled") is True,
        error=_text(raw, "State", "Error"),
        user=_text(raw, "Config", "User"),
        health=_text(raw, "State", "Health", "Status"),
        ports=_ports(_at(raw, "NetworkSettings", "Ports")),
    )


def to_listed(raw: object) -> tuple[ListedContainer, ...]:
    """Read the answer of a list of containers."""
    return tuple(
        ListedContainer(
            name=_first_text(_at(entry, "Names")).lstrip("/"),
            labels=_labels(_at(entry, "Labels")),
            state=_text(entry, "State"),
        )
        for entry in _items(raw)
    )


def to_id(raw: object) -> str:
    """Read the id that the engine gave to what it made."""
    return _text(raw, "Id")


def to_exit_code(raw: object) -> int | None:
    """Read how an exec ended; None while that is not known."""
    code = _at(raw, "ExitCode")
    return code if isinstance(code, int) and _at(raw, "Running") is False else None


def _ports(raw: object) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    if not isinstance(raw, Mapping):
        return found
    for name in cast("Mapping[str, object]", raw):  # JSON has text for keys.
        number, _, protocol = name.partition("/")
        # A container that was lent may publish the same number over UDP too.
        if protocol != "tcp" or not number.isdigit():
            continue
        places = [
            (_text(bound, "HostIp"), int(_text(bound, "HostPort")))
            for bound in _items(_at(cast("object", raw), name))
            if _text(bound, "HostPort").isdigit()
        ]
        # One of IPv4 first: of the other family, the port may be another one.
        places.sort(key=lambda place: ":" in place[0])
        if places:
            found[int(number)] = places[0]
    return found


def _at(raw: object, *keys: str) -> object:
    for key in keys:
        if not isinstance(raw, Mapping):
            return None
        raw = cast("Mapping[str, object]", raw).get(key)  # JSON has text for keys.
    return raw


def _text(raw: object, *keys: str) -> str:
    found = _at(raw, *keys)
    return found if isinstance(found, str) else ""


def _number(raw: object, *keys: str) -> int:
    found = _at(raw, *keys)
    return found if isinstance(found, int) else 0


def _seconds(raw: object, *keys: str) -> float:
    return _number(raw, *keys) / NANOSECONDS


def _items(raw: object) -> list[object]:
    return cast("list[object]", raw) if isinstance(raw, list) else []


def _first_text(raw: object) -> str:
    first = _items(raw)[:1]
    return str(first[0]) if first else ""


def _labels(raw: object) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        return {}
    labels = cast("Mapping[str, object]", raw)  # JSON has text for keys.
    return {name: str(value) for name, value in labels.items()}
