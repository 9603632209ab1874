# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the API server and the pools' controller, in this process.

It keeps objects with versions and UIDs, tells watches, and binds claims to pods
that are processes of this host. Any next answer can be another one: `will`.
"""

import json
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import anyio.abc
import attrs

from ..model_gateway.upstream import LAST_CHUNK, Request, answer, chunk, upstream
from .fake_pods import FakePod, new_pod

NAMESPACE = "agents"
POOL = "pool"
IMAGE = "runs:1"
GROUP = "extensions.agents.x-k8s.io/v1beta1"

Words = dict[str, object]
Stream = anyio.abc.SocketStream
Script = Callable[[Stream], Awaitable[bool]]
"""Says something else; False when the request is to be answered after all."""


def says(status: int, reason: str, message: str, *headers: str) -> Script:
    """Answer with an error, as a cluster words it."""
    words = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": status,
    }

    async def script(stream: Stream) -> bool:
        await stream.send(answer(status, json.dumps(words).encode(), *headers))
        return True

    return script


async def cuts(stream: Stream) -> bool:
    """Close the connection instead of an answer."""
    await stream.aclose()
    return True


class Silent:
    """Answers nothing until whoever asks is gone."""

    def __init__(self) -> None:
        self.now = 0

    async def __call__(self, stream: Stream) -> bool:
        self.now += 1
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()
        self.now -= 1
        return True


def in_watch(*events: object) -> Script:
    """Open a watch, tell these events, and end it."""

    async def script(stream: Stream) -> bool:
        await stream.send(_CHUNKED)
        for event in events:
            await stream.send(chunk(json.dumps(event).encode() + b"\n"))
        await stream.send(LAST_CHUNK)
        return True

    return script


EXPIRED = {
    "type": "ERROR",
    "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"},
}
_CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@attrs.define(eq=False)
class FakeCluster:
    """The objects, and who asks for them."""

    tasks: anyio.abc.TaskGroup
    folder: Path
    token: str = "first"
    binds: bool = True
    image: str = IMAGE
    address: str = ""
    asked: list[str] = attrs.field(factory=list[str])
    connections: Callable[[], int] = lambda: 0
    """How many are open."""
    watches_now: int = 0
    watches_most: int = 0
    pods: dict[str, FakePod] = attrs.field(factory=dict[str, FakePod])
    """By the name of the Sandbox."""
    lost_replies: list[str] = attrs.field(factory=list[str])
    """Verbs whose next request is done, and not answered."""
    log: list[tuple[int, str, Words]] = attrs.field(
        factory=list[tuple[int, str, Words]]
    )
    oldest: int = 0
    forbidden: set[str] = attrs.field(factory=set[str])
    """Kinds that may not be read."""
    hides: set[str] = attrs.field(factory=set[str])
    """Names that lists do not hold yet."""
    on_pod: Callable[[FakePod], None] | None = None
    """Looks at each new pod before its claim is bound."""
    holds_deletion: bool = False
    """Whether what is being deleted stays for now."""
    _objects: dict[tuple[str, str, str], Words] = attrs.field(
        factory=dict[tuple[str, str, str], Words], init=False
    )
    _version: int = 1000
    _scripts: dict[str, list[Script]] = attrs.field(
        factory=dict[str, list[Script]], init=False
    )
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _watches: set[anyio.CancelScope] = attrs.field(
        factory=set[anyio.CancelScope], init=False
    )

    def will(self, verb: str, *scripts: Script) -> None:
        """Have the next requests of a verb answered in another way."""
        self._scripts.setdefault(verb, []).extend(scripts)

    def kubeconfig(self, token: str | None = None) -> str:
        """Write the configuration of a user, and return its path."""
        path = self.folder / "kubeconfig"
        cluster = {"server": self.address}
        user = {"token": token or self.token}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": user}],
                    "contexts": [
                        {"name": "x", "context": {"cluster": "c", "user": "u"}}
                    ],
                    "current-context": "x",
                }
            )
        )
        return str(path)

    # Objects.

    def put(
        self, plural: str, name: str, words: Words, *, ns: str = NAMESPACE
    ) -> Words:
        """Make an object as it is."""
        metadata = dict(_part(words, "metadata"))
        metadata |= {"name": name, "namespace": ns, "uid": str(uuid.uuid4())}
        words = {**words, "metadata": metadata}
        self._keep(plural, words, "ADDED")
        return words

    def get(self, plural: str, name: str, *, ns: str = NAMESPACE) -> Words | None:
        return self._objects.get((plural, ns, name))

    def all(self, plural: str) -> list[Words]:
        return [each for (kind, _, _), each in self._objects.items() if kind == plural]

    def change(self, plural: str, name: str, **parts: object) -> None:
        """Change parts of an object that is there."""
        found = self.get(plural, name)
        if found is not None:
            self._keep(plural, {**found, **parts}, "MODIFIED")

    def drop(self, plural: str, name: str, *, ns: str = NAMESPACE) -> None:
        """Take an object away."""
        found = self._objects.pop((plural, ns, name), None)
        if found is not None:
            self._tell(plural, found, "DELETED")

    def _keep(self, plural: str, words: Words, kind: str) -> None:
        metadata = _part(words, "metadata")
        self._tell(plural, words, kind)
        key = (plural, str(metadata["namespace"]), str(metadata["name"]))
        self._objects[key] = words

    def _tell(self, plural: str, words: Words, kind: str) -> None:
        self._version += 1
        words["metadata"] = {
            **_part(words, "metadata"),
            "resourceVersion": str(self._version),
        }
        if plural == "sandboxclaims":
            self.log.append((self._version, kind, words))
        self._changed.set()
        self._changed = anyio.Event()

    def cut_watches(self) -> None:
        """Break off every watch that is open."""
        for scope in self._watches:
            scope.cancel()

    def compact(self) -> None:
        """Forget what happened until now."""
        self._version += 1
        self.oldest = self._version
        self.log.clear()

    # Requests.

    async def answer(self, request: Request, stream: Stream) -> None:
        method, target, _ = request.line.decode().split()
        split = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        verb = _verb(method, split.path, query)
        parts = [unquote(part) for part in split.path.strip("/").split("/")]
        self.asked.append(f"{verb} {parts[5] if len(parts) > 5 else target}")
        for key in (self.asked[-1], verb, "any"):
            if self._scripts.get(key) and await self._scripts[key].pop(0)(stream):
                return
        if request.header(b"authorization") != [f"Bearer {self.token}".encode()]:
            await says(401, "Unauthorized", "Unauthorized")(stream)
            return
        _, _, _, _, namespace, plural, *name = parts
        if verb == "watch":
            await self._watch(stream, namespace, query)
            return
        status, words = self._do(verb, namespace, plural, name, request, query)
        if verb in self.lost_replies:
            self.lost_replies.remove(verb)
            await stream.aclose()
            return
        await stream.send(answer(status, json.dumps(words).encode()))

    def _do(
        self,
        verb: str,
        namespace: str,
        plural: str,
        name: list[str],
        request: Request,
        query: dict[str, str],
    ) -> tuple[int, Words]:
        body = json.loads(request.body) if request.body else {}
        if verb == "create":
            wanted = str(body["metadata"]["name"])
            if self.get(plural, wanted, ns=namespace) is not None:
                return _status(409, "AlreadyExists", f"{wanted} already exists")
            made = self.put(plural, wanted, body, ns=namespace)
            self.tasks.start_soon(self._control, made)
            return 201, made
        if verb == "list":
            return 200, self._list(plural, namespace, query)
        if plural in self.forbidden:
            return _status(403, "Forbidden", f"{plural} is forbidden: cannot get")
        found = self.get(plural, name[0], ns=namespace)
        if found is None:
            return _status(404, "NotFound", f'{plural} "{name[0]}" not found')
        if verb == "get":
            return 200, found
        uid = str(_part(found, "metadata")["uid"])
        if verb == "delete":
            if body.get("preconditions", {}).get("uid", uid) != uid:
                return _status(409, "Conflict", "the UID in the precondition differs")
            self._delete(found)
            return 200, found
        assert verb == "patch"
        if body["metadata"]["uid"] != uid:
            return _status(409, "Conflict", "the UID in the precondition differs")
        spec = dict(_part(found, "spec"))
        spec["lifecycle"] = {**_part(spec, "lifecycle"), **body["spec"]["lifecycle"]}
        self.change(plural, name[0], spec=spec)
        return 200, self.get(plural, name[0], ns=namespace) or {}

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> Words:
        found = [
            each
            for each in self.all(plural)
            if _part(each, "metadata")["namespace"] == namespace
            and _part(each, "metadata")["name"] not in self.hides
            and _is_selected(each, query.get("labelSelector", ""))
        ]
        first, limit = int(query.get("continue", 0)), int(query.get("limit", 500))
        metadata = {"resourceVersion": str(self._version)}
        if first + limit < len(found):
            metadata["continue"] = str(first + limit)
        return {"items": found[first : first + limit], "metadata": metadata}

    async def _watch(self, stream: Stream, ns: str, query: dict[str, str]) -> None:
        version = int(query["resourceVersion"])
        if version < self.oldest:
            await says(410, "Expired", "too old resource version")(stream)
            return
        self.watches_now += 1
        self.watches_most = max(self.watches_most, self.watches_now)
        cut = anyio.CancelScope()
        try:
            await stream.send(_CHUNKED)
            with cut:
                self._watches.add(cut)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_until_closed, stream, cut)
                    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await self._tell_watch(stream, ns, version, query)
                    tasks.cancel_scope.cancel()
            await stream.aclose()
        finally:
            self._watches.discard(cut)
            self.watches_now -= 1

    async def _tell_watch(
        self, stream: Stream, ns: str, version: int, query: dict[str, str]
    ) -> None:
        until = time.monotonic() + float(query["timeoutSeconds"])
        selector = query.get("labelSelector", "")
        while time.monotonic() < until:
            changed, text = self._changed, b""
            for at, kind, words in self.log:
                if at <= version or _part(words, "metadata")["namespace"] != ns:
                    continue
                if _is_selected(words, selector):
                    event = {"type": kind, "object": words}
                    line = json.dumps(event, ensure_ascii=False)
                    text += line.encode() + b"\n"
                version = at
            if text:
                # In pieces that break where no line and no character ends.
                for begin in range(0, len(text), 1000):
                    await stream.send(chunk(text[begin : begin + 1000]))
            with anyio.move_on_after(until - time.monotonic()):
                await changed.wait()
        await stream.send(LAST_CHUNK)

    # The controller.

    async def _control(self, claim: Words) -> None:
        if not self.binds:
            return
        metadata, spec = _part(claim, "metadata"), _part(claim, "spec")
        name, ns = str(metadata["name"]), str(metadata["namespace"])
        pool = str(_part(spec, "warmPoolRef")["name"])
        if self.get("sandboxwarmpools", pool, ns=ns) is None:
            self.set_ready(name, "False", "WarmPoolNotFound", f"no pool {pool}")
            return
        uid = str(metadata["uid"])
        async with new_pod(uid) as pod:
            sandbox = f"{pool}-{uid[:6]}"
            self.pods[sandbox] = pod
            if self.on_pod is not None:
                self.on_pod(pod)
            try:
                await self._stand(claim, pod, sandbox)
            finally:
                pod.end()
                self.drop("sandboxes", sandbox, ns=ns)
                gone = self.get("sandboxclaims", name, ns=ns)
                if gone is not None and _part(gone, "metadata")["uid"] == uid:
                    self.drop("sandboxclaims", name, ns=ns)

    async def _stand(self, claim: Words, pod: FakePod, sandbox: str) -> None:
        metadata = _part(claim, "metadata")
        name, ns = str(metadata["name"]), str(metadata["namespace"])
        owner = {"kind": "SandboxClaim", "name": name, "uid": metadata["uid"]}
        template = {"spec": {"containers": [{"name": "c", "image": self.image}]}}
        self.put(
            "sandboxes",
            sandbox,
            {
                "metadata": {"ownerReferences": [owner]},
                "spec": {"podTemplate": template},
            },
            ns=ns,
        )
        self.set_ready(
            name, "True", "SandboxReady", "", sandbox=sandbox, ips=[pod.address]
        )
        while True:
            changed = self._changed
            now = self.get("sandboxclaims", name, ns=ns)
            if now is None:
                return
            ending = "deletionTimestamp" in _part(now, "metadata")
            if ending and not self.holds_deletion:
                return
            if _part(now, "metadata")["uid"] != metadata["uid"]:
                return
            told = str(_part(_part(now, "spec"), "lifecycle")["shutdownTime"])
            left = datetime.fromisoformat(told).timestamp() - time.time()
            if left <= 0:
                return
            with anyio.move_on_after(0.05 if ending else left):
                await changed.wait()

    def set_ready(
        self,
        name: str,
        status: str,
        reason: str,
        message: str,
        *,
        sandbox: str = "",
        ips: list[str] | None = None,
    ) -> None:
        """Write a claim's status, as the controller does."""
        ready = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": datetime.now(UTC).isoformat(),
        }
        told: Words = {"conditions": [ready]}
        if sandbox:
            told["sandbox"] = {"name": sandbox, "podIPs": ips or []}
        self.change("sandboxclaims", name, status=told)

    def _delete(self, claim: Words) -> None:
        metadata = _part(claim, "metadata")
        name, ns = str(metadata["name"]), str(metadata["namespace"])
        sandbox = _part(_part(claim, "status"), "sandbox").get("name")
        if sandbox not in self.pods or self.pods[str(sandbox)].is_over:
            self.drop("sandboxclaims", name, ns=ns)
            return
        ending = {**metadata, "deletionTimestamp": datetime.now(UTC).isoformat()}
        self._keep("sandboxclaims", {**claim, "metadata": ending}, "MODIFIED")


