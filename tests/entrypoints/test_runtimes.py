# SPDX-License-Identifier: Apache-2.0
"""`livery runtimes`: fetched once, listed, verified, and removed when told to."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ..runtimes.registry import PACKAGE, VERSION, integrity, program_text, tarball
from .command_lines import Livery

PACKED = tarball(program_text(1000))


class Registry(BaseHTTPRequestHandler):
    """Holds one version for glibc and for musl."""

    def do_GET(self) -> None:
        name, _, last = self.path.removeprefix("/").rpartition("/")
        package = name.replace("%2F", "/")
        status, body = 200, PACKED
        if last == VERSION and package in (PACKAGE, f"{PACKAGE}-musl"):
            port = self.server.server_address[1]
            dist = {
                "tarball": f"http://127.0.0.1:{port}/x.tgz",
                "integrity": integrity(PACKED),
            }
            document = {"name": package, "version": VERSION, "dist": dist}
            body = json.dumps(document).encode()
        elif last != "x.tgz":
            status, body = 404, b""
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", url)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield tmp_path / "cache" / "livery" / "runtimes"
        server.shutdown()
        thread.join()


def fetch(livery: Livery, *words: str) -> Path:
    """Fetch, and return where the last program is."""
    ended = livery(
        "runtimes", "fetch", "claude_code", VERSION, "--machine", "x86_64", *words
    )
    assert ended.status == 0, ended.err
    return Path(ended.out.split()[-1])


def test_a_program_is_fetched_for_each_libc(livery: Livery, cache: Path) -> None:
    path = fetch(livery, "--libc", "glibc", "--libc", "musl")

    assert path == cache / "claude_code" / VERSION / "linux-x86_64-musl" / "claude"
    listed = livery("runtimes", "list")
    assert listed.status == 0
    for word in ("linux-x86_64-glibc", "linux-x86_64-musl", f"{PACKAGE}@{VERSION}"):
        assert word in listed.out


def test_an_empty_cache_is_told(livery: Livery) -> None:
    told = {"list": "no program", "verify": "no program", "prune": "Nothing was"}
    for command, words in told.items():
        ended = livery("runtimes", command)
        assert ended.status == 0
        assert words in ended.out


def test_what_is_not_there_is_told_in_words(livery: Livery) -> None:
    ended = livery("runtimes", "fetch", "claude_code", "9.9.9")

    assert ended.status == 2
    assert "cannot be had: the registry has no such version" in ended.err


def test_a_changed_program_is_told_and_pruned(livery: Livery) -> None:
    path = fetch(livery)
    good = livery("runtimes", "verify")
    path.chmod(0o755)
    path.write_bytes(b"other")
    path.chmod(0o555)

    wrong = livery("runtimes", "verify")
    pruned = livery("runtimes", "prune")

    assert (good.status, wrong.status) == (0, 1)
    assert f"claude_code {VERSION} linux-x86_64-glibc: good" in good.out
    assert "was changed" in wrong.err
    assert "removed" in pruned.out
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        ((), True),
        (("--version", "9.9.9"), True),
        (("--version", VERSION), False),
        (("--all",), False),
    ],
)
def test_good_programs_are_pruned_when_they_are_named(
    livery: Livery, words: tuple[str, ...], stays: bool
) -> None:
    path = fetch(livery)

    assert livery("runtimes", "prune", *words).status == 0

    assert path.exists() is stays


def test_what_was_cut_off_is_listed_and_pruned(livery: Livery, cache: Path) -> None:
    fetch(livery)
    left = cache / ".part-claude_code-1.2.3-linux-x86_64-glibc-00"
    left.mkdir(mode=0o700)

    listed = livery("runtimes", "list")
    verified = livery("runtimes", "verify")
    livery("runtimes", "prune")

    assert "cut off" in listed.err
    assert verified.status == 1
    assert not left.exists()


def test_a_cache_that_others_may_read_is_refused(livery: Livery, cache: Path) -> None:
    fetch(livery)
    cache.chmod(0o755)

    for command in ("list", "verify", "prune"):
        ended = livery("runtimes", command)
        assert ended.status == 2
        assert "has the mode 0755" in ended.err
