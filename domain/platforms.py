# SPDX-License-Identifier: Apache-2.0
"""Platforms: what a sandbox says of itself, and whether a program starts there.

A program built for one C library does not start on another, and one built for a
newer glibc does not start on an older. Both are known before a byte is sent.
"""

import re
from typing import ClassVar, Final

import attrs

from .refusals import Refusal
from .runtimes import Platform

GlibcVersion = tuple[int, int]

GLIBC: Final = "glibc"
MUSL: Final = "musl"
NO_LIBC: Final = "none"
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC: Final = re.compile(r"glibc (\d{1,4})\.(\d{1,4})")


@attrs.frozen(kw_only=True)
class Place:
    """What is known of the machine that a program shall run on."""

    platform: Platform
    glibc: GlibcVersion | None = None


@attrs.frozen
class LibcTooOld(Refusal):
    """The program would not start: it needs a newer C library."""

    kind: ClassVar[str] = "libc_too_old"
    message: ClassVar[str] = (
        "{name} needs glibc {needed} or newer, the sandbox has {found}."
        " Use an image of a newer distribution."
    )

    name: str
    needed: str
    found: str


@attrs.frozen
class PlatformUnknown(Refusal):
    """What the sandbox's machine is could not be told from what it says."""

    kind: ClassVar[str] = "platform_unknown"
    message: ClassVar[str] = (
        "No {name} is known for a sandbox of system {system!r}, machine {machine!r}"
        " and C library {libc!r}. Use a Linux image for x86_64 or aarch64 with glibc"
        " or musl, or name an executable that is in it."
    )

    name: str
    system: str
    machine: str
    libc: str


def read_place(*, name: str, system: str, machine: str, libc: str) -> Place:
    """Read what a sandbox says of itself: `uname` and "glibc 2.36", "musl" or else.

    Raises:
        PlatformUnknown: Nothing that Livery knows was said.
    """
    known_machine = _MACHINES.get(machine, machine)
    version = _GLIBC.match(libc)
    kind = GLIBC if version else libc.split(" ")[0]
    if system.lower() != "linux" or not machine or kind not in (GLIBC, MUSL):
        raise PlatformUnknown(name, system, machine, libc)
    platform = Platform(system="linux", machine=known_machine, libc=kind)
    glibc = (int(version[1]), int(version[2])) if version else None
    return Place(platform=platform, glibc=glibc)


def check_glibc(place: Place, *, name: str, least: GlibcVersion | None) -> None:
    """Check that a program that needs glibc `least` starts there.

    A place whose glibc tells no version is let through: the program's own first
    words are looked at before it is installed.

    Raises:
        LibcTooOld: It does not.
    """
    if least is None or place.glibc is None or place.glibc >= least:
        return
    raise LibcTooOld(name, _told(least), _told(place.glibc))


def _told(version: GlibcVersion) -> str:
    return "{}.{}".format(*version)
