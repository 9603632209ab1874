# SPDX-License-Identifier: Apache-2.0
"""A folder as a tar file and back: the same tree, and nothing beside it."""

import io
import json
import math
import os
import socket
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.worker_scripts import archive, program
from livery.adapters.worker_scripts.archive import leaves, parts_of

Words = dict[str, object]
Tree = dict[str, tuple[str, int, bytes]]

FILE_MODES = (0o644, 0o755, 0o600, 0o444, 0o000)


@attrs.frozen
class Archiver:
    """The program in a folder of its own."""

    script: Path
    python: str

    def ask(self, *words: str | Path, status: int = 0) -> Words:
        ended = subprocess.run(
            [self.python, "-I", "-S", self.script, *words], capture_output=True
        )
        assert ended.returncode == status, ended
        told = json.loads(ended.stdout)
        assert isinstance(told, dict)
        return told


@pytest.fixture
def archiver(tmp_path: Path, python: str) -> Archiver:
    script = tmp_path / "archive.py"
    script.write_bytes(program("archive"))
    return Archiver(script, python)


def tree_of(folder: Path) -> Tree:
    """Return the kind, mode and content of all that is below a folder."""
    found: Tree = {}
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(parent, name)
            seen = os.lstat(path)
            mode = stat.S_IMODE(seen.st_mode)
            key = os.path.relpath(path, folder)
            if stat.S_ISLNK(seen.st_mode):
                found[key] = ("link", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(seen.st_mode):
                found[key] = ("folder", mode, b"")
            else:
                found[key] = ("file", mode, Path(path).read_bytes())
    return found


def plant(folder: Path) -> None:
    """Make a tree with a bit of everything."""
    (folder / "empty").mkdir(parents=True)
    (folder / "sub/deeper").mkdir(parents=True)
    (folder / "sub").chmod(0o750)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "sub/deeper/data").write_bytes(os.urandom(100_000))
    (folder / "sub/empty").touch()
    (folder / "link").symlink_to("sub/deeper/data")
    (folder / "sub/up").symlink_to("../run.sh")
    (folder / "dangling").symlink_to("nowhere")
    (folder / " odd\n'名\N{SNOWMAN} ").write_text("odd")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_text("no text")


@pytest.mark.case("FC-073")
@pytest.mark.parametrize("ending", ["", "/", "/."])
def test_every_way_to_name_a_folder_gives_the_same_tree(
    archiver: Archiver, tmp_path: Path, ending: str
) -> None:
    plant(tmp_path / "x")

    packed = archiver.ask("pack", f"{tmp_path}/x{ending}", tmp_path / "x.tar")
    unpacked = archiver.ask("unpack", tmp_path / "x.tar", f"{tmp_path}/y{ending}")

    assert packed["state"] == "packed"
    assert packed["skipped_count"] == 0
    assert unpacked["state"] == "unpacked"
    assert tree_of(tmp_path / "y") == tree_of(tmp_path / "x")
    for key in ("files", "folders", "links", "bytes"):
        assert packed[key] == unpacked[key]


def test_the_same_folder_gives_the_same_bytes(
    archiver: Archiver, tmp_path: Path
) -> None:
    plant(tmp_path / "x")

    archiver.ask("pack", tmp_path / "x", tmp_path / "1.tar")
    archiver.ask("pack", tmp_path / "x", tmp_path / "2.tar")

    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_entries_belong_to_nobody(archiver: Archiver, tmp_path: Path) -> None:
    plant(tmp_path / "x")

    archiver.ask("pack", tmp_path / "x", tmp_path / "x.tar")

    with tarfile.open(tmp_path / "x.tar") as tar:
        owners = {(e.uid, e.gid, e.uname, e.gname) for e in tar.getmembers()}
    assert owners == {(0, 0, "", "")}


