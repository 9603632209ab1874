# SPDX-License-Identifier: Apache-2.0
"""Rights: how a test obeys the permissions of files, also where root runs it.

Root's right to pass them by is a capability of each thread. It is set aside in the
calling thread, and with it in all threads that start meanwhile.
"""

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
VERSION = 0x20080522

_Words = ctypes.c_uint32 * 6
"""Effective, permitted and inheritable, of the lower and the upper capabilities."""


@contextmanager
def obeyed() -> Generator[None]:
    """Obey permissions as any user has to."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION, 0)
    before = _Words()
    _called(libc.capget(header, before))
    without = _Words(*before)
    without[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    _called(libc.capset(header, without))
    try:
        yield
    finally:
        _called(libc.capset(header, before))


def _called(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