async def _until_closed(stream: Stream, cut: anyio.CancelScope) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        await stream.receive()
    cut.cancel()


def _part(words: Words, key: str) -> Words:
    found = words.get(key, {})
    assert isinstance(found, dict)
    return found


def _status(code: int, reason: str, message: str) -> tuple[int, Words]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


def _verb(method: str, path: str, query: dict[str, str]) -> str:
    if method == "GET":
        named = len(path.strip("/").split("/")) > 6
        return "get" if named else "watch" if "watch" in query else "list"
    return {"POST": "create", "DELETE": "delete", "PATCH": "patch"}[method]


def _is_selected(words: Words, selector: str) -> bool:
    labels = _part(_part(words, "metadata"), "labels")
    for term in filter(None, selector.split(",")):
        name, _, value = term.partition("=")
        if name not in labels or (value and labels[name] != value):
            return False
    return True


@asynccontextmanager
async def fake_cluster(folder: Path) -> AsyncGenerator[FakeCluster]:
    """Serve a cluster with one pool until the block is left."""
    async with anyio.create_task_group() as tasks:
        cluster = FakeCluster(tasks, folder)
        for name in (POOL, "other-pool"):
            reference = {"sandboxTemplateRef": {"name": "template"}}
            cluster.put("sandboxwarmpools", name, {"spec": reference})
        pod = {"spec": {"containers": [{"name": "c", "image": IMAGE}]}}
        cluster.put("sandboxtemplates", "template", {"spec": {"podTemplate": pod}})
        async with upstream(cluster.answer) as served:
            cluster.address = served.url
            cluster.connections = lambda: served.connections
            yield cluster
        tasks.cancel_scope.cancel()
