# SPDX-License-Identifier: Apache-2.0
"""Packages: which one holds a program for a platform, and what the registry says."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

import attrs

from ...domain.runtimes import Platform

_CPUS: Final = {"x86_64": "x64", "aarch64": "arm64"}
_LIBCS: Final = {"glibc": "", "musl": "-musl"}
_EXACT: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")
SHA512_BYTES: Final = 64


@attrs.frozen
class Unusable(Exception):
    """What was asked for is not to be had so; `reason` says why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Bounds:
    """What is taken from a registry at most, in bytes."""

    document_bytes: int = 4 * 1024 * 1024
    tarball_bytes: int = 1024 * 1024 * 1024
    program_bytes: int = 2 * 1024 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Package:
    """A program that comes in one package for each platform."""

    stem: str
    """What the names of its packages begin with."""
    member: str
    """The program in the tarball."""

    def name_for(self, platform: Platform) -> str:
        """Return the package's name.

        Raises:
            Unusable: There is none for that platform.
        """
        cpu, libc = _CPUS.get(platform.machine), _LIBCS.get(platform.libc)
        if platform.system != "linux" or cpu is None or libc is None:
            raise Unusable("no package is known for that platform")
        return f"{self.stem}-linux-{cpu}{libc}"

    @property
    def scope(self) -> str:
        """The part of the name that registries are chosen by."""
        return self.stem.split("/")[0]

    @property
    def program(self) -> str:
        """The program's own name."""
        return self.member.rpartition("/")[2]


PACKAGES: Final[Mapping[str, Package]] = {
    "claude_code": Package(stem="@anthropic-ai/claude-code", member="package/claude"),
}


@attrs.frozen(kw_only=True)
class Published:
    """What the registry says of one version of a package."""

    tarball: str
    """Its URL."""
    integrity: str
    """As the registry says it."""
    sha512: bytes


def document_path(package: str, version: str) -> str:
    """Return the path of what a registry says of a version.

    Raises:
        Unusable: The version is not exact.
    """
    if not _EXACT.fullmatch(version):
        raise Unusable("an exact version is needed, as 1.2.3")
    return f"/{quote(package, safe='@')}/{quote(version, safe='')}"


def read_document(text: bytes, *, package: str, version: str) -> Published:
    """Read what a registry says.

    Raises:
        Unusable: It is of another package, or names no sha512.
    """
    try:
        words = cast("dict[str, object]", json.loads(text))
        told = (words["name"], words["version"])
        dist = cast("dict[str, object]", words["dist"])
        tarball, integrity = dist["tarball"], dist.get("integrity", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Unusable("the registry's answer cannot be read") from None
    if told != (package, version):
        raise Unusable("the registry answered with another package or version")
    if not isinstance(tarball, str) or not isinstance(integrity, str):
        raise Unusable("the registry's answer cannot be read")
    return Published(tarball=tarball, integrity=integrity, sha512=_sha512(integrity))


def addresses(tarball: str, *, registry: str) -> tuple[str, ...]:
    """Return where the tarball may be had, the likeliest place first.

    A mirror may pass on the addresses of what it mirrors, which may be out of reach.
    """
    there, here = urlsplit(tarball), urlsplit(registry)
    if there.netloc == here.netloc:
        return (tarball,)
    path = here.path.rstrip("/") + there.path
    return (urlunsplit((here.scheme, here.netloc, path, "", "")), tarball)


def _sha512(integrity: str) -> bytes:
    """Return the sha512 of an integrity value, which may hold several digests."""
    for word in integrity.split():
        algorithm, _, encoded = word.partition("-")
        if algorithm != "sha512":
            continue
        try:
            digest = base64.b64decode(encoded.partition("?")[0], validate=True)
        except binascii.Error:
            continue
        if len(digest) == SHA512_BYTES:
            return digest
    raise Unusable("the registry names no sha512 for it")
