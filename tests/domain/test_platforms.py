# SPDX-License-Identifier: Apache-2.0
"""Platforms: whether a program starts there is known before a byte is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.domain.platforms import (
    LibcTooOld,
    Place,
    PlatformUnknown,
    check_glibc,
    read_place,
)
from livery.domain.runtimes import Platform

NUMBERS = st.integers(0, 9999)
VERSIONS = st.tuples(NUMBERS, NUMBERS)


def place(libc: str, *, machine: str = "x86_64", system: str = "Linux") -> Place:
    return read_place(name="claude_code", system=system, machine=machine, libc=libc)


@pytest.mark.parametrize(
    ("libc", "kind", "version"),
    [
        ("glibc 2.36", "glibc", (2, 36)),
        ("glibc 2.17-326", "glibc", (2, 17)),
        ("glibc", "glibc", None),
        ("musl", "musl", None),
        ("musl 1.2.4", "musl", None),
    ],
)
def test_a_place_is_read_from_what_it_says(
    libc: str, kind: str, version: tuple[int, int] | None
) -> None:
    found = place(libc)

    assert found.platform == Platform(system="linux", machine="x86_64", libc=kind)
    assert found.platform.word == f"linux-x86_64-{kind}"
    assert found.glibc == version


@pytest.mark.parametrize(
    ("said", "read"),
    [("amd64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("s390x",) * 2],
)
def test_one_machine_has_one_name(said: str, read: str) -> None:
    assert place("musl", machine=said).platform.machine == read


@pytest.mark.case("FC-212")
@pytest.mark.parametrize(
    ("system", "machine", "libc"),
    [
        ("Linux", "x86_64", "unknown"),
        ("Linux", "x86_64", ""),
        ("Linux", "", "musl"),
        ("Darwin", "arm64", "glibc 2.36"),
    ],
)
def test_what_is_not_understood_is_refused(
    system: str, machine: str, libc: str
) -> None:
    with pytest.raises(PlatformUnknown, match="claude_code"):
        place(libc, machine=machine, system=system)


@pytest.mark.case("FC-212")
def test_a_glibc_that_is_too_old_is_told_with_both_versions() -> None:
    with pytest.raises(LibcTooOld, match=r"needs glibc 2\.26 or newer.* has 2\.23"):
        check_glibc(place("glibc 2.23"), name="claude_code", least=(2, 26))


@given(found=VERSIONS, least=VERSIONS)
def test_a_program_starts_on_its_glibc_and_every_newer_one(
    found: tuple[int, int], least: tuple[int, int]
) -> None:
    there = place("glibc {}.{}".format(*found))

    try:
        check_glibc(there, name="x", least=least)
    except LibcTooOld:
        assert found < least
    else:
        assert found >= least


def test_what_says_no_version_is_let_through() -> None:
    for libc in ("musl", "glibc"):
        check_glibc(place(libc), name="x", least=(2, 26))
    check_glibc(place("glibc 2.5"), name="x", least=None)
