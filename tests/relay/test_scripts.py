# SPDX-License-Identifier: Apache-2.0
"""The scripts by themselves, at the hands of a host that does as it likes."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from livery.adapters.worker_scripts import mailbox, program, relay, wire
from livery.ports.provided import relay_links

from .. import peers

SECONDS_MAX = 20.0
HEADER = wire.HEADER.size


@pytest.fixture(params=["own", "oldest"])
def python(request: pytest.FixtureRequest) -> str:
    return sys.executable if request.param == "own" else str(peers.oldest_python())


class Host:
    """A relay's other end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout

    def hear(self) -> tuple[int, int, bytes]:
        kind, call, length = wire.HEADER.unpack(self.stdout.read(HEADER))
        return kind, call, self.stdout.read(length)

    def say(self, kind: int, call: int, payload: bytes = b"") -> None:
        self.stdin.write(wire.frame(kind, call, payload))
        self.stdin.flush()


@contextlib.contextmanager
def relaying(python: str, folder: Path, *ports: str) -> Generator[Host]:
    path = folder / "relay.py"
    path.write_bytes(program("relay"))
    with subprocess.Popen(
        [python, "-I", "-S", str(path), *ports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield Host(process)
            process.wait(SECONDS_MAX)
        finally:
            process.kill()


def connected(host: Host) -> socket.socket:
    kind, _, payload = host.hear()
    assert kind == wire.HELLO
    port = json.loads(payload)["ports"][0]
    inside = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
    assert host.hear() == (wire.OPENED, 1, (0).to_bytes(4, "big"))
    return inside


def test_both_ends_have_the_same_window() -> None:
    assert relay.WINDOW_BYTES == relay_links.WINDOW_BYTES
    assert relay.PIECE_BYTES == relay_links.PIECE_BYTES


def test_a_connection_ends_way_by_way(python: str, tmp_path: Path) -> None:
    with relaying(python, tmp_path, "0") as host:
        with connected(host) as inside:
            inside.sendall(b"up")
            assert host.hear() == (wire.CHUNK, 1, b"up")
            host.say(wire.CREDIT, 1, (2).to_bytes(4, "big"))
            host.say(wire.CHUNK, 1, b"down")
            host.say(wire.END, 1)
            assert host.hear() == (wire.CREDIT, 1, (4).to_bytes(4, "big"))
            assert inside.recv(10) == b"down"
            assert inside.recv(10) == b""
            inside.shutdown(socket.SHUT_WR)
            assert host.hear() == (wire.END, 1, b"")
        host.stdin.close()

    assert host.process.returncode == 0


def test_a_connection_that_is_killed_is_closed_and_others_are_told_of_resets(
    python: str, tmp_path: Path
) -> None:
    with relaying(python, tmp_path, "0") as host:
        with connected(host) as inside:
            port = inside.getpeername()[1]
            host.say(wire.KILL, 1)
            assert inside.recv(10) == b""
        with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as inside:
            assert host.hear()[:2] == (wire.OPENED, 2)
            linger = b"\1\0\0\0\0\0\0\0"
            inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert host.hear()[:2] == (wire.KILL, 2)
        host.stdin.close()

    assert host.process.returncode == 0


@pytest.mark.parametrize(
    "said",
    [
        wire.frame(wire.CHUNK, 1, b"x" * (wire.CHUNK_BYTES * 8)),
        wire.HEADER.pack(wire.CHUNK, 1, 2**31),
    ],
    ids=["beyond the window", "too long"],
)
def test_a_host_that_keeps_to_no_rule_is_left_and_so_is_who_is_inside(
    python: str, tmp_path: Path, said: bytes
) -> None:
    with relaying(python, tmp_path, "0") as host, connected(host) as inside:
        with contextlib.suppress(BrokenPipeError):
            host.stdin.write(said)
            host.stdin.flush()
        with contextlib.suppress(ConnectionResetError):
            while inside.recv(65536):
                pass
        host.process.wait(SECONDS_MAX)
        with contextlib.suppress(BrokenPipeError):
            host.stdin.close()

    assert host.process.returncode == 0


def test_a_host_that_hears_no_more_is_left(python: str, tmp_path: Path) -> None:
    with relaying(python, tmp_path, "0") as host, connected(host) as inside:
        host.stdout.close()
        with contextlib.suppress(ConnectionResetError):
            inside.sendall(b"x")
            assert inside.recv(10) == b""

    assert host.process.returncode == 0


def test_a_port_that_cannot_be_had_is_told(python: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with relaying(python, tmp_path, "0", port) as host:
            kind, _, payload = host.hear()

    assert kind == wire.HELLO
    assert port in json.loads(payload)["fault"]
    assert host.process.returncode == 1


def until(path: Path, *, exists: bool) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while path.exists() is not exists:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_mailbox_carries_by_numbers_until_it_is_told_the_end(
    python: str, tmp_path: Path
) -> None:
    script = tmp_path / "mailbox.py"
    script.write_bytes(program("mailbox"))

    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [python, "-I", "-S", str(script), *words],
            capture_output=True,
            timeout=SECONDS_MAX,
        )

    told = run("carry", str(tmp_path), "0")
    folder = Path(json.loads(told.stdout)["folder"])
    hello = run("take", str(folder), "1", "10")
    again = run("take", str(folder), "1", "10")
    port = json.loads(hello.stdout[HEADER:])["ports"][0]
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as inside:
        opened = run("take", str(folder), "2", "10")
        nothing = run("take", str(folder), "3", "0.1")
        down = wire.frame(wire.CHUNK, 1, b"down") + wire.frame(wire.END, 1)
        (folder / "new-in").write_bytes(down)
        (folder / "new-in").rename(folder / "in" / "0000000001")
        heard = inside.recv(10)
    left = sorted(path.name for path in (folder / "out").iterdir())
    (folder / "in" / "0000000002").touch()
    until(folder, exists=False)
    gone = run("take", str(folder), "4", "10")

    assert hello.stdout == again.stdout
    assert opened.stdout == wire.frame(wire.OPENED, 1, (0).to_bytes(4, "big"))
    assert (nothing.returncode, nothing.stdout) == (3, b"")
    assert heard == b"down"
    assert "0000000001" not in left
    assert gone.returncode == 4


def test_a_clock_that_is_set_ahead_ends_no_relay(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "asked").touch()
    long_ago = time.time() - 2 * mailbox.HOST_SECONDS
    os.utime(tmp_path / "asked", (long_ago, long_ago))
    (tmp_path / "in" / mailbox.name_of(1)).write_bytes(b"said")
    (tmp_path / "in" / mailbox.name_of(2)).touch()
    (there, to_relay), (from_relay, here) = os.pipe(), os.pipe()

    try:
        mailbox.Pump(str(tmp_path), to_relay, from_relay).run()
        os.close(to_relay)
        heard = os.read(there, 100)
    finally:
        for descriptor in (there, from_relay, here):
            os.close(descriptor)

    assert heard == b"said"
