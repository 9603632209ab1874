# SPDX-License-Identifier: Apache-2.0
"""One list-and-watch of a namespace, for every claim that is followed there.

Whoever waits for a claim follows it by its name, from before it is made: no event
can be missed between the two. What is heard of one that nobody follows is dropped.
A watch that ends, is cut, is silent or too old goes on from the last version seen,
or from a new list; a claim that a list does not hold is asked for by itself before
it is called gone. When nobody follows anything, nothing is watched.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import cast

import anyio
import anyio.from_thread
import anyio.to_thread
import attrs
import urllib3

from .claim_facts import ClaimFacts, Words, objects, part, text, to_claim
from .cluster import CLAIM, Cluster
from .cluster_faults import ClusterRefused, ClusterSilent

WATCH_SECONDS = 50
"""How long the API server keeps a watch open; one that stays silent for a few
seconds longer is dead."""
PAUSE_SECONDS_FIRST = 0.05
PAUSE_SECONDS_MAX = 5.0
LASTING_SECONDS = 2.0
"""A watch that was open for so long was none of a tight loop."""
EARLY_MAX = 16
CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 8 * 1024 * 1024
EXPIRED = 410
HOPELESS = frozenset({401, 403, 404})
STARTING_SECONDS = 5.0
"""How long such answers may come in a row before those who wait are told."""

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Followed:
    """One claim, as far as it is known."""

    name: str
    uid: str | None = None
    facts: ClaimFacts | None = None
    is_gone: bool = False
    trouble: ClusterRefused | None = None
    """Why nothing can be known of it at the moment, and trying again is no use."""
    missed_by: str | None = None
    """The version of a list that did not hold it, while nobody knew its UID."""
    _early: list[tuple[ClaimFacts, bool]] = attrs.field(
        factory=list[tuple[ClaimFacts, bool]], init=False
    )
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def is_made(self, facts: ClaimFacts) -> None:
        """Tell which claim it is that has the name; what came before it counts now."""
        self.uid = facts.uid
        self.take(facts, is_gone=False)
        early, self._early = self._early, []
        for seen, is_gone in early:
            self.take(seen, is_gone=is_gone)

    def take(self, facts: ClaimFacts, *, is_gone: bool) -> None:
        """Take what was heard, unless it is older than what is known."""
        if self.uid is None:
            self._early = [*self._early[1 - EARLY_MAX :], (facts, is_gone)]
            return
        if facts.uid != self.uid or self.is_gone:
            return
        if self.facts is not None and _is_older(facts, self.facts) and not is_gone:
            return
        self.facts, self.is_gone = facts, is_gone
        self.wake()

    def lose(self) -> None:
        """Take that it was seen gone."""
        self.is_gone = True
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again."""
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, is_so: Callable[["Followed"], bool]) -> None:
        """Wait until `is_so`, which what is heard makes true.

        Raises:
            ClusterRefused: Nothing can be heard, for as long as nobody mends it.
        """
        while not is_so(self):
            if self.trouble is not None:
                raise self.trouble
            await self._changed.wait()


