# SPDX-License-Identifier: Apache-2.0
"""What a supervisor is asked to run, as JSON, and what becomes of it."""

from __future__ import annotations

import base64
import json
import os
from typing import cast

from .accounts import find_account
from .launching import NotStarted, Program
from .processes import MARKER, initial_environment

_KINDS: dict[str, tuple[type, ...]] = {
    "argv": (list,),
    "cwd": (str,),
    "env": (dict,),
    "user": (str, type(None)),
    "timeout_seconds": (int, float),
    "grace_seconds": (int, float),
    "output_bytes_max": (int,),
    "stdin_path": (str, type(None)),
    "stdin_base64": (str,),
}
_OPTIONAL: dict[str, dict[str, tuple[type, ...]]] = {
    "last_line": {"key": (str,), "value": (str,), "seconds": (int, float)},
    "silence": {"seconds": (int, float), "paths": (list,)},
}
"""What ends the run early, with the keys of each."""


class Misused(Exception):
    """The call or its request is none; the text says why."""


def read_request(text: bytes) -> dict[str, object]:
    """Return the request that `text` holds.

    Raises:
        Misused: It holds none.
    """
    try:
        request = json.loads(text.decode("utf-8", "surrogatepass"))
    except ValueError as fault:
        raise Misused("the request is no JSON: %s" % fault) from None
    if not isinstance(request, dict):
        raise Misused("the request is no JSON object")
    found = cast("dict[str, object]", request)
    for key, kinds in _KINDS.items():
        if not isinstance(found.get(key), kinds):
            raise Misused("%s is missing or of another kind" % key)
    for key in found:
        if key not in _KINDS and key not in _OPTIONAL:
            raise Misused("%s is unknown" % key)
    for key, fields in _OPTIONAL.items():
        if key in found:
            _check_fields(key, found[key], fields)
    if not found["argv"]:
        raise Misused("argv is empty")
    return found


def _check_fields(key: str, value: object, fields: dict[str, tuple[type, ...]]) -> None:
    words = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if set(words) != set(fields):
        raise Misused("%s does not have its fields" % key)
    for name, kinds in fields.items():
        if not isinstance(words[name], kinds):
            raise Misused("%s.%s is of another kind" % (key, name))


def to_program(request: dict[str, object]) -> Program:
    """Return what is to be run, with the mark of its run in its environment.

    Raises:
        NoSuchAccount: The command's user cannot be had.
    """
    account = find_account(cast("str | None", request["user"]))
    env = initial_environment()
    if account is not None:
        env[b"HOME"] = os.fsencode(account.home)
    for name, value in cast("dict[str, str]", request["env"]).items():
        env[_to_bytes(name)] = _to_bytes(value)
    env[MARKER] = str(request["mark"]).encode()
    return Program(
        argv=[_to_bytes(word) for word in cast("list[str]", request["argv"])],
        cwd=_to_bytes(cast("str", request["cwd"])),
        env=env,
        account=account,
    )


def open_stdin(request: dict[str, object], folder: str) -> int:
    """Return what the command reads: a file, the given bytes, or nothing.

    Given bytes are in a file of `folder` that has no name any more: it goes when
    the command and we have closed it.

    Raises:
        NotStarted: The file cannot be read.
    """
    path = cast("str | None", request["stdin_path"])
    if path is not None:
        try:
            return os.open(_to_bytes(path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as fault:
            raise NotStarted("stdin %s: %s" % (path, fault.strerror)) from None
    given = base64.b64decode(cast("str", request["stdin_base64"]))
    if not given:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    name = os.path.join(folder, "stdin")
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(name)
    view = memoryview(given)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _to_bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")
