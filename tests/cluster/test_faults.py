# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with a cluster on demand does go wrong, and heals."""

import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .cluster import Cluster

pytestmark = [pytest.mark.peer("docker"), pytest.mark.peer("kubernetes")]

CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/agents/sandboxclaims"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/agents/sandboxes"
SECONDS = 30.0


@pytest.fixture
def api(cluster: Cluster) -> Iterator[httpx.Client]:
    """The service account's client, through the fault proxy."""
    trust = ssl.create_default_context(cafile=cluster.where.ca)
    headers = {"Authorization": f"Bearer {cluster.where.token}"}
    with httpx.Client(
        base_url=cluster.where.proxied_api_url,
        verify=trust,
        headers=headers,
        timeout=SECONDS,
        trust_env=False,
    ) as client:
        yield client


def claim(api: httpx.Client, name: str, pool: str, **spec: Any) -> dict[str, Any]:
    """Create a claim."""
    body = {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name},
        "spec": {"warmPoolRef": {"name": pool}, **spec},
    }
    return dict(api.post(CLAIMS, json=body).raise_for_status().json())


def ready(api: httpx.Client, name: str) -> dict[str, Any]:
    """Return a claim's Ready condition; nothing while it has none."""
    found = api.get(f"{CLAIMS}/{name}").json().get("status", {}).get("conditions", [])
    return dict(found[0]) if found else {}


def bound(cluster: Cluster, api: httpx.Client, name: str, pool: str) -> dict[str, Any]:
    """Create a claim, wait until it is bound, and return its sandbox."""
    claim(api, name, pool)
    cluster.until(lambda: ready(api, name).get("status") == "True")
    return cluster.sandbox_of(name)


def serves(url: str) -> bool:
    """Return whether a runtime server answers there."""
    try:
        return httpx.get(url, trust_env=False, timeout=SECONDS).status_code == 200
    except httpx.TransportError:
        return False


def test_rules_answer_for_the_api_server_and_only_as_often_as_they_say(
    cluster: Cluster, api: httpx.Client
) -> None:
    told = {"kind": "Status", "code": 429, "reason": "TooManyRequests"}
    cluster.do(
        "rule",
        at="api",
        does="answer",
        method="GET",
        target="sandboxclaims",
        status=429,
        body=told,
        headers={"Retry-After": "1"},
        times=2,
    )

    answers = [api.get(CLAIMS) for _ in range(3)]

    assert [one.status_code for one in answers] == [429, 429, 200]
    assert answers[0].headers["Retry-After"] == "1"
    assert answers[0].json() == told
    seen = cluster.do("seen", at="api")
    assert [one["status"] for one in seen] == [429, 429, 200]


def test_a_reply_can_be_lost_after_the_deed(
    cluster: Cluster, api: httpx.Client, python_pool: str
) -> None:
    cluster.do("rule", at="api", does="cut_reply", method="POST", times=1)

    with pytest.raises(httpx.TransportError):
        claim(api, "lost-reply", python_pool)

    assert api.get(f"{CLAIMS}/lost-reply").status_code == 200
    api.delete(f"{CLAIMS}/lost-reply").raise_for_status()


def test_watches_can_be_held_and_cut(
    cluster: Cluster, api: httpx.Client, python_pool: str
) -> None:
    cluster.do("behave", holds=True)
    version = api.get(CLAIMS).json()["metadata"]["resourceVersion"]
    lines: list[str] = []
    params = {"watch": "1", "resourceVersion": version}

    def watch() -> None:
        try:
            with api.stream("GET", CLAIMS, params=params) as answer:
                lines.extend(answer.iter_lines())
        except httpx.TransportError:
            lines.append("cut")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        cluster.until(lambda: cluster.do("under_way", at="api", target="watch=1") == 1)
        claim(api, "seen", python_pool)
        cluster.until(lambda: len(lines) >= 1)
        cluster.do("stall", at="api", target="watch=1")
        claim(api, "unseen", python_pool)
        cluster.until(lambda: ready(api, "unseen").get("reason") == "AdoptionPending")
        before = list(lines)
    finally:
        cluster.do("cut", at="api", target="watch=1")
        thread.join(SECONDS)

    assert json.loads(before[0])["object"]["metadata"]["name"] == "seen"
    assert not any("unseen" in line for line in lines)
    assert lines[-1] == "cut"
    for name in ("seen", "unseen"):
        api.delete(f"{CLAIMS}/{name}").raise_for_status()


