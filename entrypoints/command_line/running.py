# SPDX-License-Identifier: Apache-2.0
"""A run from the first check to the last word, begun or gone on with.

Everything that can be wrong is found before the results folder is made. A signal
stops in order: what is known is written, and the user is told how to go on.
"""

import datetime
import importlib.metadata
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import attrs

from ...adapters.artifacts.folder import FolderArtifactStore
from ...adapters.results_folder import (
    ARTIFACTS,
    RESULTS,
    ResultsFolder,
    ResultsFolderRefused,
    RunCard,
    SourceCard,
    check_new,
    check_result_lines,
    make_results_folder,
    open_results_folder,
    read_rows,
    read_run,
)
from ...adapters.system_clock import RandomIds
from ...domain.claims import DECIDER, ClaimId
from ...domain.rollouts import Owed, owed
from ...ports.provided.carry_out import read_state
from ...ports.provided.collect_rollouts import CollectRollouts, Progress
from ...ports.required.clock import Ids
from ...ports.required.journal import claim_stream
from ...ports.required.participants import Resources
from ...ports.required.sandbox_provider import SandboxProvider
from ..collector import collected_rarely
from ..composition import (
    Foundation,
    Parts,
    open_foundation,
    open_provider,
    prepare,
    wired,
)
from ..plug_ins import Surroundings
from ..run_apps import open_apps
from ..run_plan import RunPlan, from_stored, to_stored
from ..run_via import RemoteParts, open_environment, prepare_via, wired_via
from ..sandbox_check import Fitted, check_sandbox, open_run_tailor
from ..settings_reading import SettingsFile
from ..state_folder import open_state_folder, state_path
from ..strict_converter import Refused
from ..summaries import Summary, summarise
from ..summary_texts import to_markdown, to_tables
from .interruptions import Interruptions, until_stopped
from .progress import shown_progress
from .shared import Shared, Status, tell

CLAIMS_NAMED_MAX: Final = 5
VIA: Final = "(a server's)"
"""What results call a harness and a sandbox that a server chose."""


@attrs.frozen(kw_only=True)
class Begin:
    """A new run."""

    source: str
    plan: RunPlan
    out: Path
    state: Path
    file: SettingsFile


@attrs.frozen(kw_only=True)
class GoOn:
    """A run that was begun."""

    folder: Path
    retry_masked: bool
    concurrency: int | None
    state: Path | None


@attrs.frozen(kw_only=True)
class _Ready:
    """A run whose parts were read and checked; nothing was made yet."""

    parts: Parts | RemoteParts
    state: Path
    path: Path
    card: RunCard | None
    """What the run was begun as; None when it begins now."""
    retry_masked: bool = False


@attrs.frozen(kw_only=True)
class _Ended:
    """What a run came to, and how much another would run."""

    summary: Summary
    again: int
    """Rollouts that going on would run."""
    masked_again: int
    """Those that it would run besides, if it ran the masked ones again."""


async def carry_out(order: Begin | GoOn, shared: Shared) -> int:
    """Carry the run out, and return the exit status."""
    ready = _begin(order, shared) if isinstance(order, Begin) else _go_on(order, shared)
    running = _Running(ready=ready, shared=shared)
    try:
        with collected_rarely():
            status = await until_stopped(running.all, shared.say)
    except Exception as error:
        if not running.has_begun or shared.debug:
            raise
        tell(error, shared)
        running.tell_what_is_left()
        return Status.LEFT
    if status is None:
        shared.say("Nothing was run.")
        return Status.LEFT
    return status


def _begin(order: Begin, shared: Shared) -> _Ready:
    check_new(order.out)
    surroundings = Surroundings(
        name=order.plan.sandbox, state=order.state, secrets=shared.secrets
    )
    parts = _prepared(order.plan, order.source, order.file, surroundings)
    return _Ready(parts=parts, state=order.state, path=order.out, card=None)


def _prepared(
    plan: RunPlan, source: str, file: SettingsFile, surroundings: Surroundings
) -> Parts | RemoteParts:
    if plan.via is not None:
        return prepare_via(plan, source, surroundings)
    return prepare(plan, source, file, surroundings)


