# SPDX-License-Identifier: Apache-2.0
"""Cases for the abilities that not every provider has.

What a provider claims it does: no network means none, a frozen sandbox stands
still, another user owns what is put, and the host is out of reach.
"""

import socket
from typing import cast

import anyio
import anyio.abc
import attrs

from ..required.sandbox import Ended, Liveness, Sandbox, shell
from ..required.sandbox_provider import Capability, FreezingProvider, Network
from .cases import Case, check_cases
from .provider_context import (
    ProviderContext,
    ended_of,
    made,
    put_word,
    said,
    until_on,
)
from .sandbox_context import PATIENCE_SECONDS, comes_true

STILL_SECONDS = 1.0
PROBE_SECONDS = 2.0

_PROBE = """
probe='import socket, sys
to = (sys.argv[1], int(sys.argv[2]))
question = (b"ab" + bytes((1, 0, 0, 1)) + bytes(6)
    + bytes((6,)) + b"canary" + bytes((4,)) + b"test" + bytes((0, 0, 1, 0, 1)))
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(question, to)
    socket.create_connection(to, 2).close()
except OSError as fault:
    print(fault)'
if command -v python3 >/dev/null; then python3 -c "$probe" HOST PORT
elif command -v bash >/dev/null; then
    bash -c 'echo q >/dev/udp/HOST/PORT; echo q >/dev/tcp/HOST/PORT'
elif command -v nc >/dev/null; then
    # An nc without -u is helped out by another sender of datagrams.
    echo q | nc -u -w 1 HOST PORT || timeout 2 tftp -g -r q -l /dev/null HOST PORT
    echo q | nc -w 1 HOST PORT
elif command -v perl >/dev/null; then
    perl -MIO::Socket::INET -e 'for (qw(udp tcp)) {
        my $way = IO::Socket::INET->new(
            Proto => $_, PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 2);
        print $way "q" if $way;
    }' HOST PORT
fi
getent hosts canary.test
nslookup canary.test HOST
true
"""
"""Asks for a made-up name, and connects, with whatever the sandbox has."""


async def frozen_stands_still(context: ProviderContext) -> None:
    """A frozen sandbox does nothing until it is thawed."""
    # The capability is the promise that the provider has this ability too.
    freezing = cast(FreezingProvider, context.provider)
    async with made(context) as (label, sandbox):
        heard: list[Ended] = []
        script = ": > on; n=0; while test $n -lt 3; do sleep 1; n=$((n+1)); done"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended_of, sandbox, script, heard)
            await until_on(sandbox)

            await freezing.freeze(label)
            assert (await sandbox.status()).liveness is Liveness.FROZEN
            await anyio.sleep(3.0 + STILL_SECONDS)
            assert not heard
            await freezing.thaw(label)
            assert (await sandbox.status()).liveness is Liveness.RUNNING

        assert heard[0].succeeded, heard


async def another_user_owns_what_is_put(context: ProviderContext) -> None:
    """Commands run as the spec's user, and files belong to that user."""
    assert context.other_user is not None
    spec = attrs.evolve(context.spec, user=context.other_user)

    async with made(context, spec=spec) as (_, sandbox):
        await put_word(sandbox, "new/word", "a")
        await put_word(sandbox, "big", "b" * 3_000_000)

        script = "id -u; printf b >> new/word; printf c >> big; : > new/own; : > own"
        assert await said(sandbox, script) == f"{context.other_user.split(':')[0]}\n"


async def no_network_is_none(context: ProviderContext) -> None:
    """Without a network neither a name look-up nor a connection gets out."""
    assert context.host_address is not None
    seen: set[str] = set()

    async def is_reached() -> bool:
        assert context.host_address is not None
        seen.update(await _heard_from(reaching, context.host_address))
        return {"udp", "tcp"} <= seen

    async with made(context) as (_, reaching):
        # Its tools wait a second or two, which a busy host may let pass.
        reached = await comes_true(is_reached, seconds=PATIENCE_SECONDS)
        assert reached, f"of the probe itself only {sorted(seen)} reach this host"

    spec = attrs.evolve(context.spec, network=Network.NONE)
    async with made(context, spec=spec) as (_, cut_off):
        assert await _heard_from(cut_off, context.host_address) == set()
        assert (await said(cut_off, "ls /sys/class/net")).split() == ["lo"]


async def the_hosts_files_are_not_there(context: ProviderContext) -> None:
    """An isolated sandbox sees nothing of the host's temporary files."""
    async with (
        anyio.TemporaryDirectory[str](prefix="livery-host-") as folder,
        made(context) as (_, sandbox),
    ):
        script = f"test -e '{folder}' && echo seen || echo unseen"
        assert await said(sandbox, script) == "unseen\n"


async def _heard_from(sandbox: Sandbox, address: str) -> set[str]:
    """Return what of the probe in the sandbox arrives at this host."""
    heard: set[str] = set()
    listener = await anyio.create_tcp_listener(
        local_host="0.0.0.0", family=socket.AF_INET
    )
    # It is closed after its task: a listener that is closed while it accepts raises.
    async with listener, anyio.create_task_group() as tasks:
        port = int(listener.extra(anyio.abc.SocketAttribute.local_port))

        async def on_connection(stream: anyio.abc.SocketStream) -> None:
            heard.add("tcp")
            await stream.aclose()

        async def on_datagrams() -> None:
            async with await anyio.create_udp_socket(
                family=socket.AF_INET, local_host="0.0.0.0", local_port=port
            ) as datagrams:
                async for _ in datagrams:
                    heard.add("udp")

        tasks.start_soon(listener.serve, on_connection)
        tasks.start_soon(on_datagrams)
        probe = _PROBE.replace("HOST", address).replace("PORT", str(port))
        await sandbox.exec(shell(probe, timeout_seconds=PATIENCE_SECONDS))

        async def both() -> bool:
            return heard == {"udp", "tcp"}

        await comes_true(both, seconds=PROBE_SECONDS)
        tasks.cancel_scope.cancel()
    return heard


CASES: tuple[Case[ProviderContext], ...] = check_cases(
    (
        Case(
            name="frozen stands still",
            run=frozen_stands_still,
            needs=frozenset({Capability.FREEZING}),
        ),
        Case(
            name="another user owns what is put",
            run=another_user_owns_what_is_put,
            needs=frozenset({Capability.USERS}),
            hooks=frozenset({"other_user"}),
            field_cases=("FC-067",),
        ),
        Case(
            name="no network is none",
            run=no_network_is_none,
            needs=frozenset({Capability.NETWORK_NONE}),
            hooks=frozenset({"host_address"}),
            field_cases=("FC-160",),
        ),
        Case(
            name="the host's files are not there",
            run=the_hosts_files_are_not_there,
            needs=frozenset({Capability.ISOLATION}),
        ),
    )
)
