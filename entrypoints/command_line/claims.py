# SPDX-License-Identifier: Apache-2.0
"""`livery claims`: which sandboxes are still ours, why, and giving them back."""

import datetime
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click
from rich.markup import escape
from rich.table import Table

from ...domain.claims import DECIDER, ClaimId, ClaimPhase
from ...ports.provided.reap_claims import Finding, Reaped, ReapReport
from ...ports.required.journal import claim_stream
from ..composition import Foundation, Reaper, open_foundation, open_reaper
from ..settings_reading import SettingsFile
from ..state_folder import open_state_folder
from ..visible_text import visible, visible_in_one_line
from .shared import (
    Shared,
    Status,
    config_option,
    logging_as,
    settings_of,
    state_of,
    state_option,
)

_LEFT: Final = (Finding.TO_RELEASE, Finding.FAILED, Finding.UNREACHABLE)
_ADVICE: Final = {
    Finding.IN_USE: "A process that is alive uses it; it is left alone.",
    Finding.TO_RELEASE: "Nobody uses it: `livery claims reap` gives it back.",
    Finding.UNREACHABLE: "Its provider is not configured here: name it with --config.",
    Finding.FAILED: "It could not be given back; `livery claims reap` tries again.",
    Finding.RELEASED: "It was given back.",
}

Work = Callable[[Foundation, Reaper], Coroutine[Any, Any, int]]


@click.group()
def claims() -> None:
    """Look at the sandboxes that are ours, and give back what nobody uses."""


@claims.command("list")
@config_option
@state_option
@click.pass_obj
def list_claims(shared: Shared, config: Path | None, state: Path | None) -> int:
    """List the claims that are open, and sandboxes of ours without one."""
    return _with_reaper(shared, config, state, partial(_reap, shared, dry_run=True))


@claims.command("reap")
@click.option("--dry-run", is_flag=True, help="Only tell what would be given back.")
@config_option
@state_option
@click.pass_obj
def reap_claims(
    shared: Shared, dry_run: bool, config: Path | None, state: Path | None
) -> int:
    """Give back every sandbox of ours that no living process uses."""
    return _with_reaper(shared, config, state, partial(_reap, shared, dry_run=dry_run))


@claims.command("explain")
@click.argument("claim", metavar="ID")
@config_option
@state_option
@click.pass_obj
def explain_claim(
    shared: Shared, claim: str, config: Path | None, state: Path | None
) -> int:
    """Tell what happened to one claim, and what to do about it."""
    return _with_reaper(
        shared, config, state, partial(_explain, shared, ClaimId(claim))
    )


def _with_reaper(
    shared: Shared, config: Path | None, state: Path | None, work: Work
) -> int:
    file = settings_of(config)
    folder = state_of(state, file.settings)

    async def carried_out() -> int:
        async with _opened(shared, folder, file) as (foundation, reaper):
            return await work(foundation, reaper)

    with logging_as(file, shared):
        return anyio.run(carried_out)


@asynccontextmanager
async def _opened(
    shared: Shared, folder: Path, file: SettingsFile
) -> AsyncGenerator[tuple[Foundation, Reaper]]:
    state = open_state_folder(folder)
    async with (
        open_foundation(state, shared.secrets, file.settings.journal) as foundation,
        open_reaper(foundation, file) as reaper,
    ):
        yield foundation, reaper


async def _reap(
    shared: Shared, foundation: Foundation, reaper: Reaper, *, dry_run: bool
) -> int:
    report = await reaper.reap(dry_run=dry_run)
    if report.reaped:
        shared.out().print(_table(report, shared.secrets.masked))
    else:
        click.echo(
            f"No claim is open in {foundation.state.path}, and no sandbox of ours is"
            " anywhere."
        )
    for name, reason in _not_asked(report, reaper):
        shared.say(f"Provider {name} was not asked: {reason}")
    if dry_run:
        return Status.GRADED
    left = any(one.finding in _LEFT for one in report.reaped)
    return Status.LEFT if left else Status.GRADED


async def _explain(
    shared: Shared, claim: ClaimId, foundation: Foundation, reaper: Reaper
) -> int:
    history = await foundation.journal.read(claim_stream(claim))
    for event in history.events:
        facts = attrs.asdict(event)
        at = facts.pop("at")
        words = ", ".join(f"{name}={value}" for name, value in facts.items() if value)
        click.echo(
            visible_in_one_line(
                shared.secrets.masked(f"{_time(at)}  {type(event).__name__}  {words}")
            )
        )
    found = await _found(claim, reaper)
    if not history.events and found is None:
        shared.say(
            f"livery: there is no claim {claim!r} in {foundation.state.path}, and no"
            " sandbox of it; `livery claims list` shows those that are open."
        )
        return Status.BAD_USE
    phase = DECIDER.replay(history.events).phase
    if found is not None:
        click.echo(_ADVICE[found.finding])
    elif phase is ClaimPhase.RELEASED:
        click.echo("It was given back; nothing is left of it.")
    return Status.GRADED


async def _found(claim: ClaimId, reaper: Reaper) -> Reaped | None:
    report = await reaper.reap(dry_run=True)
    return next((one for one in report.reaped if one.claim == claim), None)


def _not_asked(report: ReapReport, reaper: Reaper) -> list[tuple[str, str]]:
    """Return the providers that were not asked, where that can matter.

    One of ours that nobody configured and no claim names is of no interest.
    """
    named = {one.provider for one in report.reaped} | reaper.configured
    found = {**reaper.unopened, **dict(report.unlisted)}
    return [(name, reason) for name, reason in found.items() if name in named]


def _table(report: ReapReport, masked: Callable[[str], str]) -> Table:
    table = Table()
    for name in ("claim", "provider", "finding", "cause", "phase", "used by", "reason"):
        table.add_column(name, overflow="fold")
    for one in report.reaped:
        cells = (
            one.claim,
            one.provider,
            one.finding,
            one.cause or "",
            one.phase,
            one.used_by,
            one.reason,
        )
        table.add_row(*(escape(visible(masked(cell))) for cell in cells))
    return table


def _time(at: float) -> str:
    moment = datetime.datetime.fromtimestamp(at, tz=datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
