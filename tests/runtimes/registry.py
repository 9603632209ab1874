# SPDX-License-Identifier: Apache-2.0
"""An npm registry on loopback, with tarballs of a few KiB that hold a program."""

import base64
import hashlib
import io
import json
import os
import tarfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import anyio
import anyio.abc
import attrs

from livery.adapters.npm_registry import NpmRegistryRuntimeSource, NpmSettings
from livery.adapters.runtime_cache import RuntimeCache
from livery.domain.runtimes import Platform

GLIBC = Platform(system="linux", machine="x86_64", libc="glibc")
MUSL = Platform(system="linux", machine="x86_64", libc="musl")
NAME = "claude_code"
VERSION = "1.2.3"
PACKAGE = "@anthropic-ai/claude-code-linux-x64"


def program_text(size: int = 0, *, says: str = f"{VERSION} (Fake)") -> bytes:
    """Return a program that tells its version, of about `size` bytes."""
    script = f"#!/bin/sh\necho '{says}'\nexit 0\n".encode()
    return script + os.urandom(size)


def tarball(
    program: bytes, *, member: str = "package/claude", link: bool = False
) -> bytes:
    """Return a tarball as the registry has it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in (("package/package.json", b"{}"), (member, program)):
            entry = tarfile.TarInfo(name)
            if link and name == member:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def integrity(content: bytes) -> str:
    """Return a tarball's integrity value."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


@attrs.frozen
class Answer:
    """What the registry answers; `cut` bytes short of what it announced."""

    status: int = 200
    body: bytes = b""
    headers: tuple[str, ...] = ()
    cut: int = 0


@attrs.define(eq=False)
class Registry:
    """What the registry holds, and what it was asked."""

    port: int = 0
    answers: dict[str, list[Answer]] = attrs.field(factory=dict[str, list[Answer]])
    """By path; the last one stays."""
    asked: list[str] = attrs.field(factory=list[str])
    gate: anyio.Event | None = None
    """Where it is set, tarballs come once it was opened."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/npm/"

    def publish(
        self,
        content: bytes,
        *,
        package: str = PACKAGE,
        version: str = VERSION,
        **dist: str,
    ) -> str:
        """Hold a tarball, and return its path."""
        path = f"/npm/{package}/-/{package.split('/')[1]}-{version}.tgz"
        url = f"http://127.0.0.1:{self.port}{path}"
        told = {"tarball": url, "integrity": integrity(content), **dist}
        document = {"name": package, "version": version, "dist": told}
        body = json.dumps(document).encode()
        self.answers[f"/npm/{package}/{version}"] = [Answer(body=body)]
        self.answers[path] = [Answer(body=content)]
        return path

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        """Answer one request, and close."""
        async with stream:
            request = b""
            try:
                while b"\r\n\r\n" not in request:
                    request += await stream.receive()
                path = unquote(request.split(b" ")[1].decode())
                self.asked.append(path)
                if self.gate is not None and path.endswith(".tgz"):
                    await self.gate.wait()
                await stream.send(self._reply(path))
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return

    def _reply(self, path: str) -> bytes:
        left = self.answers.get(path, [Answer(status=404)])
        reply = left.pop(0) if len(left) > 1 else left[0]
        lines = (
            f"HTTP/1.1 {reply.status} Some",
            f"content-length: {len(reply.body)}",
            "connection: close",
            *reply.headers,
        )
        body = reply.body[: len(reply.body) - reply.cut]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def registry() -> AsyncGenerator[Registry]:
    """Serve a registry that holds nothing yet."""
    found = Registry()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    found.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, found.serve)
        yield found
        tasks.cancel_scope.cancel()


def cache_in(folder: Path) -> RuntimeCache:
    """Return a cache below a folder of the test."""
    return RuntimeCache(folder / "cache" / "livery" / "runtimes")


def source_over(
    served: Registry, folder: Path, *, asked: Callable[[str], None] = lambda scope: None
) -> NpmRegistryRuntimeSource:
    """Return a source over the registry, in no hurry to wait."""

    def settings(scope: str) -> NpmSettings:
        asked(scope)
        return NpmSettings(registry=served.url)

    return NpmRegistryRuntimeSource(
        cache=cache_in(folder), settings=settings, pause_seconds=0.0
    )