def test_the_api_server_can_be_killed_and_keeps_what_it_stored(
    cluster: Cluster, api: httpx.Client, python_pool: str
) -> None:
    claim(api, "kept", python_pool)

    cluster.do("kill_api_server")
    with pytest.raises(httpx.TransportError):
        api.get(CLAIMS)
    cluster.do("start_api_server")

    cluster.until(lambda: ready(api, "kept").get("status") == "True")
    api.delete(f"{CLAIMS}/kept").raise_for_status()


def test_a_pod_is_killed_seen_or_unseen_restarted_and_replaced(
    cluster: Cluster, api: httpx.Client, python_pool: str
) -> None:
    sandbox = bound(cluster, api, "victim", python_pool)
    name = sandbox["name"]

    def answers() -> bool:
        return serves(f"http://{cluster.sandbox_of('victim')['container_ip']}:8888")

    cluster.until(answers)
    cluster.do("restart_pod", sandbox=name)
    cluster.until(answers)
    cluster.do("hold_server", sandbox=name)
    assert not answers()
    cluster.do("let_server", sandbox=name)
    cluster.until(answers)
    cluster.do("replace_sandbox", sandbox=name)
    cluster.until(answers)
    replaced = cluster.sandbox_of("victim")
    assert replaced["name"] == name
    assert replaced["uid"] != sandbox["uid"]
    cluster.do("kill_pod", sandbox=name, noticed=False)
    assert ready(api, "victim")["status"] == "True"
    assert not answers()
    cluster.do("kill_pod", sandbox=name)
    assert ready(api, "victim")["reason"] == "PodFailed"
    api.delete(f"{CLAIMS}/victim").raise_for_status()


@pytest.mark.parametrize("policy", ["Delete", "DeleteForeground", "Retain"])
def test_a_claim_expires_by_its_policy(
    policy: str, cluster: Cluster, api: httpx.Client, python_pool: str
) -> None:
    name = f"expires-{policy.lower()}"
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    life = {"shutdownTime": soon.isoformat(), "shutdownPolicy": policy}
    claim(api, name, python_pool, lifecycle=life)

    if policy == "Retain":
        cluster.until(lambda: ready(api, name).get("reason") == "ClaimExpired")
        api.delete(f"{CLAIMS}/{name}").raise_for_status()
    else:
        cluster.until(lambda: api.get(f"{CLAIMS}/{name}").status_code == 404)
    cluster.until(lambda: all(one["claim"] != name for one in cluster.do("sandboxes")))


def test_a_pod_on_a_proxied_address_goes_through_the_rules(
    cluster: Cluster, api: httpx.Client, test_image: str
) -> None:
    pool = cluster.make_pool(
        "proxied",
        image=test_image,
        replicas=1,
        proxied=True,
        read_only_root=True,
        env={"SANDBOX_BASE_DIR": "/data", "SANDBOX_EXEC_TIMEOUT_SECONDS": "1"},
    )
    sandbox = bound(cluster, api, "through", pool)
    url = f"http://{sandbox['ip']}:8888"
    cluster.until(lambda: serves(url))
    cluster.do(
        "rule", at="runtime", does="answer", target="^/execute", status=502, times=1
    )

    def execute(command: str) -> httpx.Response:
        body = {"command": command}
        return httpx.post(f"{url}/execute", json=body, timeout=SECONDS, trust_env=False)

    assert execute("pwd").status_code == 502
    assert execute("pwd").json()["stdout"] == "/data\n"
    assert execute("touch /etc/x").json()["exit_code"] == 1
    assert "timed out" in execute("sleep 30").json()["stderr"]
    api.delete(f"{CLAIMS}/through").raise_for_status()
    cluster.do("drop_pool", name=pool)


def test_the_router_asks_for_headers_and_for_its_token(
    cluster: Cluster, api: httpx.Client, python_pool: str
) -> None:
    sandbox = bound(cluster, api, "routed", python_pool)
    trust = ssl.create_default_context(cafile=cluster.where.ca)
    with httpx.Client(
        base_url=cluster.where.router_tls_url, verify=trust, trust_env=False
    ) as router:
        headers = {"X-Sandbox-ID": sandbox["name"], "X-Sandbox-Namespace": "agents"}
        cluster.until(lambda: router.get("/", headers=headers).status_code == 200)

        assert router.get("/").json() == {"detail": "X-Sandbox-ID header is required."}
        odd = {**headers, "X-Sandbox-Pod-IP": "127.0.0.1"}
        assert router.get("/", headers=odd).status_code == 400
        other = {**headers, "X-Sandbox-ID": "nobody"}
        assert router.get("/", headers=other).status_code == 502
        cluster.do("router_token", token="right")
        assert router.get("/", headers=headers).status_code == 401
        given = {**headers, "Authorization": "Bearer right"}
        assert router.get("/", headers=given).status_code == 200
    api.delete(f"{CLAIMS}/routed").raise_for_status()