class ClaimWatch:
    """The followed claims of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, *, selector: str) -> None:
        """Watch the claims that have the labels of `selector`."""
        self._cluster = cluster
        self._namespace = namespace
        self._selector = selector
        self._followed: dict[str, list[Followed]] = {}
        self._wanted = anyio.Event()
        self._version: str | None = None
        self._must_list = True
        self._watching: anyio.CancelScope | None = None
        self._refused_since: float | None = None
        self.watches_opened = 0
        self.lists_done = 0

    @contextmanager
    def follow(
        self, name: str, *, facts: ClaimFacts | None = None
    ) -> Generator[Followed]:
        """Follow the claim of a name, or the one that is known by its facts already."""
        followed = Followed(name)
        if facts is not None:
            followed.is_made(facts)
        self._followed.setdefault(name, []).append(followed)
        self._wanted.set()
        try:
            yield followed
        finally:
            left = self._followed[name]
            left.remove(followed)
            if not left:
                del self._followed[name]
            if not self._followed and self._watching is not None:
                self._watching.cancel()

    def is_made(self, followed: Followed, facts: ClaimFacts) -> None:
        """Tell which claim it is that has the name of a followed one.

        A list of before may have come too late to hold it: made and deleted between
        two looks. Then no event will tell its end, and a new list has to.
        """
        followed.is_made(facts)
        if followed.missed_by is None or _is_newer(facts.version, followed.missed_by):
            return
        self._must_list = True
        if self._watching is not None:
            self._watching.cancel()

    async def run(self) -> None:
        """Watch for as long as anything is followed, whatever happens to a watch."""
        pause = PAUSE_SECONDS_FIRST
        while True:
            await self._until_wanted()
            age, begun = self._cluster.age, time.monotonic()
            try:
                if self._version is None or self._must_list:
                    self._must_list = False
                    self._version = None
                    self._version = await self._list()
                    self._tell_trouble(None)
                await self._watch()
                self._refused_since = None
            except ClusterRefused as refused:
                await self._answer_refusal(refused, age)
            except ClusterSilent as silent:
                self._refused_since = None
                _log.warning(
                    "%s: the watch of claims: %s", self._namespace, str(silent)
                )
            if time.monotonic() - begun >= LASTING_SECONDS:
                pause = PAUSE_SECONDS_FIRST
            if not self._followed:
                continue  # It was ended by us, and begins again when it is wanted.
            await anyio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _until_wanted(self) -> None:
        if not self._followed:
            self._wanted = anyio.Event()
            await self._wanted.wait()

    async def _answer_refusal(self, refused: ClusterRefused, age: int) -> None:
        if refused.status == EXPIRED:
            self._version = None
            return
        _log.warning("%s: the watch of claims: %s", self._namespace, str(refused))
        if refused.status == 401 and age == self._cluster.age:
            await self._cluster.renew(age)
        if refused.status not in HOPELESS:
            return
        # An API server that starts knows neither its kinds nor its users at once.
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if now - self._refused_since > STARTING_SECONDS:
            self._version = None
            self._tell_trouble(refused)

    def _tell_trouble(self, trouble: ClusterRefused | None) -> None:
        for followed in self._all():
            if followed.trouble is not trouble:
                followed.trouble = trouble
                followed.wake()

    def _all(self) -> list[Followed]:
        return [each for several in self._followed.values() for each in several]

    async def _list(self) -> str:
        """Take what is there now, and return the version from which to watch."""
        version, there = "", dict[str, str]()
        pages = self._cluster.pages(CLAIM, self._namespace, selector=self._selector)
        async for page in pages:
            version = text(part(page, "metadata"), "resourceVersion")
            for each in objects(page, "items"):
                name = text(part(each, "metadata"), "name")
                if name in self._followed:
                    facts = to_claim(each)
                    there[name] = facts.uid
                    self._take(facts, is_gone=False)
        self.lists_done += 1
        for followed in self._all():
            if followed.uid is None:
                followed.missed_by = version
            elif there.get(followed.name) != followed.uid and not followed.is_gone:
                await self._look_for(followed)
        return version

    async def _look_for(self, followed: Followed) -> None:
        """Ask for a claim that was not in a list: it may be newer than the list."""
        found = await self._cluster.get(CLAIM, self._namespace, followed.name)
        facts = None if found is None else to_claim(found)
        if facts is None or facts.uid != followed.uid:
            followed.lose()
        else:
            followed.take(facts, is_gone=False)

    def _take(self, facts: ClaimFacts, *, is_gone: bool) -> None:
        for followed in self._followed.get(facts.name, ()):
            followed.take(facts, is_gone=is_gone)

    async def _watch(self) -> None:
        """Watch from the version on until the watch ends.

        Raises:
            ClusterRefused, ClusterSilent: As they say.
        """
        assert self._version is not None
        reading = _Reading(
            cluster=self._cluster,
            namespace=self._namespace,
            selector=self._selector,
            version=self._version,
            tell=self._hear,
        )
        self.watches_opened += 1
        with anyio.CancelScope() as self._watching:
            try:
                await anyio.to_thread.run_sync(
                    reading.read,
                    abandon_on_cancel=True,
                    limiter=anyio.CapacityLimiter(1),
                )
            finally:
                self._watching = None
                reading.stop()

    def _hear(self, events: list[Words]) -> None:
        """Take what the watch told, on the event loop."""
        for event in events:
            found = part(event, "object")
            metadata = part(found, "metadata")
            self._version = text(metadata, "resourceVersion") or self._version
            kind = text(event, "type")
            if kind != "BOOKMARK" and text(metadata, "name") in self._followed:
                self._take(to_claim(found), is_gone=kind == "DELETED")


@attrs.define(kw_only=True, eq=False)
class _Reading:
    """One watch, read in a thread; it can be stopped from outside."""

    cluster: Cluster
    namespace: str
    selector: str
    version: str
    tell: Callable[[list[Words]], None]
    _response: urllib3.HTTPResponse | None = attrs.field(default=None, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def read(self) -> None:
        if self._is_stopped:
            return  # Before its thread began.
        response = self.cluster.watch(
            CLAIM,
            self.namespace,
            selector=self.selector,
            version=self.version,
            seconds=WATCH_SECONDS,
        )
        with self._turn:
            self._response = response
        try:
            if not self._is_stopped:
                self._read_lines(response)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as failure:
            if not self._is_stopped:
                raise ClusterSilent(f"it was cut: {type(failure).__name__}") from None
        finally:
            with self._turn:
                self._response = None
            response.close()

    def stop(self) -> None:
        with self._turn:
            self._is_stopped = True
            if self._response is not None:
                with suppress(OSError, RuntimeError, ValueError):
                    self._response.shutdown()

    def _read_lines(self, response: urllib3.HTTPResponse) -> None:
        # Bytes are decoded line by line: a character may be split between pieces.
        held = b""
        for chunk in response.stream(CHUNK_BYTES):
            *lines, held = (held + chunk).split(b"\n")
            if len(held) > LINE_BYTES_MAX:
                raise ClusterSilent("an event of it has no end")
            events = [_event(line) for line in lines if line.strip()]
            if self._is_stopped:
                return
            anyio.from_thread.run_sync(self.tell, [e for e in events if not _code(e)])
            for code in filter(None, map(_code, events)):
                raise ClusterRefused(code, "Watch", "the watch tells an error")


def _event(line: bytes) -> Words:
    words: object = json.loads(line)
    return cast("Words", words) if isinstance(words, dict) else {}


def _code(event: Words) -> int | None:
    """Return the status that an event of type ERROR tells."""
    if text(event, "type") != "ERROR":
        return None
    code = part(event, "object").get("code")
    return code if isinstance(code, int) else 500


def _is_older(facts: ClaimFacts, known: ClaimFacts) -> bool:
    """Whether a list that was asked for earlier told this later."""
    return _is_newer(known.version, facts.version)


def _is_newer(version: str, other: str) -> bool:
    """Whether a version is seen to be newer than another; both may be no numbers."""
    if not (version.isdigit() and other.isdigit()):
        return False
    return int(version) > int(other)
