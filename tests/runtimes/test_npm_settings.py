# SPDX-License-Identifier: Apache-2.0
"""Which registry is asked: what npm would ask, and nothing that a project says."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.npm_registry import (
    NpmSettings,
    RegistryUnknown,
    open_npm_registry,
    read_npm_settings,
)
from livery.adapters.npm_registry.packages import addresses
from livery.adapters.npm_registry.source import NpmRegistryRuntimeSource

from .registry import cache_in

SCOPE = "@anthropic-ai"
USERS = "https://users.example/npm/"
MACHINES = "https://machines.example/"


def read(
    folder: Path,
    *,
    user: str | None = None,
    machine: str | None = None,
    environ: Mapping[str, str] | None = None,
    npm: str | None = None,
) -> NpmSettings:
    home, machines = folder / "home", folder / "npmrc"
    home.mkdir()
    if user is not None:
        (home / ".npmrc").write_text(user)
    if machine is not None:
        machines.write_text(machine)
    return read_npm_settings(
        SCOPE,
        environ={"HOME": str(home), **(environ or {})},
        machine_files=[machines],
        ask_npm=lambda setting: npm,
    )


def test_the_users_file_goes_over_the_machines(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        user=f"registry={USERS}\n",
        machine=f"registry = {MACHINES}\ncafile=/etc/authorities.pem\n",
    )

    assert settings == NpmSettings(registry=USERS, certificates="/etc/authorities.pem")


def test_a_variable_goes_over_every_file(tmp_path: Path) -> None:
    variable = "https://variable.example/"

    for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        folder = tmp_path / name
        folder.mkdir()
        found = read(folder, user=f"registry={USERS}", environ={name: variable})
        assert found.registry == variable


def test_a_registry_of_the_scope_goes_first(tmp_path: Path) -> None:
    user = f"registry={MACHINES}\n{SCOPE}:registry={USERS}\n"

    assert read(tmp_path, user=user).registry == USERS


def test_comments_quotes_and_variables_are_read_as_npm_reads_them(
    tmp_path: Path,
) -> None:
    user = '; registry=a\n# registry=b\nno pair\nregistry="${PLACE}/${NONE}"\n'

    found = read(tmp_path, user=user, environ={"PLACE": "https://place.example"})

    assert found.registry == "https://place.example/${NONE}"


def test_files_elsewhere_are_found_by_their_variables(tmp_path: Path) -> None:
    users, machines = tmp_path / "users", tmp_path / "machines"
    users.write_text(f"registry={USERS}")
    machines.write_text(f"registry={MACHINES}\ncafile=/authorities")

    found = read(
        tmp_path,
        environ={
            "NPM_CONFIG_USERCONFIG": str(users),
            "NPM_CONFIG_GLOBALCONFIG": str(machines),
        },
    )

    assert found == NpmSettings(registry=USERS, certificates="/authorities")


def test_where_no_file_says_it_npm_is_asked(tmp_path: Path) -> None:
    assert read(tmp_path, npm=MACHINES).registry == MACHINES


def test_without_any_registry_it_is_told_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnknown, match="NPM_CONFIG_REGISTRY"):
        read(tmp_path)


@pytest.mark.parametrize("told", ["ftp://x/", "https://", "registry", "file:///x"])
def test_what_is_no_registry_is_told(tmp_path: Path, told: str) -> None:
    with pytest.raises(RegistryUnknown, match="no URL of HTTP"):
        read(tmp_path, user=f"registry={told}")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "npmrc").mkdir()

    with pytest.raises(RegistryUnknown, match="cannot be read"):
        read(tmp_path)


def test_npm_itself_is_asked_where_it_is(tmp_path: Path) -> None:
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\n[ "$2" = get ] && echo "$HTTP_PLACE"\n')
    npm.chmod(0o755)
    before = dict(os.environ)
    try:
        os.environ["PATH"] = f"{tmp_path}:{before['PATH']}"
        os.environ["HTTP_PLACE"] = MACHINES
        found = read_npm_settings(SCOPE, environ={}, machine_files=[])
        os.environ["HTTP_PLACE"] = "undefined"
        with pytest.raises(RegistryUnknown):
            read_npm_settings(SCOPE, environ={}, machine_files=[])
        os.environ["PATH"] = str(tmp_path / "nowhere")
        with pytest.raises(RegistryUnknown):
            read_npm_settings(SCOPE, environ={}, machine_files=[])
    finally:
        os.environ.clear()
        os.environ.update(before)

    assert found.registry == MACHINES


def test_authorities_are_those_that_npm_believes(tmp_path: Path) -> None:
    file = tmp_path / "authorities.pem"
    authorities = ssl.get_default_verify_paths().cafile
    if authorities is None:
        pytest.skip("no file of authorities is on this machine")
    file.write_bytes(Path(authorities).read_bytes())

    trust = NpmSettings(registry=USERS, certificates=str(file)).trust()

    assert trust is not None
    assert trust.cert_store_stats()["x509_ca"] > 0
    assert NpmSettings(registry=USERS).trust() is None


def test_authorities_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    settings = NpmSettings(registry=USERS, certificates=str(tmp_path / "none"))

    with pytest.raises(RegistryUnknown, match="cafile"):
        settings.trust()


def test_the_source_reads_the_settings_of_the_environment(tmp_path: Path) -> None:
    source = open_npm_registry(
        cache_in(tmp_path), environ={"NPM_CONFIG_REGISTRY": USERS}
    )

    assert isinstance(source, NpmRegistryRuntimeSource)
    assert source.settings(SCOPE).registry == USERS


HOSTS = st.from_regex(r"[a-z]{1,8}\.example", fullmatch=True)
STEPS = st.lists(st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True), max_size=3)


@given(there=HOSTS, here=HOSTS, steps=STEPS, base=STEPS)
def test_the_registry_is_asked_before_what_it_mirrors(
    there: str, here: str, steps: list[str], base: list[str]
) -> None:
    tarball = "/".join([f"https://{there}", *steps, "x.tgz"])
    registry = "/".join([f"https://{here}", *base])

    found = addresses(tarball, registry=registry)

    assert found[-1] == tarball
    if there == here:
        assert found == (tarball,)
    else:
        assert found[0].startswith(registry)
        assert found[0].endswith("/x.tgz")
