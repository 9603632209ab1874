# SPDX-License-Identifier: Apache-2.0
"""Which registry is asked: the one that npm would ask for this user, here.

Read are npm's environment variables and its files for the user and the machine, not
that of a project: the folder one happens to be in does not choose where programs
come from. Where they say nothing, npm itself is asked, which knows its default.
"""

import os
import re
import ssl
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import attrs

from ...ports.required.faults import Fault

NPM_SECONDS_MAX: Final = 30.0
SETTINGS_BYTES_MAX: Final = 256 * 1024
MACHINE_FILES: Final = (
    Path("/etc/npmrc"),
    Path("/usr/etc/npmrc"),
    Path("/usr/local/etc/npmrc"),
)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")

AskNpm = Callable[[str], str | None]


@attrs.frozen
class RegistryUnknown(Fault):
    """No registry is configured, or none that can be asked."""

    kind: ClassVar[str] = "registry_unknown"
    message: ClassVar[str] = (
        "No npm registry is known: {reason}. Name one with NPM_CONFIG_REGISTRY or in"
        " ~/.npmrc (registry=…); where npm is installed, its default is used."
    )

    reason: str


@attrs.frozen(kw_only=True)
class NpmSettings:
    """What of npm's configuration counts here."""

    registry: str
    """Its base URL."""
    certificates: str | None = None
    """A file of the authorities that are believed; the well-known ones when None."""

    def trust(self) -> ssl.SSLContext | None:
        """Return whom to believe.

        Raises:
            RegistryUnknown: The file of authorities cannot be read.
        """
        if self.certificates is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.certificates)
        except OSError as fault:
            reason = f"its cafile {self.certificates} cannot be used ({fault})"
            raise RegistryUnknown(reason) from fault


def read_npm_settings(
    scope: str,
    *,
    environ: Mapping[str, str] = os.environ,
    machine_files: Sequence[Path] = MACHINE_FILES,
    ask_npm: AskNpm | None = None,
) -> NpmSettings:
    """Return the settings for packages of `scope`, "@anthropic-ai".

    Raises:
        RegistryUnknown: There is none, or it is no URL of HTTP.
    """
    asked = ask_npm if ask_npm is not None else _npm
    said = _said(environ, machine_files)
    registry = said.get(f"{scope}:registry") or said.get("registry")
    if registry is None:
        registry = asked("registry")
    if registry is None:
        raise RegistryUnknown("npm's files do not name one, and npm is not here")
    if not re.match(r"https?://[^/?#\s]+", registry):
        raise RegistryUnknown("what npm is configured for is no URL of HTTP")
    return NpmSettings(registry=registry, certificates=said.get("cafile"))


def _said(environ: Mapping[str, str], machine_files: Sequence[Path]) -> dict[str, str]:
    """Return what is set; the user's file goes over the machine's, variables over all."""
    variables = {
        name.lower().removeprefix("npm_config_"): value
        for name, value in environ.items()
        if name.lower().startswith("npm_config_") and value
    }
    home = environ.get("HOME", "")
    users = variables.get("userconfig") or (f"{home}/.npmrc" if home else "")
    machines = variables.get("globalconfig")
    said: dict[str, str] = {}
    for path in [Path(machines)] if machines else machine_files:
        said.update(_read(path, environ))
    if users:
        said.update(_read(Path(users), environ))
    return {**said, **variables}


def _read(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Read a file of npm's; one that is not there says nothing.

    Raises:
        RegistryUnknown: It is there and cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(SETTINGS_BYTES_MAX).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as fault:
        raise RegistryUnknown(f"{path} cannot be read ({fault.strerror})") from fault
    said: dict[str, str] = {}
    for line in text.splitlines():
        name, found, value = line.strip().partition("=")
        if not found or name.startswith(("#", ";")):
            continue
        bare = value.strip().strip("\"'")
        said[name.strip()] = _VARIABLE.sub(
            lambda match: environ.get(match[1], match[0]), bare
        )
    return said


def _npm(setting: str) -> str | None:
    try:
        ended = subprocess.run(
            ["npm", "config", "get", setting],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=NPM_SECONDS_MAX,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = ended.stdout.strip()
    return said if ended.returncode == 0 and said not in ("", "undefined") else None
