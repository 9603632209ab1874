# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Docker provider share: owners, labels, images, a look."""

import itertools
import os
import secrets
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from livery.adapters.docker_engine import (
    DockerEngineConfig,
    DockerSandboxProvider,
    open_docker_engine,
)
from livery.domain.claims import ClaimId, OwnerId
from livery.domain.names import to_name
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import (
    Capability,
    ClaimLabel,
    SandboxSpec,
)

from . import raw_engine

CAPABILITIES = frozenset(Capability) - {Capability.NETWORK_LISTED}
USER = "1000:1000"
OTHER_USER = "12345:12345"
SMALL_FOLDER = "/dev/shm"
"""Of 2 MiB, with `SMALL_OPTIONS`."""
SMALL_OPTIONS = {"shm_size_mib": 2}

_numbers = itertools.count(1)


@attrs.frozen
class Owners:
    """Two owners of one test; what they own must be gone at its end."""

    one: OwnerId
    other: OwnerId

    def label(self) -> ClaimLabel:
        return ClaimLabel(claim=ClaimId(f"{self.one}-{next(_numbers)}"), owner=self.one)

    def left(self) -> list[str]:
        return [
            found
            for owner in (self.one, self.other)
            for found in raw_engine.labelled(f"livery.owner={owner}")
        ]


def new_owners() -> Owners:
    word = secrets.token_hex(4)
    return Owners(OwnerId(f"test-{word}"), OwnerId(f"test-{word}-other"))


def name_of(label: ClaimLabel) -> str:
    return to_name("livery", label.claim)


class Onlooker:
    """Looks at the engine itself."""

    async def left(self, label: ClaimLabel) -> tuple[str, ...]:
        found = raw_engine.labelled(f"livery.claim={label.claim}")
        if not found and raw_engine.inspect(name_of(label)) is not None:
            return (f"container {name_of(label)} without a label",)
        return found


async def end_outside(label: ClaimLabel) -> None:
    raw_engine.kill(name_of(label))


def make_plain_image(base: str) -> str:
    """Make a stand-in for Alpine, which cannot be had here: no bash, no Python.

    It is one busybox where the host has a static one, as in Alpine (with another
    libc inside it); else the base image without its Python and its bash, so that
    the shell is dash and the tools are GNU's.
    """
    name = f"livery-test/plain-{os.getpid()}:1"
    busybox = _static_busybox()
    if busybox is not None:
        raw_engine.import_image(
            name,
            {
                "bin/busybox": busybox,
                "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n",
                "etc/group": b"root:x:0:\n",
            },
            {f"bin/{applet}": "busybox" for applet in _APPLETS},
            ["ENV PATH=/bin"],
        )
        return name
    container = f"livery-test-plain-{os.getpid()}"
    script = "rm -f /usr/bin/python3* /bin/bash /usr/bin/bash; sleep 600"
    raw_engine.run_container(base, ["/bin/sh", "-c", script], name=container)
    try:
        raw_engine.commit(container, name)
    finally:
        raw_engine.remove(container)
    return name


_APPLETS = [
    "sh",
    "ash",
    "cat",
    "chmod",
    "chown",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "echo",
    "env",
    "expr",
    "false",
    "grep",
    "head",
    "id",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mkfifo",
    "mv",
    "nc",
    "nslookup",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "rm",
    "rmdir",
    "seq",
    "setsid",
    "sleep",
    "sort",
    "stat",
    "tail",
    "test",
    "tftp",
    "timeout",
    "touch",
    "tr",
    "true",
    "uname",
    "wc",
    "which",
]


def _static_busybox() -> bytes | None:
    path = shutil.which("busybox")
    if path is None:
        return None
    content = Path(path).read_bytes()
    return None if b"/lib64/ld-linux" in content[:4096] else content


def provider_context(
    provider: DockerSandboxProvider, owners: Owners, image: str
) -> ProviderContext:
    spec = SandboxSpec(image=image)
    return ProviderContext(
        provider=provider,
        open_again=open_again,
        spec=spec,
        new_label=owners.label,
        other_owner=owners.other,
        observe=Onlooker(),
        creates_at_once=9,
        end_outside=end_outside,
        failing_spec=attrs.evolve(spec, entrypoint=("/bin/false",)),
        host_address=raw_engine.host_address(),
        other_user=OTHER_USER,
    )


PROVIDER_HOOKS = frozenset(
    {"end_outside", "failing_spec", "host_address", "other_user"}
)


@asynccontextmanager
async def open_again() -> AsyncGenerator[DockerSandboxProvider]:
    async with open_docker_engine(DockerEngineConfig()) as provider:
        yield provider
