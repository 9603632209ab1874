# SPDX-License-Identifier: Apache-2.0
"""The composition root: picks the adapters and hands them to the use cases.

What is opened is closed in reverse order. Nothing is made for a run before all that
can be known beforehand was checked: options, tasks, what the provider can do.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import attrs

from ..adapters.artifacts.folder import FolderArtifactStore
from ..adapters.results_folder import ResultsFolder
from ..adapters.system_clock import RandomIds, SystemClock
from ..adapters.worker_scripts import program
from ..ports.provided.activate_harness import ActivateHarness
from ..ports.provided.agent_sessions import AgentSessions
from ..ports.provided.claim_sandbox import ClaimSandbox
from ..ports.provided.collect_rollouts import CollectRollouts, Progress
from ..ports.provided.equip_sessions import EquipSessions
from ..ports.provided.grade_work import GradeWork
from ..ports.provided.in_process_agent import InProcessAgent
from ..ports.provided.in_process_resources import InProcessResources
from ..ports.provided.measured import MeasuredProvider
from ..ports.provided.measures import Measures
from ..ports.provided.reap_claims import ReapClaims
from ..ports.provided.release_claim import ReleaseClaim
from ..ports.provided.resources_sessions import ResourcesSessions
from ..ports.provided.run_episode import RunEpisode
from ..ports.provided.secret_values import SecretValues
from ..ports.provided.session_sandboxes import SessionSandboxes
from ..ports.provided.take_census import TakeCensus
from ..ports.required.clock import Clock, Ids
from ..ports.required.faults import Fault
from ..ports.required.harness import Harness
from ..ports.required.holders import Holders
from ..ports.required.journal import Journal
from ..ports.required.participants import Resources
from ..ports.required.sandbox_provider import (
    SandboxProvider,
    SandboxSpec,
)
from ..ports.required.task_source import TaskSource
from ..ports.required.world import World
from .built_in import HARNESSES, PROVIDERS, TASK_FILE, TASK_SOURCES, WORLDS
from .journal_kinds import open_journal
from .journal_settings import JournalSettings
from .outfits import tools_check
from .plug_ins import (
    HarnessPlugIn,
    ProviderPlugIn,
    Surroundings,
    TaskSourcePlugIn,
    WorldPlugIn,
    find,
    published_names,
)
from .run_plan import RunPlan
from .run_tasks import (
    RunTasks,
    called_solutions_of,
    check_sandboxes,
    check_tasks,
    load_tasks,
    solutions_of,
)
from .settings import SandboxSettings
from .settings_reading import SettingsFile, gathered, structured
from .state_folder import StateFolder
from .worker_parts import WorkerParts


@attrs.frozen(kw_only=True)
class Watched:
    """What a server tells of itself."""

    census: TakeCensus
    parts: WorkerParts
    measures: Measures


@attrs.frozen(kw_only=True)
class Foundation:
    """What everything stands on, open."""

    state: StateFolder
    secrets: SecretValues
    journal: Journal
    holders: Holders
    clock: Clock = attrs.field(factory=SystemClock)
    ids: Ids = attrs.field(factory=RandomIds)
    watched: Watched | None = None
    """None: nobody asks what was done."""

    @property
    def parts(self) -> WorkerParts | None:
        """What is told of this process beside others; None where nobody asks."""
        return None if self.watched is None else self.watched.parts

    def surroundings(self, name: str) -> Surroundings:
        """Return what a plug-in is given."""
        return Surroundings(name=name, state=self.state.path, secrets=self.secrets)

    def waited(self, queue: str) -> Callable[[float], None]:
        """Return what is told how long somebody waited in a queue."""
        if self.watched is None:
            return lambda seconds: None
        return partial(self.watched.measures.waits.note, queue)

    def queued(self, queue: str, waiting: Callable[[], int]) -> None:
        """Have it told how many wait in a queue."""
        if self.watched is not None:
            self.watched.measures.queues[queue] = waiting


@asynccontextmanager
async def open_foundation(
    state: StateFolder, secrets: SecretValues, settings: JournalSettings
) -> AsyncGenerator[Foundation]:
    """Open what everything stands on; raises as `open_journal`."""
    async with open_journal(state, settings, secrets) as (journal, holders):
        yield Foundation(state=state, secrets=secrets, journal=journal, holders=holders)


@attrs.frozen(kw_only=True)
class Parts:
    """What a run is made of, read and checked; nothing is opened."""

    plan: RunPlan
    tasks: RunTasks
    world: World
    harness: Harness
    provider: ProviderPlugIn
    provider_options: object


def prepare(
    plan: RunPlan, source: str, file: SettingsFile, surroundings: Surroundings
) -> Parts:
    """Read options and tasks, and check all that can be known beforehand.

    Raises:
        SettingsRefused, TasksRefused, PlugInUnknown, PlugInTwice, PlugInBroken,
        ExtraMissing, SolutionsMissing, Unsupported, SpecRefused: As they say; nothing
            was made.
    """
    provider_plug_in = find(ProviderPlugIn, plan.provider_kind, PROVIDERS)
    harness_plug_in = find(HarnessPlugIn, plan.harness_kind, HARNESSES)
    world = find(WorldPlugIn, world_of(source, plan), WORLDS).make(surroundings)
    options = read_options(
        file,
        (provider_plug_in.options, "sandbox", plan.sandbox, plan.sandbox_block.options),
        (harness_plug_in.options, "harness", plan.harness, plan.harness_block.options),
    )
    opened = source_of(source, attrs.evolve(surroundings, world=world))
    tasks = load_tasks(opened, named=source, limit=plan.limit)
    harness = harness_plug_in.make(
        attrs.evolve(
            surroundings,
            name=plan.harness,
            turn_timeout_seconds=plan.harness_block.turn_timeout_seconds,
            world=world,
            solutions=solutions_of(opened, world, tasks),
            called_solutions=called_solutions_of(opened),
            model_url=plan.model.url,
            model_credential=plan.model.credential,
        ),
        options[1],
    )
    check_tasks(tasks, world, harness)
    if provider_plug_in.terms is not None:
        terms = provider_plug_in.terms(surroundings, options[0])
        check_sandboxes(tasks, world, plan.spec(terms.capabilities), terms)
    return Parts(
        plan=plan,
        tasks=tasks,
        world=world,
        harness=harness,
        provider=provider_plug_in,
        provider_options=options[0],
    )


def read_options(
    file: SettingsFile, *blocks: tuple[type[object], str, str, Mapping[str, object]]
) -> tuple[object, ...]:
    """Read the options of blocks, each as the class that its plug-in declares.

    Raises:
        SettingsRefused: With the mistakes of all.
    """
    found: list[object] = []

    def read(
        kind: type[object], section: str, name: str, content: Mapping[str, object]
    ) -> Callable[[], None]:
        at = (section, name, "options")
        return lambda: found.append(structured(kind, content, at=at))

    if mistakes := gathered(tuple(read(*block) for block in blocks)):
        raise file.refusal(mistakes)
    return tuple(found)


def source_of(source: str, surroundings: Surroundings) -> TaskSource:
    """Return the task source `NAME`, `NAME:ARGUMENT` or the path of a JSON Lines file.

    Raises:
        PlugInUnknown, PlugInTwice, PlugInBroken, ExtraMissing, TasksRefused: As they
            say.
    """
    name, _, argument = source.partition(":")
    known = {*TASK_SOURCES, *published_names(TaskSourcePlugIn)}
    if name not in known and ("/" in source or "." in source or Path(source).exists()):
        return TASK_FILE.load().make(surroundings, source)
    return find(TaskSourcePlugIn, name, TASK_SOURCES).make(surroundings, argument)


def world_of(source: str, plan: RunPlan) -> str:
    """Return the name of the tasks' world: the source's own, where that has one."""
    name = source.partition(":")[0]
    return name if name in {*WORLDS, *published_names(WorldPlugIn)} else plan.world


@asynccontextmanager
async def open_provider(
    foundation: Foundation, name: str, plug_in: ProviderPlugIn, options: object
) -> AsyncGenerator[SandboxProvider]:
    """Open the provider of a block."""
    async with plug_in.open(foundation.surroundings(name), options) as provider:
        if foundation.watched is None:
            yield provider
            return
        yield MeasuredProvider(
            provider=provider,
            measures=foundation.watched.measures,
            clock=foundation.clock,
        )


def wired(
    parts: Parts,
    foundation: Foundation,
    provider: SandboxProvider,
    spec: SandboxSpec,
    outfit: EquipSessions | None,
    folder: ResultsFolder,
    on_progress: Callable[[Progress], None],
    resources: Resources | None = None,
) -> CollectRollouts:
    """Return the use case of the whole run; `resources` serve a world with apps."""
    journal, clock = foundation.journal, foundation.clock
    claim, release = claims_of(foundation, provider)
    artifacts = FolderArtifactStore(folder.artifacts)
    resources = resources or InProcessResources(
        sessions=ResourcesSessions(
            journal=journal,
            clock=clock,
            world=parts.world,
            spec=spec,
            claim=claim,
            release=release,
            grade=GradeWork(
                world=parts.world,
                claim=claim,
                release=release,
                artifacts=artifacts,
                archive_program=program("archive"),
                marks=foundation.ids,
            ),
        )
    )
    agent = InProcessAgent(
        AgentSessions(
            journal=journal,
            clock=clock,
            holders=foundation.holders,
            harness=parts.harness,
            sandboxes=SessionSandboxes(
                harness=parts.harness, providers={provider.name: provider}
            ),
            activate_harness=ActivateHarness(
                harness=parts.harness,
                artifacts=artifacts,
                clock=clock,
                supervisor_program=program("supervisor"),
            ),
            outfit=outfit,
            check_tools=tools_check({} if outfit is None else outfit.sites),
        )
    )
    run_episode = RunEpisode(
        journal=journal,
        clock=clock,
        run=folder.card.run,
        resources=resources,
        agent=agent,
        episode_seconds=parts.plan.episode_seconds,
        cleanup_seconds=parts.plan.cleanup_timeout_seconds,
    )
    return CollectRollouts(
        run_episode=run_episode,
        results=folder.log,
        task=parts.tasks.tasks.__getitem__,
        concurrency=parts.plan.concurrency,
        on_progress=on_progress,
    )


@attrs.frozen(kw_only=True)
class Reaper:
    """The reaper over every provider that could be opened."""

    reap: ReapClaims
    unopened: Mapping[str, str]
    """The others, each with the reason."""
    configured: frozenset[str]
    """Those that the settings name."""


@asynccontextmanager
async def open_reaper(
    foundation: Foundation, file: SettingsFile, *, names: Iterable[str] = ()
) -> AsyncGenerator[Reaper]:
    """Open the providers of these `names`.

    None named: every configured one, and ours and others' under their own names.
    """
    configured = file.settings.sandbox
    asked = tuple(names)
    others = frozenset(published_names(ProviderPlugIn))
    blocks = {
        name: configured.get(name, SandboxSettings())
        for name in (asked or (*PROVIDERS, *sorted(others), *configured))
    }
    providers: dict[str, SandboxProvider] = {}
    unopened: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for name, block in blocks.items():
            try:
                # Beside the loop: loading a provider's library takes a second.
                plug_in = await anyio.to_thread.run_sync(
                    find, ProviderPlugIn, block.provider or name, PROVIDERS
                )
                (options,) = read_options(
                    file, (plug_in.options, "sandbox", name, block.options)
                )
                providers[name] = await stack.enter_async_context(
                    open_provider(foundation, name, plug_in, options)
                )
            except Fault as fault:
                unopened[name] = str(fault)
            except Exception as error:
                # One that is only installed must not keep the others from being asked.
                if name not in others - frozenset(configured) - frozenset(asked):
                    raise
                unopened[name] = f"unexpected {type(error).__name__}: {error}"
        yield Reaper(
            reap=ReapClaims(
                journal=foundation.journal,
                clock=foundation.clock,
                providers=providers,
                owner=foundation.state.owner,
                holders=foundation.holders,
                hurried=frozenset(providers) - frozenset(configured) - frozenset(asked),
            ),
            unopened=unopened,
            configured=frozenset(configured),
        )


def claims_of(
    foundation: Foundation, provider: SandboxProvider
) -> tuple[ClaimSandbox, ReleaseClaim]:
    """Return the use cases that claim and release sandboxes of a provider."""
    release = ReleaseClaim(
        journal=foundation.journal, clock=foundation.clock, provider=provider
    )
    claim = ClaimSandbox(
        journal=foundation.journal,
        clock=foundation.clock,
        provider=provider,
        owner=foundation.state.owner,
        holders=foundation.holders,
        release=release,
    )
    return claim, release