def _go_on(order: GoOn, shared: Shared) -> _Ready:
    card = read_run(order.folder)
    file = SettingsFile(where=str(order.folder / "run.json"))
    try:
        plan = from_stored(card.settings)
    except Refused as refused:
        raise file.refusal(refused.mistakes) from refused
    if order.concurrency is not None:
        plan = attrs.evolve(plan, concurrency=order.concurrency)
    check_result_lines(order.folder / RESULTS)
    state = state_path(order.state or card.state)
    surroundings = Surroundings(name=plan.sandbox, state=state, secrets=shared.secrets)
    parts = _prepared(plan, card.source.name, file, surroundings)
    if parts.tasks.digest != card.source.digest:
        raise ResultsFolderRefused(
            str(order.folder),
            f"is a run of {card.source.tasks} tasks of {card.source.name} that are not"
            " what they were when it began",
            "Put the tasks back as they were, or begin a new run with --out.",
        )
    return _Ready(
        parts=parts,
        state=state,
        path=order.folder,
        card=card,
        retry_masked=order.retry_masked,
    )


@attrs.define(kw_only=True)
class _Running:
    """A run under way."""

    ready: _Ready
    shared: Shared
    has_begun: bool = False
    """Whether there is a results folder that can be gone on with."""

    async def all(self, signals: Interruptions) -> int:
        """Carry it out; `signals` stop it in order."""
        parts = self.ready.parts
        if isinstance(parts, RemoteParts):
            return await self._all_via(parts, signals)
        state = open_state_folder(self.ready.state)
        artifacts = FolderArtifactStore(self.ready.path / ARTIFACTS)
        async with (
            open_foundation(
                state, self.shared.secrets, parts.plan.journal
            ) as foundation,
            open_provider(
                foundation,
                parts.plan.sandbox,
                parts.provider,
                parts.provider_options,
            ) as provider,
            open_run_tailor(parts, foundation, artifacts) as tailor,
        ):
            fitted = await check_sandbox(parts, foundation, provider, tailor, artifacts)
            async with open_apps(parts, foundation, provider, fitted.spec) as resources:
                ended = await self._collected(
                    parts, foundation, provider, fitted, resources, signals
                )
            await self._tell_open_claims(foundation)
        self._tell_how_to_go_on(ended)
        return Status.GRADED if ended.summary.is_complete else Status.LEFT

    async def _collected(
        self,
        parts: Parts,
        foundation: Foundation,
        provider: SandboxProvider,
        fitted: Fitted,
        resources: Resources | None,
        signals: Interruptions,
    ) -> _Ended:
        with self._folder(foundation.ids) as folder:
            self.has_begun = True

            def wire(show: Callable[[Progress], None]) -> CollectRollouts:
                return wired(
                    parts,
                    foundation,
                    provider,
                    fitted.spec,
                    fitted.outfit,
                    folder,
                    show,
                    resources,
                )

            return await self._collect(wire, folder, signals)

    async def _all_via(self, parts: RemoteParts, signals: Interruptions) -> int:
        """Have a server run the episodes; nothing is made here but the results."""
        async with open_environment(parts.plan) as environment:
            with self._folder(RandomIds()) as folder:
                self.has_begun = True

                def wire(show: Callable[[Progress], None]) -> CollectRollouts:
                    return wired_via(parts, environment, folder, show)

                ended = await self._collect(wire, folder, signals)
        self._tell_how_to_go_on(ended)
        return Status.GRADED if ended.summary.is_complete else Status.LEFT

    def _folder(self, ids: Ids) -> AbstractContextManager[ResultsFolder]:
        if self.ready.card is not None:
            return open_results_folder(self.ready.path)
        run = ids.fresh("run")
        card = _card(self.ready.parts, run, self.ready.state)
        return make_results_folder(self.ready.path, card)

    async def _collect(
        self,
        wire: Callable[[Callable[[Progress], None]], CollectRollouts],
        folder: ResultsFolder,
        signals: Interruptions,
    ) -> _Ended:
        if folder.healed_bytes:
            self.shared.say(
                f"A line that a kill had torn was cut off {RESULTS}"
                f" ({folder.healed_bytes} bytes); its episode is run again."
            )
        left = self._owed(folder, retry_masked=self.ready.retry_masked)
        if not left:
            self.shared.say("Nothing is left to run.")
        with shown_progress() as show:
            collect = wire(show)
            signals.stop = collect.stop
            if signals.stopped:
                collect.stop()
            await collect(left)
        again = len(self._owed(folder, retry_masked=False))
        return _Ended(
            summary=self._written(folder),
            again=again,
            masked_again=len(self._owed(folder, retry_masked=True)) - again,
        )

    def _owed(self, folder: ResultsFolder, *, retry_masked: bool) -> tuple[Owed, ...]:
        return owed(
            self.ready.parts.tasks.ids,
            folder.card.repeats,
            folder.log.records(),
            retry_masked=retry_masked,
        )

    def _written(self, folder: ResultsFolder) -> Summary:
        summary = summarise(folder.card, read_rows(folder.path / RESULTS))
        text = json.dumps(summary.written(), indent=2, ensure_ascii=False)
        folder.write("summary.json", text + "\n")
        folder.write("summary.md", to_markdown(summary))
        self.shared.results = folder.path
        self.shared.out().print(to_tables(summary))
        return summary

    async def _tell_open_claims(self, foundation: Foundation) -> None:
        """Name the claims of this process that could not be given back."""
        left: list[str] = []
        for key in await foundation.journal.open_streams("claims"):
            stream = claim_stream(ClaimId(key))
            claim = (await read_state(foundation.journal, stream, DECIDER)).state
            if claim.holder == foundation.holders.own:
                left.append(key)
        if left:
            more = f" and {len(left) - CLAIMS_NAMED_MAX} more"
            names = ", ".join(left[:CLAIMS_NAMED_MAX])
            self.shared.say(
                f"{len(left)} sandboxes were not seen gone: {names}"
                f"{more if len(left) > CLAIMS_NAMED_MAX else ''}."
                " `livery claims reap` tries again."
            )

    def tell_what_is_left(self) -> None:
        """Tell what stands after a fault that ended the run, and how to go on."""
        self.shared.say(
            f"What was graded until then is kept in {self.ready.path}. Sandboxes may be"
            " left: going on gives them back, and so does `livery claims reap`.\n"
            f"Go on, once that is mended, with: livery run --resume {self.ready.path}"
        )

    def _tell_how_to_go_on(self, ended: _Ended) -> None:
        path, summary = self.ready.path, ended.summary
        self.shared.say(f"Results: {path} (livery report {path})")
        resume = f"livery run --resume {path}"
        none = (
            "None of the {} episodes can be tried again: `livery report {}` tells why."
        )
        if summary.missing:
            self.shared.say(f"Go on with: {resume}")
        elif ended.again:
            self.shared.say(f"What can be tried again is, with: {resume}")
        elif summary.all.broken:
            self.shared.say(none.format("broken", path))
        if ended.masked_again:
            self.shared.say(
                f"The masked ones are run again with: {resume} --retry-masked"
            )
        elif summary.all.masked:
            self.shared.say(none.format("masked", path))


def _card(parts: Parts | RemoteParts, run: str, state: Path) -> RunCard:
    now = datetime.datetime.now(tz=datetime.UTC)
    plan, tasks = parts.plan, parts.tasks
    return RunCard(
        run=run,
        livery=importlib.metadata.version("livery"),
        created_at=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        source=SourceCard(
            name=tasks.source,
            taskset=tasks.taskset,
            tasks=len(tasks.tasks),
            digest=tasks.digest,
        ),
        harness=plan.harness if plan.via is None else VIA,
        sandbox=plan.sandbox if plan.via is None else VIA,
        repeats=plan.repeats,
        limit=plan.limit,
        state=str(state),
        settings=to_stored(plan),
    )
