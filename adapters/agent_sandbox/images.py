# SPDX-License-Identifier: Apache-2.0
"""Whether a bound sandbox runs what its pool is meant to run now.

A pool's template can change while members of the old one still wait in it. The
images of the Sandbox are held against those of the template that its pool names,
so that work never starts on what the template was before.
"""

import logging

import attrs

from .claim_facts import SandboxFacts, images_of, part, text
from .cluster import POOL, TEMPLATE, Cluster
from .cluster_faults import ClusterRefused
from .manifests import Route

_log = logging.getLogger(__name__)


@attrs.define
class Images:
    """Looks at pools and templates."""

    _cluster: Cluster
    _is_told: bool = attrs.field(default=False, init=False)

    async def mismatch(self, sandbox: SandboxFacts, route: Route) -> str | None:
        """Return in which way the sandbox is not what its pool says, if it is not.

        Raises:
            ClusterRefused, ClusterSilent: It cannot be known.
        """
        try:
            wanted = await self._of_template(route)
        except ClusterRefused as refused:
            if refused.status != 403:
                raise
            self._tell_unchecked(refused)
            return None
        if not wanted or not sandbox.images or wanted == sandbox.images:
            return None
        return (
            f"its Sandbox {sandbox.name} runs {', '.join(sandbox.images)}, and the"
            f" template of pool {route.pool} says {', '.join(wanted)} by now"
        )

    async def _of_template(self, route: Route) -> tuple[str, ...]:
        pool = await self._cluster.get(POOL, route.namespace, route.pool)
        if pool is None:
            return ()
        name = text(part(part(pool, "spec"), "sandboxTemplateRef"), "name")
        if not name:
            return ()
        template = await self._cluster.get(TEMPLATE, route.namespace, name)
        return () if template is None else images_of(template)

    def _tell_unchecked(self, refused: ClusterRefused) -> None:
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "Whether sandboxes run their pool's present image is not checked:"
                " reading pools and templates is not allowed (%s)",
                refused.text,
            )
