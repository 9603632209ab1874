# SPDX-License-Identifier: Apache-2.0
"""From NeMo Gym's spec to ours: what is passed on, filled in, and refused.

Nothing that is asked for is dropped in silence: it is done, refused with a sentence,
or, where the provider's page says so, ignored with one warning for each cause.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

import attrs

from ...ports.required.sandbox_provider import Mount, Network, SandboxSpec
from .gym import GymSpec

log = logging.getLogger(__name__)

IMAGE_PREFIX: Final = "docker://"
VOLUMES: Final = "volumes"
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SpecMistake(ValueError):
    """The spec, or an argument of a call, is not one that can be honoured."""


@attrs.frozen(kw_only=True)
class SpecDefaults:
    """What a spec that leaves something out gets."""

    image: str | None = None
    workdir: str = "/workspace"
    ttl_s: float = 86400.0
    """A sandbox of ours always ends by itself; NeMo Gym's own need not."""
    ready_timeout_s: float = 180.0
    network: Network = Network.DEFAULT
    processes_max: int | None = None
    metadata: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Laid over the spec's own."""
    ignores_hardware: bool = False
    """Whether disk and GPUs, which no provider here limits, are ignored, not refused."""
    takes_volumes: bool = False
    """Whether `provider_options.volumes` are folders of this host."""


class SpecReader:
    """Reads the specs of one provider."""

    def __init__(self, defaults: SpecDefaults) -> None:
        """Fill in from `defaults`."""
        self._defaults = defaults
        self._warned: set[str] = set()

    def read(self, asked: GymSpec) -> SandboxSpec:
        """Return the spec in our words.

        Raises:
            SpecMistake: With the first thing that cannot be honoured.
        """
        defaults = self._defaults
        ttl = self._positive("ttl_s", asked.ttl_s, defaults.ttl_s)
        ready = self._positive(
            "ready_timeout_s", asked.ready_timeout_s, defaults.ready_timeout_s
        )
        self._check_hardware(asked)
        # NeMo Gym looks at no type of these: a configuration's words come as they are.
        if isinstance(asked.entrypoint, str):
            raise SpecMistake(
                f"entrypoint is the text {asked.entrypoint!r}, and must be a list of"
                " words"
            )
        options = dict(asked.provider_options or {})
        mounts: tuple[Mount, ...] = ()
        if defaults.takes_volumes:
            mounts = to_mounts(options.pop(VOLUMES, None))
        image = asked.image if asked.image is not None else defaults.image
        return SandboxSpec(
            image=None if image is None else image.removeprefix(IMAGE_PREFIX),
            workdir=asked.workdir or defaults.workdir,
            env=to_env(asked.env),
            cpus=asked.resources.cpu,
            memory_mib=asked.resources.memory_mib,
            processes_max=defaults.processes_max,
            network=defaults.network,
            mounts=mounts,
            ports=tuple(getattr(asked, "ports", ())),  # From 0.6.0 on.
            metadata={
                **{str(k): str(value) for k, value in (asked.metadata or {}).items()},
                **defaults.metadata,
            },
            entrypoint=tuple(asked.entrypoint) if asked.entrypoint else None,
            lifetime_seconds=ttl,
            create_timeout_seconds=ready,
            ready_timeout_seconds=ready,
            provider_options=options,
        )

    def _positive(self, name: str, asked: float | None, default: float) -> float:
        try:
            found = default if asked is None else float(asked)
        except (TypeError, ValueError) as error:
            raise SpecMistake(f"{name} is {asked!r}, and must be a number") from error
        if not found > 0:
            raise SpecMistake(f"{name} is {found:g}, and must be above 0")
        return found

    def _check_hardware(self, asked: GymSpec) -> None:
        for kind in ("disk_gib", "gpu", "gpu_type"):
            if not getattr(asked.resources, kind):
                continue
            if not self._defaults.ignores_hardware:
                raise SpecMistake(
                    f"resources.{kind} is asked for, and cannot be given here;"
                    " leave it out"
                )
            if kind not in self._warned:
                self._warned.add(kind)
                log.warning("resources.%s is ignored: the pool decides on it", kind)


def to_env(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return variables whose names a shell can have.

    Raises:
        SpecMistake: A name is none.
    """
    found = {str(name): str(value) for name, value in (given or {}).items()}
    for name in found:
        if not ENV_NAME.fullmatch(name):
            raise SpecMistake(f"{name!r} is no name of an environment variable")
    return found


def to_mounts(given: object) -> tuple[Mount, ...]:
    """Return the mounts of `source:target` or `source:target:ro`, one or a list.

    Raises:
        SpecMistake: One is something else.
    """
    texts: list[object] = []
    if isinstance(given, list | tuple):
        texts = [*given]  # pyright: ignore[reportUnknownVariableType]
    elif given is not None:
        texts = [given]
    return tuple(_mount(text) for text in texts)


def _mount(text: object) -> Mount:
    parts = text.split(":") if isinstance(text, str) else []
    match parts:
        case [source, target, "ro"] if source and target:
            return Mount(source=source, target=target, read_only=True)
        case [source, target] | [source, target, "rw"] if source and target:
            return Mount(source=source, target=target, read_only=False)
        case _:
            raise SpecMistake(
                f"provider_options.{VOLUMES} has {text!r}, and wants"
                " SOURCE:TARGET or SOURCE:TARGET:ro"
            )
