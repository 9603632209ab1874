# SPDX-License-Identifier: Apache-2.0
"""What a user is warned of, once for each cause."""

import logging

import attrs

from ...ports.required.sandbox_provider import SandboxSpec
from .manifests import Route

_log = logging.getLogger(__name__)


@attrs.define
class Warnings:
    """Tells, and remembers what it told."""

    _provider: str
    _told: set[str] = attrs.field(factory=set[str], init=False)

    def of_what_is_ignored(self, spec: SandboxSpec, route: Route) -> None:
        """Warn of what the pool's template decides, whatever a spec asks."""
        asked = {
            "cpus": spec.cpus,
            "memory_mib": spec.memory_mib,
            "processes_max": spec.processes_max,
            "user": spec.user,
        }
        for field, value in asked.items():
            if value is not None:
                told = "%s: %s is the pool's template's to say; it is ignored here"
                self._warn(field, told, field)
        if spec.image is not None and not route.is_by_image:
            told = "%s: image %s has no pool of its own; pool %s is used"
            self._warn(f"image {spec.image}", told, spec.image, route.pool)

    def of_a_token(self, pool: str) -> None:
        """Warn that what runs in a pool's pods could speak to the cluster."""
        told = (
            "%s: pods of pool %s hold a token of the cluster's API server;"
            " set automountServiceAccountToken: false in its template"
        )
        self._warn(f"token {pool}", told, pool)

    def _warn(self, cause: str, told: str, *values: object) -> None:
        if cause not in self._told:
            self._told.add(cause)
            _log.warning(told, self._provider, *values)
