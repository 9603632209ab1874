# SPDX-License-Identifier: Apache-2.0
"""`livery runtimes`: the programs that harnesses need in sandboxes, kept on this host."""

import platform
from collections.abc import Iterable
from typing import Final

import anyio
import click
from rich.markup import escape
from rich.table import Table

from ...adapters.npm_registry import PACKAGES, open_npm_registry
from ...adapters.runtime_cache import (
    Digests,
    Entry,
    Leftover,
    RuntimeCache,
    RuntimeCacheUnusable,
    cache_path,
    check_entry,
)
from ...domain.platforms import GLIBC, MUSL
from ...domain.runtimes import Platform
from ...ports.required.runtime_source import RuntimeUnavailable
from .shared import Shared, Status

MEBIBYTE: Final = 1024 * 1024
DIGITS: Final = 12
EMPTY: Final = "The cache holds no program."


@click.group()
def runtimes() -> None:
    """Look after the programs that harnesses need in sandboxes.

    They are kept in $XDG_CACHE_HOME/livery, else ~/.cache/livery, for you alone.
    """


@runtimes.command("fetch")
@click.argument("name", type=click.Choice(sorted(PACKAGES)))
@click.argument("version")
@click.option(
    "--libc",
    "libcs",
    type=click.Choice([GLIBC, MUSL]),
    multiple=True,
    help="The C library of the sandboxes; may be repeated. glibc when left out.",
)
@click.option(
    "--machine",
    type=click.Choice(["x86_64", "aarch64"]),
    help="The machine of the sandboxes; this one's when left out.",
)
@click.pass_obj
def fetch(
    shared: Shared,
    name: str,
    version: str,
    libcs: tuple[str, ...],
    machine: str | None,
) -> int:
    """Fetch a program from the npm registry, verified, into the cache."""
    source = open_npm_registry(_cache())
    machine = machine or platform.machine()

    async def fetched() -> None:
        for libc in libcs or (GLIBC,):
            wanted = Platform(system="linux", machine=machine, libc=libc)
            runtime = await source.obtain(name, version, wanted)
            path = await source.host_path(runtime)
            click.echo(f"{name} {version} {wanted.word} {runtime.sha256} {path}")

    anyio.run(fetched)
    return Status.GRADED


@runtimes.command("list")
@click.pass_obj
def list_runtimes(shared: Shared) -> int:
    """List what is in the cache."""
    found = list(_cache().entries())
    entries = [one for one in found if isinstance(one, Entry)]
    if entries:
        shared.out().print(_table(entries))
    else:
        click.echo(EMPTY)
    for one in found:
        if isinstance(one, Leftover):
            shared.say(f"{one.path}: {one.reason}")
    return Status.GRADED


@runtimes.command("verify")
@click.pass_obj
def verify(shared: Shared) -> int:
    """Read every program in the cache, and compare it with what was fetched."""
    wrong = 0
    looked_at = anyio.run(_looked_at, _cache())
    if not looked_at:
        click.echo(EMPTY)
    for one, reason in looked_at:
        if reason is None:
            click.echo(f"{_told(one)}: good")
        else:
            wrong += 1
            shared.say(f"{_told(one)}: {reason}")
    return Status.LEFT if wrong else Status.GRADED


@runtimes.command("prune")
@click.option("--all", "everything", is_flag=True, help="Remove every program.")
@click.option("--version", "versions", multiple=True, help="Remove this version too.")
@click.pass_obj
def prune(shared: Shared, everything: bool, versions: tuple[str, ...]) -> int:
    """Remove what is damaged or was cut off, and the programs that are named.

    What sandboxes use already goes on working.
    """
    cache = _cache()
    removed = 0
    for one, reason in anyio.run(_looked_at, cache):
        goes = everything or reason is not None
        if isinstance(one, Leftover) and one.goes_on:
            goes = False
        if goes or (isinstance(one, Entry) and one.record.version in versions):
            cache.remove(one)
            removed += 1
            click.echo(f"{_told(one)}: removed")
    if not removed:
        click.echo("Nothing was removed.")
    return Status.GRADED


async def _looked_at(
    cache: RuntimeCache,
) -> list[tuple[Entry | Leftover, str | None]]:
    """Return all that is in the cache, with what is wrong with it."""
    digests = Digests()
    found: list[tuple[Entry | Leftover, str | None]] = []
    for one in cache.entries():
        reason = None
        if isinstance(one, Leftover):
            reason = one.reason
        else:
            try:
                await check_entry(one, digests)
            except (RuntimeUnavailable, RuntimeCacheUnusable) as fault:
                reason = fault.reason
        found.append((one, reason))
    return found


def _cache() -> RuntimeCache:
    return RuntimeCache(cache_path())


def _told(one: Entry | Leftover) -> str:
    if isinstance(one, Leftover):
        return str(one.path)
    record = one.record
    return f"{record.name} {record.version} {record.platform.word}"


def _table(entries: Iterable[Entry]) -> Table:
    table = Table()
    for name in ("name", "version", "platform", "MiB", "sha256", "from"):
        table.add_column(name, overflow="fold")
    for one in entries:
        record = one.record
        table.add_row(
            escape(record.name),
            escape(record.version),
            escape(record.platform.word),
            f"{record.size / MEBIBYTE:.1f}",
            record.sha256[:DIGITS],
            escape(record.origin),
        )
    return table
