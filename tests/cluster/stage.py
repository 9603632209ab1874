# SPDX-License-Identifier: Apache-2.0
"""All stand-ins of one cluster in one process, and the commands that steer them."""

import os
import ssl
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
from anyio import to_thread

from .api_server import ApiServer
from .binding import CLAIMS, GATEWAYS, POOLS, SANDBOXES, TEMPLATES, Bound, Key
from .controller import Behaviour, Controller
from .kube import Kube
from .pods import NETWORK, PROXIED, Pods
from .proxy import Canned, Head, Listener, Upstream
from .router import Router, RouterSettings

RUNTIME_PORT = 8888
GATEWAY_PORT = 80
GATEWAY = "sandbox-gateway"
NAMESPACE = "agents"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{url}", certificate-authority: {ca}}}}}]
users: [{{name: test, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test, namespace: agents}}}}]
current-context: test
"""


class Stage:
    """The stand-ins, and one coroutine `do_NAME` for each command."""

    def __init__(
        self, server: ApiServer, kube: Kube, tasks: anyio.abc.TaskGroup
    ) -> None:
        """Set nothing up yet."""
        self._server = server
        self._kube = kube
        self._tasks = tasks
        self._real: dict[str, str] = {}
        """The container's address behind one of the proxy's."""
        self._api_words: list[str] = []
        # Three numbers of 127.0.0.0/8 keep clusters on one machine apart.
        self._subnet = f"127.{64 + os.getpid() % 127}.{os.getpid() // 127 % 250}"
        self.pods = Pods(uuid.uuid4().hex[:8], self._proxied)
        self.controller = Controller(kube, self.pods, tasks)
        self.router = RouterSettings()
        router = Router(
            settings=self.router,
            address_of=self._address_of,
            real_address=lambda told: self._real.get(told, told),
        )
        self.listeners = {
            "api": Listener("api", self._to_api),
            "runtime": Listener("runtime", self._refused),
            "router": Listener("router", router),
        }
        self._ports: dict[str, int] = {}

    def facts(self) -> dict[str, Any]:
        """Return where everything is."""
        folder = self._server.folder
        return {
            "admin_kubeconfig": str(folder / "kubeconfig"),
            "kubeconfig": str(folder / "token.kubeconfig"),
            "proxied_kubeconfig": str(folder / "proxied.kubeconfig"),
            "ca": str(folder / "ca.crt"),
            "token": self._token(),
            "api_url": self._server.url,
            "proxied_api_url": f"https://127.0.0.1:{self._ports['api']}",
            "namespace": NAMESPACE,
            "router_url": f"http://127.0.0.1:{self._ports['router']}",
            "router_tls_url": f"https://127.0.0.1:{self._ports['router_tls']}",
            "gateway": GATEWAY if "gateway" in self._ports else None,
            "gateway_ip": f"{self._subnet}.1",
        }

    async def set_up(self) -> None:
        """Start the double, the listeners and the gateway."""
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        folder = self._server.folder
        tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        for name, listener, trust in (
            ("api", self.listeners["api"], tls),
            ("router", self.listeners["router"], None),
            ("router_tls", self.listeners["router"], tls),
        ):
            self._ports[name] = await self._tasks.start(
                lambda task_status, listener=listener, trust=trust: listener.serve(
                    "127.0.0.1", 0, trust=trust, task_status=task_status
                )
            )
        (folder / "proxied.kubeconfig").write_text(
            KUBECONFIG.format(
                url=f"https://127.0.0.1:{self._ports['api']}",
                ca=folder / "ca.crt",
                token=self._token(),
            )
        )
        if os.geteuid() == 0:  # Or nobody may listen at the gateway's port.
            await self._open_gateway()
        self._tasks.start_soon(self.controller.run)

    async def _open_gateway(self) -> None:
        address = f"{self._subnet}.1"
        listener = self.listeners["router"]
        self._ports["gateway"] = await self._tasks.start(
            lambda task_status: listener.serve(
                address, GATEWAY_PORT, task_status=task_status
            )
        )
        body = {
            "apiVersion": GATEWAYS.version,
            "kind": "Gateway",
            "metadata": {"name": GATEWAY},
            "spec": {"gatewayClassName": "test"},
        }
        await self._kube.create(GATEWAYS, NAMESPACE, body)
        await self.do_gateway_addresses([address])

    async def do_gateway_addresses(self, addresses: list[str]) -> None:
        """Write the gateway's addresses."""
        told = [
            {
                "type": "Hostname" if one[0].isalpha() else "IPAddress",
                "value": one,
            }
            for one in addresses
        ]
        status = {"status": {"addresses": told}}
        await self._kube.patch_status(GATEWAYS, (NAMESPACE, GATEWAY), status)

    async def do_make_pool(
        self,
        name: str,
        *,
        image: str,
        replicas: int = 0,
        namespace: str = NAMESPACE,
        env: dict[str, str] | None = None,
        read_only_root: bool = False,
        network: str = "",
        proxied: bool = False,
        allows: str = "Disallowed",
    ) -> None:
        """Make a template and its pool, or write new words over them."""
        annotations = {PROXIED: "true"} if proxied else {}
        if network:
            annotations[NETWORK] = network
        container = {
            "name": "sandbox",
            "image": image,
            "env": [{"name": k, "value": v} for k, v in (env or {}).items()],
            "ports": [{"containerPort": RUNTIME_PORT}],
            "securityContext": {"readOnlyRootFilesystem": read_only_root},
        }
        template = {
            "envVarsInjectionPolicy": allows,
            "volumeClaimTemplatesPolicy": allows,
            "podTemplate": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [container],
                },
            },
        }
        pool = {"replicas": replicas, "sandboxTemplateRef": {"name": name}}
        for kind, word, spec in (
            (TEMPLATES, "SandboxTemplate", template),
            (POOLS, "SandboxWarmPool", pool),
        ):
            await self._kube.apply(
                kind,
                (namespace, name),
                {"apiVersion": kind.version, "kind": word, "spec": spec},
            )

    async def do_drop_pool(self, name: str, namespace: str = NAMESPACE) -> None:
        """Delete a pool and its template."""
        await self._kube.delete(POOLS, (namespace, name))
        await self._kube.delete(TEMPLATES, (namespace, name))

    async def do_ready_members(self, name: str, namespace: str = NAMESPACE) -> int:
        """Tell how many of a pool's sandboxes wait for a claim."""
        return self.controller.ready_members((namespace, name))

    async def do_behave(self, **words: Any) -> None:
        """Have the controller behave otherwise; without words as it should."""
        self.controller.behaviour = Behaviour(**words)
        self.controller.look_again()

    async def do_claims(self, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """Tell the claims as the API server has them."""
        # Not what the controller has seen: it may be behind, after a restart.
        return await self._kube.list(CLAIMS, namespace)

    async def do_delete_claim(self, name: str, namespace: str = NAMESPACE) -> None:
        """Delete a claim as somebody else would."""
        await self._kube.delete(CLAIMS, (namespace, name))

    async def do_sandboxes(self) -> list[dict[str, Any]]:
        """Tell every sandbox, bound or waiting in a pool."""
        return [_told(one) for one in self.controller.sandboxes()]

    async def do_kill_pod(self, sandbox: str, *, noticed: bool = True) -> None:
        """Kill a pod; unless `noticed`, its claim goes on saying that it is ready."""
        bound = self.controller.named(sandbox)
        bound.is_dead = True
        await self.pods.kill(bound.pod.container)
        if noticed:
            await self.controller.tell_death(bound, "PodFailed")

    async def do_restart_pod(self, sandbox: str) -> None:
        """Start a pod's container again: every process of it is another one."""
        bound = self.controller.named(sandbox)
        bound.is_dead = True  # Nobody is to notice.
        address = await self.pods.restart(bound.pod.container)
        bound.is_dead = False
        told, bound.pod.container_ip = bound.pod.ip, address
        if told in self._real:
            self._real[told] = address
        elif told != address:
            await self.controller.move(sandbox, address)

    async def do_restart_server(self, sandbox: str) -> None:
        """Kill the runtime server alone; it is started again, its commands go on."""
        await self._in_pod(sandbox, "kill -9 $(cat /run/runtime.pid)")

    async def do_hold_server(self, sandbox: str) -> None:
        """Kill the runtime server, and keep it from being started again."""
        script = "touch /run/runtime.held; kill -9 $(cat /run/runtime.pid)"
        await self._in_pod(sandbox, script)

    async def do_let_server(self, sandbox: str) -> None:
        """Let the runtime server be started again."""
        await self._in_pod(sandbox, "rm -f /run/runtime.held")

    async def do_replace_sandbox(self, sandbox: str) -> None:
        """Have another sandbox of that name stand in for one."""
        await self.controller.replace(sandbox)

    async def do_move_pod(self, sandbox: str, address: str) -> None:
        """Write another address for a pod."""
        await self.controller.move(sandbox, address)

    async def do_delete_sandbox(self, sandbox: str) -> None:
        """Delete the Sandbox object alone, as somebody with the right may."""
        bound = self.controller.named(sandbox)
        await self._kube.delete(SANDBOXES, (bound.namespace, bound.name))

    async def do_rule(self, at: str, does: Any, **words: Any) -> int:
        """Add a rule to a listener."""
        return self.listeners[at].add(does, **words)

    async def do_unrule(self, at: str, number: int) -> None:
        """Take a rule away."""
        self.listeners[at].remove(number)

    async def do_clear(self) -> None:
        """Have everything work again as it should, and forget what was seen."""
        for listener in self.listeners.values():
            listener.clear()
        self.router.token = ""
        await self.do_behave()

    async def do_cut(self, at: str, target: str = "") -> int:
        """Cut the connections under way."""
        return self.listeners[at].cut(target)

    async def do_stall(self, at: str, target: str = "") -> int:
        """Hold the replies under way."""
        return self.listeners[at].stall(target)

    async def do_let_go(self, at: str, target: str = "") -> int:
        """Let held replies go on."""
        return self.listeners[at].let_go(target)

    async def do_under_way(self, at: str, target: str = "") -> int:
        """Tell how many requests are under way."""
        return self.listeners[at].under_way(target)

    async def do_up(self, at: str, is_up: bool) -> None:
        """Have a listener answer nobody, or everybody again."""
        self.listeners[at].is_up = is_up
        if not is_up:
            self.listeners[at].cut()

    async def do_seen(self, at: str) -> list[dict[str, Any]]:
        """Tell the requests that came."""
        return list(self.listeners[at].seen)

    async def do_router_token(self, token: str) -> None:
        """Have the router ask for a bearer token."""
        self.router.token = token

    async def do_kill_api_server(self) -> None:
        """Kill the API server; what it stored stays."""
        self._api_words = await to_thread.run_sync(self._server.kill)

    async def do_start_api_server(self) -> None:
        """Start the API server again."""
        await to_thread.run_sync(self._server.start_again, self._api_words)

    async def _in_pod(self, sandbox: str, script: str) -> None:
        await self.pods.run(self.controller.named(sandbox).pod.container, script)

    def _proxied(self, address: str) -> str:
        number = len(self._real) + 10
        told = f"{self._subnet}.{number}"
        if number > 250:
            raise RuntimeError("too many proxied pods for one cluster")
        self._real[told] = address
        listener = self.listeners["runtime"]
        # One Listener at many addresses: rules are for all of them.
        own = Listener("runtime", lambda head: self._to_pod(told))
        own.share(listener)
        self._tasks.start_soon(own.serve, told, RUNTIME_PORT)
        return told

    async def _to_pod(self, told: str) -> Upstream | Canned:
        return Upstream(host=self._real[told], port=RUNTIME_PORT)

    async def _to_api(self, head: Head) -> Upstream | Canned:
        trust = self._server.trust(as_admin=False)
        return Upstream(host="127.0.0.1", port=self._server.port, trust=trust)

    async def _refused(self, head: Head) -> Upstream | Canned:
        return Canned(status=502)

    def _address_of(self, namespace: str, sandbox: str) -> str | None:
        found = [
            one.pod.container_ip
            for one in self.controller.sandboxes()
            if (one.namespace, one.name) == (namespace, sandbox)
        ]
        return found[0] if found else None

    def _token(self) -> str:
        folder = self._server.folder
        return (folder / "tokens.csv").read_text().partition(",")[0]


def _told(bound: Bound) -> dict[str, Any]:
    claim: Key | None = bound.claim
    return {
        "name": bound.name,
        "namespace": bound.namespace,
        "uid": bound.sandbox_uid,
        "claim": claim[1] if claim else None,
        "container": bound.pod.container,
        "container_ip": bound.pod.container_ip,
        "ip": bound.pod.ip,
        "metadata": bound.metadata,
    }


@asynccontextmanager
async def open_stage(server: ApiServer) -> AsyncGenerator[Stage]:
    """Run all stand-ins for as long as the block."""
    async with Kube.open(server) as kube, anyio.create_task_group() as tasks:
        stage = Stage(server, kube, tasks)
        try:
            await stage.set_up()
            yield stage
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await stage.pods.end_all()
