# SPDX-License-Identifier: Apache-2.0
"""Cases for `put`, `get` and `stat`: files, under exactly their names.

A name is used as it is, and one that leaves the folder is refused. A file has
the mode and the owner that it should have. What is missing and what is no file
is told apart.
"""

import anyio

from ..required.sandbox import (
    Command,
    Exited,
    FileKind,
    FileMissing,
    NotAFile,
    PathRefused,
)
from .cases import Case, check_cases
from .sandbox_context import (
    PATIENCE_SECONDS,
    SandboxContext,
    caught,
    fresh_folder,
    get,
    pieces,
    put,
    run,
    run_in,
)

NAMES = (
    "plain",
    "two words",
    "trailing ",
    "trailing",
    " leading",
    "文件.txt",
    "e\u0301",
    "\u00e9",
    "it's",
    'say "so"',
    "new\nline",
    "tab\t",
    "-n",
    "--help",
    "back\\slash",
    "$HOME",
    "*",
    "..hidden",
    "...",
    "Case",
    "case",
    "a:b",
    "x" * 200,
)
OUTSIDE = ("../out", "sub/../../out", "sub/../in", "..", "sub/..")


async def the_mode_is_kept(context: SandboxContext) -> None:
    """A file has the mode that was asked for, whatever the mask."""
    folder = await fresh_folder(context)
    for mode in (0o600, 0o644, 0o666, 0o755, 0o777, 0o400):
        path = f"{folder}/{mode:o}"
        await context.sandbox.put(path, pieces(b"#!/bin/sh\necho ran\n"), mode=mode)
        stat = await context.sandbox.stat(path)
        assert (stat.kind, stat.mode) == (FileKind.FILE, mode), path

    ended = await context.sandbox.exec(
        Command(
            argv=(f"{context.sandbox.workdir}/{folder}/755",),
            timeout_seconds=PATIENCE_SECONDS,
        )
    )
    assert (ended.how, ended.stdout.kept) == (Exited(0), b"ran\n"), ended


async def parents_are_made(context: SandboxContext) -> None:
    """Folders on the way are made, for a small file as for a large one."""
    folder = await fresh_folder(context)
    for size in (1, 2_000_000):
        path = f"{folder}/{size}/b c/d"
        await put(context, path, bytes(size))
        assert (await context.sandbox.stat(path)).size == size


async def files_belong_to_the_user(context: SandboxContext) -> None:
    """What was put, and the folders made for it, the user can change."""
    folder = await fresh_folder(context)
    await put(context, f"{folder}/new/file", b"one")

    await run(context, f"cd {folder}/new && printf two >> file && : > other")

    assert await get(context, f"{folder}/new/file") == b"onetwo"


async def names_are_used_as_they_are(context: SandboxContext) -> None:
    """Any legal name works, and two different names are two files."""
    folder = await fresh_folder(context)
    for number, name in enumerate(NAMES):
        start = f"{context.sandbox.workdir}/" if number % 2 else ""
        await put(context, f"{start}{folder}/{name}", f"{number} {name}".encode())

    ended = await run_in(
        context,
        folder,
        r'for f in * .[!.]* ..?*; do test -e "./$f" && printf "%s\0" "$f"; done; true',
    )
    listed = ended.stdout.kept.decode().split("\0")[:-1]

    assert sorted(listed) == sorted(NAMES), ended
    for number, name in enumerate(NAMES):
        expected = f"{number} {name}".encode()
        assert await get(context, f"{folder}/{name}") == expected, name
        assert (await context.sandbox.stat(f"{folder}/{name}")).size == len(expected)


async def names_that_lead_out_are_refused(context: SandboxContext) -> None:
    """`..` in a path is refused before anything is touched."""
    folder = await fresh_folder(context)
    for outside in OUTSIDE:
        for path in (f"{folder}/{outside}", f"{context.sandbox.workdir}/{outside}"):
            for act in (
                put(context, path, b"x"),
                get(context, path),
                context.sandbox.stat(path),
            ):
                fault = await caught(act)
                assert isinstance(fault, PathRefused), (path, fault)
    assert await run(context, f"ls -A {folder}") == b""


async def a_missing_file_is_one(context: SandboxContext) -> None:
    """What is not there is told as missing, and as nothing else."""
    folder = await fresh_folder(context)
    for path in (f"{folder}/none", f"{folder}/no/such", f"{folder}/ none\n"):
        for act in (get(context, path), context.sandbox.stat(path)):
            fault = await caught(act)
            assert isinstance(fault, FileMissing), (path, fault)


async def a_folder_is_no_file(context: SandboxContext) -> None:
    """A folder cannot be read or replaced as a file."""
    folder = await fresh_folder(context)
    await run(context, f"mkdir {folder}/sub {folder}/full; : > {folder}/full/x")

    for sub in ("sub", "full"):
        for act in (
            get(context, f"{folder}/{sub}"),
            put(context, f"{folder}/{sub}", b"x"),
            put(context, f"{folder}/{sub}", bytes(2_000_000)),
        ):
            fault = await caught(act)
            assert isinstance(fault, NotAFile), fault
    assert await run(context, f"ls -A {folder} {folder}/full") == (
        f"{folder}:\nfull\nsub\n\n{folder}/full:\nx\n".encode()
    )
    assert (await context.sandbox.stat(f"{folder}/sub")).kind is FileKind.FOLDER


async def a_pipe_does_not_hang(context: SandboxContext) -> None:
    """A pipe or device that was asked to be read is refused at once."""
    folder = await fresh_folder(context)
    await run(context, f"mkfifo {folder}/pipe")

    with anyio.fail_after(20.0):
        fault = await caught(get(context, f"{folder}/pipe"))
        stat = await context.sandbox.stat(f"{folder}/pipe")

    assert isinstance(fault, NotAFile), fault
    assert stat.kind is FileKind.OTHER


async def links_are_followed_by_readers_alone(context: SandboxContext) -> None:
    """`get` follows a link, `stat` tells of it, `put` replaces it."""
    folder = await fresh_folder(context)
    await put(context, f"{folder}/target", b"target")
    await run(
        context, f"cd {folder} && ln -s target link && ln -s no-such-file dangling"
    )

    assert await get(context, f"{folder}/link") == b"target"
    for link in ("link", "dangling"):
        assert (await context.sandbox.stat(f"{folder}/{link}")).kind is FileKind.LINK
    fault = await caught(get(context, f"{folder}/dangling"))
    assert isinstance(fault, FileMissing), fault

    await put(context, f"{folder}/link", b"new")

    assert await get(context, f"{folder}/link") == b"new"
    assert await get(context, f"{folder}/target") == b"target"


CASES: tuple[Case[SandboxContext], ...] = check_cases(
    (
        Case(name="the mode is kept", run=the_mode_is_kept),
        Case(name="parents are made", run=parents_are_made),
        Case(
            name="files belong to the user",
            run=files_belong_to_the_user,
            field_cases=("FC-067",),
        ),
        Case(
            name="names are used as they are",
            run=names_are_used_as_they_are,
            field_cases=("FC-069",),
        ),
        Case(
            name="names that lead out are refused",
            run=names_that_lead_out_are_refused,
            field_cases=("FC-069",),
        ),
        Case(
            name="a missing file is one",
            run=a_missing_file_is_one,
            field_cases=("FC-072",),
        ),
        Case(name="a folder is no file", run=a_folder_is_no_file),
        Case(name="a pipe does not hang", run=a_pipe_does_not_hang),
        Case(
            name="links are followed by readers alone",
            run=links_are_followed_by_readers_alone,
        ),
    )
)