def test_what_is_no_content_is_left_out_and_told(
    archiver: Archiver, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/file").touch()
    os.mkfifo(tmp_path / "x/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "x/socket"))

    packed = archiver.ask("pack", tmp_path / "x", tmp_path / "x.tar")

    reason = "neither file nor folder nor link"
    assert packed["skipped"] == [["pipe", reason], ["socket", reason]]
    assert packed["skipped_count"] == 2
    assert packed["files"] == 1


@pytest.mark.peer("root")
def test_what_cannot_be_read_is_left_out_and_told(
    archiver: Archiver, public_path: Path
) -> None:
    (public_path / "x/closed").mkdir(parents=True)
    (public_path / "x/secret").write_text("s")
    (public_path / "x/secret").chmod(0)
    (public_path / "x/closed").chmod(0)

    script = public_path / "archive.py"
    script.write_bytes(archiver.script.read_bytes())
    drop = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups"]
    words = ["pack", public_path / "x", public_path / "x.tar"]
    ended = subprocess.run(
        [*drop, "python3", "-I", "-S", script, *words],
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )

    packed = json.loads(ended.stdout)
    assert [name for name, _ in packed["skipped"]] == ["secret", "closed"]
    assert packed["folders"] == 1


def test_a_folder_that_is_not_there_is_an_empty_one_and_told(
    archiver: Archiver, tmp_path: Path
) -> None:
    packed = archiver.ask("pack", tmp_path / "none", tmp_path / "x.tar")
    unpacked = archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert packed["skipped"] == [[".", "No such file or directory"]]
    assert unpacked["state"] == "unpacked"
    assert tree_of(tmp_path / "y") == {}


def test_a_tree_that_is_too_deep_is_packed_as_far_as_it_goes(
    archiver: Archiver, tmp_path: Path
) -> None:
    deep = tmp_path / "x"
    deep.mkdir()
    top = os.open(deep, os.O_RDONLY)
    for _ in range(archive.DEPTH_MAX + 50):
        os.mkdir("d", dir_fd=top)
        below = os.open("d", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)

    packed = archiver.ask("pack", tmp_path / "x", tmp_path / "x.tar")
    unpacked = archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert packed["folders"] == archive.DEPTH_MAX
    assert packed["skipped_count"] == 1
    assert unpacked["folders"] == archive.DEPTH_MAX


def test_more_than_allowed_is_not_packed_at_all(
    archiver: Archiver, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/file").write_bytes(bytes(1001))
    words = ("pack", tmp_path / "x", tmp_path / "x.tar", "--bytes-max")

    refused = archiver.ask(*words, "1000")
    left = (tmp_path / "x.tar").exists()
    packed = archiver.ask(*words, "1001")

    assert refused["state"] == "too_large"
    assert not left
    assert packed["state"] == "packed"


def test_a_name_that_is_taken_is_not_written_to(
    archiver: Archiver, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x.tar").symlink_to("elsewhere")

    told = archiver.ask("pack", tmp_path / "x", tmp_path / "x.tar")

    assert told["state"] == "failed"
    assert not (tmp_path / "elsewhere").exists()


def entry(name: str, **words: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in words.items():
        setattr(made, key, value)
    return made


def write_tar(path: Path, *entries: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w") as tar:
        for one in entries:
            tar.addfile(one, io.BytesIO(bytes(one.size)))


@pytest.mark.parametrize(
    "bad",
    [
        entry("/etc/x"),
        entry("../x"),
        entry("a/../../x"),
        entry("a/.."),
        entry("."),
        entry("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry("link", type=tarfile.SYMTYPE, linkname="../x"),
        entry("a/link", type=tarfile.SYMTYPE, linkname="../../x"),
        entry("a/link", type=tarfile.SYMTYPE, linkname="b/../../../x"),
        entry("hard", type=tarfile.LNKTYPE, linkname="good"),
        entry("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        entry("pipe", type=tarfile.FIFOTYPE),
    ],
    ids=lambda made: f"{made.name}-{made.linkname}",
)
def test_one_bad_entry_and_nothing_is_written(
    archiver: Archiver, tmp_path: Path, bad: tarfile.TarInfo
) -> None:
    write_tar(tmp_path / "x.tar", entry("good", size=3), bad)

    told = archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert told["state"] == "refused"
    assert not (tmp_path / "y").exists()


def test_links_that_lead_out_can_be_kept_and_are_not_followed(
    archiver: Archiver, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    write_tar(
        tmp_path / "x.tar",
        entry("way", type=tarfile.SYMTYPE, linkname=str(outside)),
        entry("way/planted", size=3),
    )

    told = archiver.ask(
        "unpack", tmp_path / "x.tar", tmp_path / "y", "--keep-outside-links"
    )

    assert told["state"] == "unpacked"
    assert list(outside.iterdir()) == []
    assert os.readlink(tmp_path / "y/way") == str(outside)


def test_links_of_the_folder_are_not_followed(
    archiver: Archiver, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    (tmp_path / "y").mkdir()
    (tmp_path / "y/way").symlink_to(outside)
    (tmp_path / "y/file").symlink_to(outside / "file")
    write_tar(tmp_path / "x.tar", entry("way/planted", size=3), entry("file", size=4))

    told = archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert told["state"] == "unpacked"
    assert os.listdir(outside) == ["file"]
    assert (outside / "file").read_text() == "untouched"
    assert (tmp_path / "y/file").read_bytes() == bytes(4)
    assert (tmp_path / "y/way/planted").read_bytes() == bytes(3)


def test_what_has_the_name_gives_way(archiver: Archiver, tmp_path: Path) -> None:
    (tmp_path / "y/was-folder/full").mkdir(parents=True)
    (tmp_path / "y/was-file").touch()
    (tmp_path / "y/other").touch()
    write_tar(
        tmp_path / "x.tar",
        entry("was-folder", size=1, mode=0o640),
        entry("was-file/below", size=1),
    )

    archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    found = {name: kind for name, (kind, _, _) in tree_of(tmp_path / "y").items()}
    assert found == {
        "was-folder": "file",
        "was-file": "folder",
        "was-file/below": "file",
        "other": "file",
    }


def test_a_folder_can_be_replaced_as_a_whole(
    archiver: Archiver, tmp_path: Path
) -> None:
    plant(tmp_path / "x")
    (tmp_path / "y/old/older").mkdir(parents=True)
    (tmp_path / "y/old/older/oldest").touch()
    (tmp_path / "y/old/older").chmod(0o500)
    (tmp_path / "y/link").symlink_to(tmp_path / "x")

    archiver.ask("pack", tmp_path / "x", tmp_path / "x.tar")
    archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y", "--replace")

    assert tree_of(tmp_path / "y") == tree_of(tmp_path / "x")


def test_nothing_is_unpacked_to_act_for_its_owner(
    archiver: Archiver, tmp_path: Path
) -> None:
    write_tar(tmp_path / "x.tar", entry("file", mode=0o6755, size=1))

    archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert stat.S_IMODE((tmp_path / "y/file").stat().st_mode) == 0o755


@pytest.mark.parametrize("time", [2.0**63, -(2.0**63), 1e300, math.inf, math.nan])
def test_a_time_that_no_clock_shows_is_left_away(
    archiver: Archiver, tmp_path: Path, time: float
) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in (("d", tarfile.DIRTYPE), ("d/f", tarfile.REGTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.mode = 0o755
            entry.pax_headers["mtime"] = str(time)
            tar.addfile(entry)

    unpacked = archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert unpacked["state"] == "unpacked"
    assert set(tree_of(tmp_path / "y")) == {"d", "d/f"}


def test_a_read_only_folder_is_filled_first(archiver: Archiver, tmp_path: Path) -> None:
    write_tar(
        tmp_path / "x.tar",
        entry("closed", type=tarfile.DIRTYPE, mode=0o555, mtime=1000),
        entry("closed/file", size=1, mtime=2000),
    )

    archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert stat.S_IMODE((tmp_path / "y/closed").stat().st_mode) == 0o555
    assert (tmp_path / "y/closed").stat().st_mtime == 1000
    assert (tmp_path / "y/closed/file").stat().st_mtime == 2000


@pytest.mark.parametrize("content", [b"", b"no tar file at all" * 100])
def test_what_is_no_archive_is_refused(
    archiver: Archiver, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "x.tar").write_bytes(content)

    told = archiver.ask("unpack", tmp_path / "x.tar", tmp_path / "y")

    assert told["state"] == "refused"
    assert not (tmp_path / "y").exists()


def test_an_archive_that_is_cut_off_is_refused(
    archiver: Archiver, tmp_path: Path
) -> None:
    plant(tmp_path / "x")
    archiver.ask("pack", tmp_path / "x", tmp_path / "x.tar")
    whole = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])

    told = archiver.ask("unpack", tmp_path / "cut.tar", tmp_path / "y")

    assert told["state"] == "refused"
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("pack", "/x"),
        ("unpack", "/x", "/y", "--fast"),
        ("pack", "/x", "/y", "--bytes-max", "many"),
    ],
)
def test_misuse_is_told_with_another_status(
    archiver: Archiver, words: tuple[str, ...]
) -> None:
    assert archiver.ask(*words, status=2)["state"] == "misused"


def test_a_file_that_shrinks_as_it_is_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    with (tmp_path / "file").open("rb") as file:
        steady = archive._Steady(file, 5)

        content = steady.read(3) + steady.read()

    assert content == b"12\0\0\0"
    assert steady.lacked == 3


names = st.lists(
    st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=5).filter(
        lambda name: name not in (".", "..") and len(name.encode(errors="replace")) < 50
    ),
    min_size=1,
    max_size=3,
)


@given(
    st.dictionaries(
        names.map("/".join),
        st.tuples(st.binary(max_size=30), st.sampled_from(FILE_MODES)),
        max_size=8,
    )
)
def test_any_tree_comes_back_as_it_was(files: Mapping[str, tuple[bytes, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "x").mkdir()
        for name, (content, mode) in files.items():
            path = top / "x" / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except (OSError, UnicodeError):
                continue  # Two names of which one would be the other's folder.
            path.chmod(mode)

        archive.pack(os.fsencode(top / "x"), os.fsencode(top / "x.tar"), None)
        archive.unpack(
            os.fsencode(top / "x.tar"),
            os.fsencode(top / "y"),
            replaces=False,
            keeps_outside_links=False,
        )

        if os.geteuid() == 0:
            assert tree_of(top / "y") == tree_of(top / "x")
        else:
            assert set(tree_of(top / "y")) <= set(tree_of(top / "x"))


@given(
    st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=8), st.integers(0, 3)
)
def test_a_link_that_is_let_through_stays_in_the_folder(
    steps: list[str], depth: int
) -> None:
    target = "/".join(steps)
    name = "/".join(["d"] * depth + ["link"])

    if not leaves(name, target):
        where = depth
        for step in parts_of(target):
            where += -1 if step == ".." else 1
            assert where >= 0
