# SPDX-License-Identifier: Apache-2.0
"""The network policy: what is asked for, what the server says, and what is so.

A server without its egress sidecar, or with one that filters names alone, takes a
policy and leaves the way open. So the policy is read back after create, and probed
from inside: names that nobody allowed must not resolve, and addresses that nobody
allowed must neither answer nor refuse.
"""

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import cast

import attrs

from ...ports.required.sandbox import Command, Exited, Sandbox
from ...ports.required.sandbox_provider import Network, SandboxSpec, SpecRefused
from .lifecycle_facts import words_of

PROBE_SECONDS = 2.0
COMMAND_SECONDS = 30.0
NAMES = ("example.com", "example.org")
"""Names that resolve wherever names do."""
ADDRESSES = ("1.1.1.1:443", "8.8.8.8:53")
"""Addresses that answer wherever the internet is."""

_NAME = re.compile(
    r"(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9-]+", re.I
)

_PROBE = r"""
import ipaddress, json, socket, struct, sys, threading
words = json.loads(sys.argv[1])
seconds, found, lock = words["seconds"], [], threading.Lock()

def tell(text):
    with lock:
        found.append(text)

def connects(host, port):
    try:
        socket.create_connection((host, port), seconds).close()
        tell("%s:%d takes a connection" % (host, port))
    except ConnectionRefusedError:
        tell("%s:%d refuses a connection, so it was reached" % (host, port))
    except OSError:
        pass

def resolves(name):
    try:
        tell("%s resolves to %s" % (name, socket.getaddrinfo(name, 443)[0][4][0]))
    except OSError:
        pass

def gateways():
    try:
        with open("/proc/net/route") as file:
            for line in file.readlines()[1:]:
                parts = line.split()
                if parts[1] == "00000000" and parts[2] != "00000000":
                    yield socket.inet_ntoa(struct.pack("<L", int(parts[2], 16)))
    except OSError:
        return

def servers():
    try:
        with open("/etc/resolv.conf") as file:
            for line in file:
                if line.startswith("nameserver ") and not line.split()[1].startswith("127."):
                    yield line.split()[1]
    except OSError:
        return

allowed = [ipaddress.ip_network(one, strict=False) for one in words["allowed"]]

def is_allowed(host):
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in block for block in allowed)

targets = [tuple(one) for one in words["addresses"]]
for host in {*gateways(), *servers()}:
    if is_allowed(host):
        continue
    targets += [(host, 1), (host, 53), (host, 80)]
tasks = [threading.Thread(target=connects, args=one, daemon=True) for one in targets]
tasks += [threading.Thread(target=resolves, args=(one,), daemon=True) for one in words["names"]]
for task in tasks:
    task.start()
for task in tasks:
    task.join(seconds + 1)
with lock:
    print(json.dumps(sorted(found)), flush=True)
import os
os._exit(0)
"""


@attrs.frozen
class Policy:
    """What a sandbox may reach; nothing else."""

    allowed: tuple[str, ...] = ()

    def to_words(self) -> dict[str, object]:
        """Return the policy as the server takes it."""
        return {
            "defaultAction": "deny",
            "egress": [{"action": "allow", "target": one} for one in self.allowed],
        }

    def is_told_by(self, raw: Mapping[str, object]) -> bool:
        """Return whether the server's words are this policy, no wider and no narrower."""
        words = words_of(raw.get("policy")) or raw
        rules = words.get("egress")
        listed = cast("list[object]", rules) if isinstance(rules, list) else []
        told = {
            (words_of(rule).get("action"), _plain(words_of(rule).get("target")))
            for rule in listed
        }
        allowed = {("allow", _plain(target)) for target in self.allowed}
        return words.get("defaultAction") == "deny" and told == allowed


def policy_of(spec: SandboxSpec) -> Policy | None:
    """Return the policy that a spec asks for; None for one that asks for none."""
    if spec.network is Network.DEFAULT:
        return None
    return Policy(spec.reachable if spec.network is Network.LISTED else ())


def check_reachable(spec: SandboxSpec, *, provider: str) -> None:
    """Say no to what no policy can be made from: the server takes half a minute.

    Raises:
        SpecRefused: The first entry that is wrong.
    """
    for index, target in enumerate(spec.reachable):
        field = f"reachable[{index}]"
        if spec.network is not Network.LISTED:
            raise SpecRefused(
                provider=provider, field=field, reason='it needs network = "listed"'
            )
        if not (is_address(target) or _NAME.fullmatch(target)):
            raise SpecRefused(
                provider=provider,
                field=field,
                reason="a host name, '*.' and a name, or an address is needed",
            )


def is_address(text: str) -> bool:
    """Return whether the text is an IP address or a block of them."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


async def leaks(
    sandbox: Sandbox,
    policy: Policy,
    *,
    python: str,
    addresses: tuple[str, ...] = ADDRESSES,
    names: tuple[str, ...] = NAMES,
) -> tuple[str, ...] | None:
    """Tell what is reached from inside that nobody allowed; None when unknown."""
    wanted = [_to_pair(one) for one in addresses]
    words = {
        "seconds": PROBE_SECONDS,
        "addresses": [pair for pair in wanted if not _allows(policy, pair[0])],
        "names": [name for name in names if not _allows(policy, name)],
        "allowed": [one for one in policy.allowed if is_address(one)],
    }
    ended = await sandbox.exec(
        Command(
            argv=(python, "-I", "-S", "-c", _PROBE, json.dumps(words)),
            timeout_seconds=COMMAND_SECONDS,
            cwd="/",
        )
    )
    if ended.how != Exited(0):
        return None
    try:
        found: object = json.loads(ended.stdout.kept)
    except ValueError:
        return None
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return tuple(str(one) for one in listed)


def _plain(target: object) -> object:
    """Return a target in one spelling: names have no case, and blocks have a base."""
    text = str(target)
    if is_address(text):
        return str(ipaddress.ip_network(text, strict=False))
    return text.lower()


def _allows(policy: Policy, target: str) -> bool:
    target = target.lower()
    for allowed in map(str.lower, policy.allowed):
        if allowed == target:
            return True
        if allowed.startswith("*.") and target.endswith(allowed[1:]):
            return True
        if is_address(allowed) and is_address(target):
            network = ipaddress.ip_network(allowed, strict=False)
            if ipaddress.ip_address(target) in network:
                return True
    return False


def check_probe_addresses(addresses: tuple[str, ...], *, provider: str) -> None:
    """Say no to what cannot be probed.

    Raises:
        SpecRefused: The first entry that is no host and port.
    """
    for index, address in enumerate(addresses):
        host, _, port = address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= 65535
        if not (host and is_port):
            raise SpecRefused(
                provider=provider,
                field=f"probe_addresses[{index}]",
                reason=f"{address!r} is not HOST:PORT",
            )


def _to_pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
