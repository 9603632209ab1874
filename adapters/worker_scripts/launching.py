# SPDX-License-Identifier: Apache-2.0
"""Programs, and how one becomes a process.

A program of this process's own account is started by the kernel's short way, which
copies nothing of Python: half the time of a fork. For another account, and where
Python or libc have no such way, a fork becomes it step by step.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from typing import Callable, NamedTuple, NoReturn

from .accounts import Account, become

_NOT_STARTED = 127
_STANDARD = 3
"""Descriptors below are standard input, output and error."""
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM)
_NO_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC)
_MISSING, _OTHER = b"p", b"o"
"""How a fork's report begins: it is the program that cannot be run, or another thing."""


class NotStarted(Exception):
    """The program never ran; the text says why."""

    def __init__(self, reason: str, no_program: bool = False) -> None:
        super().__init__(reason)
        self.no_program = no_program
        """Whether the program itself is not there, or cannot be executed."""


class Program(NamedTuple):
    """What is to be run, ready for the kernel."""

    argv: list[bytes]
    cwd: bytes
    env: dict[bytes, bytes]
    account: Account | None


def start(
    program: Program,
    streams: tuple[int, int, int],
    *,
    open_files: tuple[int, int] | None = None,
) -> int:
    """Start `program` in a session of its own and return its process id.

    No thread may run beside: folder and limits of this process are others for a moment.

    Raises:
        NotStarted: There is no such program, folder or user, or no room.
    """
    if program.account is None and min(streams) >= _STANDARD:
        try:
            return _spawn(program, streams, open_files)
        except NotImplementedError:
            pass  # The libc has no sessions there.
    return _fork(program, streams, open_files)


def _spawn(
    program: Program,
    streams: tuple[int, int, int],
    open_files: tuple[int, int] | None,
) -> int:
    try:
        own_folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as fault:
        raise NotStarted("no process could be made: %s" % fault.strerror) from None
    own_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    step, is_last = "folder %s" % _shown(program.cwd), False
    try:
        os.chdir(program.cwd)
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        step, is_last = "program %s" % _shown(program.argv[0]), True
        return _at_its_path(
            program,
            lambda path: os.posix_spawn(
                path,
                program.argv,
                program.env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, descriptor, number)
                    for number, descriptor in enumerate(streams)
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=signal.valid_signals(),
            ),
        )
    except OSError as fault:
        if fault.errno in _NO_ROOM:
            step = "no process could be made"
        no_program = is_last and fault.errno in _NO_PROGRAM
        raise NotStarted("%s: %s" % (step, fault.strerror), no_program) from None
    except ValueError as fault:
        raise NotStarted("%s: %s" % (step, fault)) from None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, own_limit)
        os.fchdir(own_folder)
        os.close(own_folder)


def _fork(
    program: Program,
    streams: tuple[int, int, int],
    open_files: tuple[int, int] | None,
) -> int:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError as fault:
        os.close(reading)
        os.close(writing)
        raise NotStarted("no process could be made: %s" % fault.strerror) from None
    if pid == 0:
        _turn_into(program, streams, writing, open_files)
    os.close(writing)
    with os.fdopen(reading, "rb") as report:
        reason = report.read()
    if reason:
        os.waitpid(pid, 0)
        text = reason[1:].decode("utf-8", "replace")
        raise NotStarted(text, reason[:1] == _MISSING)
    return pid


def _turn_into(
    program: Program,
    streams: tuple[int, int, int],
    report: int,
    open_files: tuple[int, int] | None,
) -> NoReturn:
    """Become `program`, or write to `report` why not."""
    step, is_last = "session", False
    try:
        signal.set_wakeup_fd(-1)
        _restore_signals()
        os.setsid()
        # First out of the way of 0 to 2, so that none overwrites another.
        spare = [os.dup(descriptor) for descriptor in streams]
        for number, descriptor in enumerate(spare):
            os.dup2(descriptor, number, inheritable=True)
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        step = "user"
        become(program.account)
        step = "folder %s" % _shown(program.cwd)
        os.chdir(program.cwd)
        step, is_last = "program %s" % _shown(program.argv[0]), True
        _at_its_path(program, lambda path: _execute(path, program))
    except OSError as fault:
        kind = _MISSING if is_last and fault.errno in _NO_PROGRAM else _OTHER
        os.write(report, kind + ("%s: %s" % (step, fault.strerror)).encode())
    except Exception as fault:  # whatever it is, the fork must not live on
        os.write(report, _OTHER + ("%s: %s" % (step, fault)).encode())
    finally:
        os._exit(_NOT_STARTED)


def _at_its_path(program: Program, act: Callable[[bytes], int]) -> int:
    """Act on the program where execvp would find it.

    Not by os.execvpe, which imports modules when it is called: the account may not
    read them.
    """
    name = program.argv[0]
    folders = program.env.get(b"PATH", os.defpath.encode()).split(b":")
    paths = [os.path.join(folder, name) for folder in folders]
    refusal: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in [name] if b"/" in name else paths:
        try:
            os.stat(path)
            return act(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as fault:
            refusal = fault
    raise refusal


def _execute(path: bytes, program: Program) -> NoReturn:
    os.execve(path, program.argv, program.env)


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")[:200]


def _restore_signals() -> None:
    for number in range(1, signal.NSIG):
        try:
            if signal.getsignal(number) is not signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # not one that can be set: KILL, STOP, libc's own
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
