# SPDX-License-Identifier: Apache-2.0
"""Calls to the API server, through the `kubernetes` package.

The package blocks: every call runs in one of a limited number of threads, with a
time limit, and is waited for even when its caller gives up. What may be asked
again is asked again within `Patience`; an API server that names a time is given
it. Credentials are read anew when they are not taken any more.
"""

import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import cast

import anyio
import anyio.to_thread
import attrs
import urllib3
from kubernetes.client.exceptions import ApiException

from ...ports.required.sandbox_provider import SpecRefused
from ..http_client import Patience
from .claim_facts import Words, part, text
from .cluster_faults import ClusterPlace, ClusterRefused, ClusterSilent, to_refused
from .kubernetes_package import (
    CONNECTIONS_MAX,
    ClusterAddress,
    ConfigurationUnusable,
    Connected,
    CustomObjects,
    connected,
    told,
)

CONNECT_SECONDS = 5.0
CALL_SECONDS = 30.0
PAGE_ITEMS = 500
PAGES_MAX = 1000
BUSY = frozenset({429, 500, 502, 503, 504})
JITTER = 0.3

_log = logging.getLogger(__name__)

Call = Callable[[CustomObjects, tuple[float, float]], urllib3.HTTPResponse]


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of object: where the API server serves it."""

    group: str
    plural: str
    version: str = "v1beta1"

    @property
    def words(self) -> tuple[str, str]:
        """Group and version."""
        return self.group, self.version


CLAIM = Kind(group="extensions.agents.x-k8s.io", plural="sandboxclaims")
POOL = Kind(group="extensions.agents.x-k8s.io", plural="sandboxwarmpools")
TEMPLATE = Kind(group="extensions.agents.x-k8s.io", plural="sandboxtemplates")
SANDBOX = Kind(group="agents.x-k8s.io", plural="sandboxes")
GATEWAY = Kind(group="gateway.networking.k8s.io", plural="gateways", version="v1")


class Cluster:
    """One API server."""

    def __init__(
        self, address: ClusterAddress, *, provider: str, patience: Patience
    ) -> None:
        """Read the configuration; nothing is asked yet.

        Raises:
            SpecRefused: There is no configuration that can be used.
        """
        self._address = address
        self._provider = provider
        self._patience = patience
        self._limiter = anyio.CapacityLimiter(CONNECTIONS_MAX)
        self._reading = anyio.Lock()
        self._old: list[Connected] = []
        self._age: int = 0
        self._api = self._connected()

    @property
    def place(self) -> ClusterPlace:
        """Which cluster it is, for messages."""
        return ClusterPlace(provider=self._provider, address=self._api.host)

    @property
    def age(self) -> int:
        """How often credentials were read anew."""
        return self._age

    async def create(self, kind: Kind, namespace: str, body: Words) -> Words:
        """Make an object; asked once, for a second one would not be the first.

        Raises:
            ClusterRefused, ClusterSilent: As they say.
        """
        return await self._call(
            lambda api, seconds: api.create_namespaced_custom_object(
                *kind.words,
                namespace,
                kind.plural,
                dict(body),
                _preload_content=False,
                _request_timeout=seconds,
            ),
            repeatable=False,
        )

    async def get(self, kind: Kind, namespace: str, name: str) -> Words | None:
        """Return an object, None when there was seen to be none."""
        try:
            return await self._call(
                lambda api, seconds: api.get_namespaced_custom_object(
                    *kind.words,
                    namespace,
                    kind.plural,
                    name,
                    _preload_content=False,
                    _request_timeout=seconds,
                )
            )
        except ClusterRefused as refused:
            if _is_gone(refused):
                return None
            raise

    async def pages(
        self, kind: Kind, namespace: str, *, selector: str
    ) -> AsyncIterator[Words]:
        """Yield the pages of a list, each with `items` and `metadata`."""
        following = ""
        for _ in range(PAGES_MAX):
            page = await self._page(kind, namespace, selector, following)
            yield page
            following = text(part(page, "metadata"), "continue")
            if not following:
                return
        raise ClusterSilent(f"its list has more than {PAGES_MAX} pages")

    async def _page(
        self, kind: Kind, namespace: str, selector: str, following: str
    ) -> Words:
        rest = {"_continue": following} if following else {}
        return await self._call(
            lambda api, seconds: api.list_namespaced_custom_object(
                *kind.words,
                namespace,
                kind.plural,
                label_selector=selector,
                limit=PAGE_ITEMS,
                _preload_content=False,
                _request_timeout=seconds,
                **rest,
            )
        )

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Ask for the end of an object and of what it owns; gone is a success.

        Raises:
            ClusterRefused: 409 when another object has the name by now.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        try:
            await self._call(
                lambda api, seconds: api.delete_namespaced_custom_object(
                    *kind.words,
                    namespace,
                    kind.plural,
                    name,
                    body=body,
                    _preload_content=False,
                    _request_timeout=seconds,
                )
            )
        except ClusterRefused as refused:
            if not _is_gone(refused):
                raise

    async def patch(
        self, kind: Kind, namespace: str, name: str, changes: Words
    ) -> Words:
        """Lay changes over an object; a UID among them says which one is meant."""
        return await self._call(
            lambda api, seconds: api.patch_namespaced_custom_object(
                *kind.words,
                namespace,
                kind.plural,
                name,
                dict(changes),
                _content_type="application/merge-patch+json",
                _preload_content=False,
                _request_timeout=seconds,
            )
        )

    def watch(
        self, kind: Kind, namespace: str, *, selector: str, version: str, seconds: int
    ) -> urllib3.HTTPResponse:
        """Open a watch; called in a thread of the caller's, which reads it.

        Raises:
            ClusterRefused, ClusterSilent: As they say.
        """
        try:
            return self._api.objects.list_namespaced_custom_object(
                *kind.words,
                namespace,
                kind.plural,
                label_selector=selector,
                watch=True,
                allow_watch_bookmarks=True,
                resource_version=version,
                timeout_seconds=seconds,
                _preload_content=False,
                _request_timeout=(CONNECT_SECONDS, seconds + CONNECT_SECONDS),
            )
        except ApiException as failure:
            raise to_refused(failure) from failure
        except (urllib3.exceptions.HTTPError, OSError) as failure:
            raise ClusterSilent(told(failure)) from failure

    async def renew(self, seen: int) -> None:
        """Read the credentials anew, unless another did since `seen`.

        What cannot be read, while somebody writes it, say, is left as it was: whoever
        is refused the next time reads it again.
        """
        async with self._reading:
            if seen != self._age:
                return
            try:
                fresh = await anyio.to_thread.run_sync(
                    self._connected, limiter=self._limiter
                )
            except SpecRefused as unusable:
                _log.warning("Credentials could not be read anew: %s", unusable)
                return
            # Calls under way still use the one before.
            self._old.append(self._api)
            self._api = fresh
            self._age += 1
            while len(self._old) > 1:
                self._old.pop(0).close()

    async def aclose(self) -> None:
        """Close the connections; a watch that nobody hears any more ends at once."""
        for api in (*self._old, self._api):
            api.cut()

    async def _call(self, call: Call, *, repeatable: bool = True) -> Words:
        until = anyio.current_time() + self._patience.seconds_max
        renewed = False
        for attempt in range(1, self._patience.attempts_max + 1):
            age = self._age
            try:
                return await anyio.to_thread.run_sync(
                    self._answer, call, limiter=self._limiter
                )
            except ClusterRefused as refused:
                failure: ClusterRefused | ClusterSilent = refused
                if refused.status == 401 and not renewed:
                    renewed = True
                    await self.renew(age)
                    continue
            except ClusterSilent as silent:
                failure = silent
            pause = self._pause(failure, attempt, repeatable=repeatable)
            if pause is None or anyio.current_time() + pause > until:
                raise failure
            await anyio.sleep(pause)
        raise ClusterRefused(401, "Unauthorized", "its credentials are not taken")

    def _pause(
        self,
        failure: ClusterRefused | ClusterSilent,
        attempt: int,
        *,
        repeatable: bool,
    ) -> float | None:
        """Return how long to wait before asking again; None when that is no use."""
        if attempt == self._patience.attempts_max:
            return None
        asked = None
        if isinstance(failure, ClusterRefused):
            # What is refused for the load was not done, whatever it was.
            if failure.status != 429 and not (repeatable and _may_pass(failure)):
                return None
            asked = failure.retry_after_seconds
        elif not repeatable:
            return None
        pause = self._patience.pause(attempt) if asked is None else asked
        return pause * (1 + JITTER * random.random())

    def _answer(self, call: Call) -> Words:
        """Ask and read the answer; in a thread."""
        try:
            answer = call(self._api.objects, (CONNECT_SECONDS, CALL_SECONDS))
            try:
                words: object = json.loads(answer.data)
            finally:
                answer.release_conn()
        except ApiException as failure:
            raise to_refused(failure) from failure
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as failure:
            raise ClusterSilent(told(failure)) from failure
        return cast("Words", words) if isinstance(words, Mapping) else {}

    def _connected(self) -> Connected:
        try:
            return connected(self._address)
        except ConfigurationUnusable as unusable:
            raise SpecRefused(
                provider=self._provider,
                field="in_cluster" if self._address.in_cluster else "kubeconfig",
                reason=f"{unusable.reason.rstrip('.')}; name a file with a cluster in"
                " kubeconfig, or set in_cluster where Livery runs in a pod",
            ) from unusable


def _is_gone(refused: ClusterRefused) -> bool:
    """Whether there is no such object; where nobody serves the kind, none was seen."""
    return refused.status == 404 and refused.reason == "NotFound"


def _may_pass(refused: ClusterRefused) -> bool:
    """Whether asking again can help: an API server that starts knows no kinds yet."""
    is_unserved = refused.status == 404 and not _is_gone(refused)
    return refused.status in BUSY or is_unserved
