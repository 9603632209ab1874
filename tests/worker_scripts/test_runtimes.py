# SPDX-License-Identifier: Apache-2.0
"""The script that keeps a sandbox's programs, on the oldest Python and on ours."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from livery.adapters.worker_scripts import program

PROGRAM = b"#!/bin/sh\necho '1.2.3 (Fake)'\nexit 0\n" + os.urandom(300_000)
SHA256 = hashlib.sha256(PROGRAM).hexdigest()
CHUNK = 64 * 1024


BLOCK = tarfile.BLOCKSIZE


def in_tar(content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo("package/claude")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@attrs.define
class Script:
    """The script, asked about one program below `folder`."""

    python: str
    folder: Path
    packed: bytes = gzip.compress(PROGRAM)
    offset: int = 0

    @property
    def place(self) -> Path:
        return self.folder / f"programs-{os.geteuid()}" / "claude_code-1.2.3"

    def words(self, **words: Any) -> dict[str, Any]:
        return {
            "root": str(self.folder / "programs"),
            "folder": "claude_code-1.2.3",
            "program": "claude",
            "sha256": SHA256,
            "size": len(PROGRAM),
            "offset": self.offset,
            "packed_size": len(self.packed),
            "packed_sha256": hashlib.sha256(self.packed).hexdigest(),
            "chunk_bytes": CHUNK,
            "stager": "anna",
            "stale_seconds": 60.0,
            "stall_seconds": 0.2,
            "wait_seconds": 0.0,
            "known": None,
            "keeps_parts": False,
            **words,
        }

    def ask(self, call: str, **words: Any) -> dict[str, Any]:
        file = self.folder / "runtimes.py"
        file.write_bytes(program("runtimes"))
        ended = subprocess.run(
            [self.python, "-I", "-S", str(file), call],
            input=json.dumps(self.words(**words)).encode(),
            capture_output=True,
            check=True,
        )
        assert not ended.stderr
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    def send(self, folder: str, *, without: frozenset[int] = frozenset()) -> None:
        for number, begin in enumerate(range(0, len(self.packed), CHUNK)):
            if number not in without:
                path = Path(folder, f"{number:06d}")
                path.write_bytes(self.packed[begin : begin + CHUNK])

    def installed(self) -> dict[str, Any]:
        self.send(self.ask("begin")["parts"])
        assert self.ask("unpack")["version"] == "1.2.3 (Fake)"
        return self.ask("install")


@pytest.fixture
def script(python: str, tmp_path: Path) -> Script:
    return Script(python, tmp_path)


def test_it_tells_what_the_sandbox_is(script: Script) -> None:
    found = script.ask("look")

    assert found["system"] == "Linux"
    assert found["machine"] == os.uname().machine
    assert found["libc"].split()[0] in ("glibc", "musl")


@pytest.mark.parametrize("archive", [False, True])
def test_parts_become_a_program(script: Script, archive: bool) -> None:
    if archive:
        script.packed, script.offset = in_tar(PROGRAM), BLOCK
    begun = script.ask("begin")
    script.send(begun["parts"])

    unpacked = script.ask("unpack")
    installed = script.ask("install")

    assert begun["present"] == []
    assert unpacked == {
        "state": "unpacked",
        "sha256": SHA256,
        "version": "1.2.3 (Fake)",
    }
    assert Path(installed["path"]).read_bytes() == PROGRAM
    assert sorted(os.listdir(script.place)) == ["claude", "lock"]
    assert script.place.stat().st_mode & 0o777 == 0o700


def test_what_is_installed_is_found_and_what_is_known_is_not_read(
    script: Script,
) -> None:
    installed = script.installed()

    found = script.ask("begin", stager="bert")
    known = script.ask("begin", stager="bert", known=found["identity"])

    assert (found["state"], found["sha256"]) == ("found", SHA256)
    assert found["identity"] == installed["identity"]
    assert known["state"] == "known"


def test_one_that_changed_is_read_again(script: Script) -> None:
    installed = script.installed()
    Path(installed["path"]).write_bytes(b"other")

    found = script.ask("begin", known=installed["identity"])

    assert found["sha256"] == hashlib.sha256(b"other").hexdigest()
    assert found["version"] == "", "what is not the program is not run"


def test_parts_that_are_there_are_told_and_half_ones_are_not(script: Script) -> None:
    parts = script.ask("begin")["parts"]
    script.send(parts, without=frozenset({2}))
    Path(parts, "000001").write_bytes(b"half")

    again = script.ask("begin")

    count = -(-len(script.packed) // CHUNK)
    assert again["present"] == [n for n in range(count) if n not in (1, 2)]


def test_parts_of_another_form_are_not_taken(script: Script) -> None:
    script.send(script.ask("begin")["parts"])
    script.packed, script.offset = in_tar(PROGRAM), BLOCK

    assert script.ask("begin")["present"] == []


def test_another_is_busy_until_it_is_silent_for_long(script: Script) -> None:
    script.ask("begin")

    busy = script.ask("begin", stager="bert")
    taken_over = script.ask("begin", stager="bert", stale_seconds=0.0)
    late = [script.ask(call) for call in ("unpack", "install", "abandon")]

    assert busy == {"state": "busy", "stager": "anna"}
    assert taken_over["state"] == "begun"
    assert [found["state"] for found in late] == ["not_the_stager"] * 3


def test_a_lock_keeps_two_calls_apart(script: Script) -> None:
    script.ask("begin")
    holder = "import fcntl,sys;f=open(sys.argv[1]);fcntl.flock(f,2);print(1,flush=True);input()"
    with subprocess.Popen(
        [script.python, "-c", holder, str(script.place / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()

        found = [script.ask("begin", wait_seconds=0.2), script.ask("unpack")]

        other.communicate(b"\n")
    assert [one["state"] for one in found] == ["busy", "busy"]


@pytest.mark.parametrize("keeps", [True, False])
def test_an_abandoned_staging_leaves_what_it_should(
    script: Script, keeps: bool
) -> None:
    script.send(script.ask("begin")["parts"])

    script.ask("abandon", keeps_parts=keeps)

    begun = script.ask("begin", stager="bert")
    assert bool(begun["present"]) is keeps


def test_to_abandon_what_never_began_is_nothing(script: Script) -> None:
    assert script.ask("abandon") == {"state": "abandoned"}


def corrupted(packed: bytes) -> bytes:
    return packed[:1000] + b"xxxx" + packed[1004:]


def cut(packed: bytes) -> bytes:
    return packed[:-2000]


@pytest.mark.parametrize("damage", [corrupted, cut])
def test_damaged_parts_leave_nothing(
    script: Script, damage: Callable[[bytes], bytes]
) -> None:
    script.packed = damage(script.packed)
    script.send(script.ask("begin")["parts"])

    found = script.ask("unpack")

    assert found["state"] == "damaged" or found["sha256"] != SHA256
    assert found.get("version", "") == ""
    assert os.listdir(script.place) == ["lock"]


def test_parts_that_come_after_the_refusal_are_cleared_too(script: Script) -> None:
    script.packed = script.packed[: CHUNK // 2] + bytes(len(script.packed))
    parts = script.ask("begin")["parts"]
    script.send(parts)
    assert script.ask("unpack")["state"] == "damaged"

    os.mkdir(parts, 0o700)
    script.send(parts, without=frozenset({0}))
    script.ask("abandon")

    assert os.listdir(script.place) == ["lock"]


@pytest.mark.parametrize("words", [{"size": 100}, {"offset": 7}])
def test_another_place_than_the_programs_is_never_run(
    script: Script, words: dict[str, Any]
) -> None:
    script.send(script.ask("begin")["parts"])

    found = script.ask("unpack", **words)

    assert found["state"] == "damaged" or found["version"] == ""
    assert os.listdir(script.place) == ["lock"]


def test_a_part_that_does_not_come_is_told_and_the_others_stay(script: Script) -> None:
    script.send(script.ask("begin")["parts"], without=frozenset({1}))

    assert script.ask("unpack")["state"] == "stalled"

    again = script.ask("begin")
    script.send(again["parts"])
    assert 0 in again["present"]
    assert script.ask("unpack")["sha256"] == SHA256


def test_a_part_is_waited_for(script: Script) -> None:
    parts = script.ask("begin")["parts"]
    script.send(parts, without=frozenset({1}))

    late = threading.Timer(0.5, script.send, [parts])
    late.start()
    found = script.ask("unpack", stall_seconds=60.0)
    late.join()

    assert found["sha256"] == SHA256


def test_a_folder_that_is_a_link_is_refused(script: Script) -> None:
    (script.folder / "elsewhere").mkdir(mode=0o700)
    script.place.parent.symlink_to(script.folder / "elsewhere")

    assert script.ask("begin")["state"] == "forbidden"
    assert not os.listdir(script.folder / "elsewhere")


def test_a_folder_that_cannot_be_made_is_told(script: Script) -> None:
    found = script.ask("begin", root="/proc/nothing")

    assert found["state"] == "forbidden"
    assert found["path"].startswith("/proc/nothing")


def test_a_disk_without_room_is_told(script: Script) -> None:
    found = script.ask("begin", size=10**16)

    assert found["state"] == "full"
    assert "needed are" in found["reason"]


def test_a_link_to_a_program_is_followed_where_it_stands(script: Script) -> None:
    path = script.folder / "real"
    path.write_bytes(PROGRAM)
    path.chmod(0o755)
    (script.folder / "link").symlink_to(path)

    found = script.ask("check", path=str(script.folder / "link"))

    assert (found["state"], found["version"]) == ("found", "1.2.3 (Fake)")


@pytest.mark.parametrize(
    ("name", "state"), [("nothing", "missing"), (".", "forbidden")]
)
def test_where_no_program_stands_it_is_told(
    script: Script, name: str, state: str
) -> None:
    assert script.ask("check", path=str(script.folder / name))["state"] == state


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (b"#!/bin/sh\nexit 3\n", 0o755, "ended with 3"),
        (b"#!/bin/sh\n", 0o755, "ended with 0"),
        (b"#!/nowhere\n", 0o755, "No such file"),
        (b"#!/bin/sh\necho 1.2.3\n", 0o644, "Permission denied"),
    ],
)
def test_a_program_that_does_not_run_is_told(
    script: Script, text: bytes, mode: int, told: str
) -> None:
    path = script.folder / "program"
    path.write_bytes(text)
    path.chmod(mode)

    sha256 = hashlib.sha256(text).hexdigest()
    found = script.ask("check", path=str(path), sha256=sha256)

    assert found["state"] == "not_run"
    assert told in found["reason"]


def test_what_does_not_run_is_not_left_staged(script: Script) -> None:
    text = b"#!/bin/sh\nexit 3\n"
    script.packed = gzip.compress(text)
    words = {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    script.send(script.ask("begin", **words)["parts"])

    assert script.ask("unpack", **words)["state"] == "not_run"
    assert os.listdir(script.place) == ["lock"]


@pytest.mark.parametrize("words", [[], ["begin", "again"], ["nothing"]])
def test_a_call_that_is_none_is_misused(script: Script, words: list[str]) -> None:
    ended = subprocess.run(
        [script.python, "-I", "-S", "-c", program("runtimes").decode(), *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )

    assert ended.returncode == 2
    assert json.loads(ended.stdout)["state"] == "misused"
