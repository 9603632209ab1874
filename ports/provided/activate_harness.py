# SPDX-License-Identifier: Apache-2.0
"""Activate a harness: put its files, run its command once, read what it left.

The run is supervised in the sandbox, so it survives us. What it wrote is kept whole
as artifacts, and a bounded part of it is read into the answer.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import attrs

from ...domain.activations import Ending, Outcome, RunId, Stillness
from ...domain.digests import Json
from ..required.artifact_store import ArtifactStore, Shelf
from ..required.clock import Clock
from ..required.harness import (
    Capture,
    CollectedFile,
    Harness,
    HarnessRequest,
    HostHarness,
    HostRun,
    Launch,
    Observations,
    Place,
    Reading,
    RequestRefused,
    Run,
    ToolAccess,
    is_on_host,
)
from ..required.model_access import ModelGrant, ModelRecord
from ..required.sandbox import (
    GRACE_SECONDS,
    Command,
    Exited,
    ExitUnknown,
    FileForbidden,
    FileKind,
    FileMissing,
    How,
    Liveness,
    Lost,
    NotAFile,
    NotStarted,
    Output,
    PathRefused,
    Sandbox,
    SandboxFailed,
    SandboxLost,
    TimedOut,
    TransferCut,
)
from . import run_receipts
from .json_texts import to_json
from .output_ends import OutputEnds
from .place_files import make_private_folders, place_files
from .responses import to_response
from .run_receipts import (
    Cancelled,
    CommandMissing,
    EndedEarly,
    Finished,
    Launched,
    LaunchFailed,
    Receipt,
    RunHow,
    Vanished,
)
from .sandbox_programs import RuntimeMissing
from .supervised_run import SandboxSession, Stream
from .token_data import with_whole_token_data

READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of each output is read into memory for the answer, half from each end."""

COLLECTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much of a file is kept beside the outputs: one may tell of any size."""

_NOT_COLLECTED: Final = (
    FileMissing,
    FileForbidden,
    NotAFile,
    PathRefused,
    TransferCut,
    SandboxFailed,
    SandboxLost,
)
_NO_OUTPUT: Final = (FileMissing, FileForbidden, NotAFile, PathRefused)
"""What the run put where its output was kept, or made of it, is its own doing."""


@attrs.frozen(kw_only=True)
class Equipment:
    """What a session has for its harness beside the sandbox."""

    is_boundary: bool = False
    """Whether the sandbox keeps what runs in it from the host."""
    runtime_path: str | None = None
    runtime: Mapping[str, Json] | None = None
    """What is told of the program that stands there."""
    model: ModelGrant | None = None
    seen_of_model: Callable[[], ModelRecord] | None = None
    """Tells what the gateway saw of the session's calls so far."""
    tools: tuple[ToolAccess, ...] | None = None
    """The granted ones as the sandbox reaches them; None: as they were granted."""


JOURNAL_BEHIND: Final = (
    "it had begun before, and the journal knows nothing of that: was it put back from"
    " an older copy?"
)
SUPERVISOR_ENDED: Final = "what supervised the harness was ended from inside"
"""The harness did that: nothing else was in there to do it."""


@attrs.frozen(kw_only=True)
class Attempt:
    """One activation to run, or to take over."""

    run: RunId
    request: HarnessRequest
    sandbox: Sandbox | None
    fresh: bool
    """Whether the intent was just written; otherwise the run is only looked for."""
    equipment: Equipment = Equipment()


@attrs.frozen(kw_only=True)
class ActivateHarness:
    """The use case, for one harness."""

    harness: Harness
    artifacts: ArtifactStore
    clock: Clock
    supervisor_program: bytes
    """The worker script that supervises a run inside the sandbox."""
    _on_host: dict[RunId, tuple[HostRun, float]] = attrs.field(
        factory=dict[RunId, tuple[HostRun, float]], init=False
    )
    """What runs on this host, by its activation, and since when by the clock."""

    async def __call__(self, attempt: Attempt) -> Ending:
        """Run the harness, or take its run over, and return how that ended.

        Cancelling leaves the run going; `stop` ends it.

        Raises:
            RequestRefused: The harness cannot be run like that.
            CommandMissing: The sandbox has no such program; asked again, it says the same.
            Fault: Nobody could see how it ended; the run may go on.
        """
        if is_on_host(self.harness):
            return await self._acted(self.harness, attempt)
        try:
            capture, stillness = await self._captured(attempt)
        except (SandboxLost, LaunchFailed) as fault:
            return await self._ending(
                attempt, Capture(how=Lost(str(fault))), None, Outcome.SANDBOX_ERROR
            )
        if await _ended_its_supervisor(attempt, capture):
            seen = capture.how.reason if isinstance(capture.how, ExitUnknown) else ""
            capture = attrs.evolve(capture, reason=f"{SUPERVISOR_ENDED}: {seen}")
            return await self._ending(attempt, capture, stillness, Outcome.FAILED)
        return await self._ending(attempt, capture, stillness)

    async def stop(self, attempt: Attempt) -> Ending:
        """End the run if it goes on, keep what it wrote, and say `cancelled`.

        A run that was over by itself before is told as what it came to.

        Raises:
            Fault: It could not be ended, or nobody could look.
        """
        if is_on_host(self.harness):
            return await self._stopped_on_host(attempt)
        try:
            capture, stillness = await self._stopped(attempt)
        except SandboxLost as lost:
            capture = Capture(how=Lost(str(lost)), stopped=True)
            stillness = Stillness.SANDBOX_GONE
        except RuntimeMissing as missing:
            # Without it nothing can have been begun, unless the run took it away.
            capture = Capture(how=None, stopped=True, reason=str(missing))
            stillness = None
        return await self._ending(attempt, capture, stillness)

    async def unseen(self, attempt: Attempt, outcome: Outcome, reason: str) -> Ending:
        """Return the ending of a run that nobody could look at, or not in time."""
        capture = Capture(how=Lost(reason))
        return await self._ending(attempt, capture, None, outcome)

    async def _acted(self, harness: HostHarness, attempt: Attempt) -> Ending:
        """Run the harness on this host; cancelled, it is left for `stop` to read."""
        if not attempt.fresh:
            return await self._stopped_on_host(attempt)
        run = harness.begin(attempt.request, _place(attempt))
        began = self.clock.monotonic()
        self._on_host[attempt.run] = run, began
        try:
            await run.carry_out()
        except Exception:
            del self._on_host[attempt.run]
            raise
        del self._on_host[attempt.run]
        reading, seconds = run.reading(stopped=False), self.clock.monotonic() - began
        return self._told(attempt, reading, Stillness.NOTHING_RAN, seconds)

    async def _stopped_on_host(self, attempt: Attempt) -> Ending:
        if (known := self._on_host.pop(attempt.run, None)) is not None:
            run, began = known
            reading, seconds = run.reading(stopped=True), self.clock.monotonic() - began
            return self._told(attempt, reading, Stillness.NOTHING_RAN, seconds)
        reason = "the process that ran it was ended"
        capture = Capture(how=None, stopped=True, reason=reason)
        return await self._ending(attempt, capture, Stillness.NOTHING_RAN)

    async def _captured(self, attempt: Attempt) -> tuple[Capture, Stillness | None]:
        sandbox = attempt.sandbox
        launch = await self.harness.prepare(attempt.request, _place(attempt))
        if launch == Launch():
            return Capture(how=None), Stillness.NOTHING_RAN
        if sandbox is None:
            raise RequestRefused(
                harness=self.harness.name,
                field="sandbox_access",
                reason="it needs a sandbox and none was lent",
            )
        if attempt.fresh or launch.run is None:
            await make_private_folders(sandbox, launch.folders)
            await place_files(sandbox, launch.files)
        if launch.run is None:
            return Capture(how=None), Stillness.NOTHING_RAN
        session = self._session(sandbox)
        await session.make_ready()
        try:
            unbegun = await self._begun(attempt, session, launch.run)
            if unbegun is not None:
                return unbegun, None
            receipt = await session.wait(
                _run_id(attempt),
                timeout_seconds=launch.run.timeout_seconds,
                grace_seconds=GRACE_SECONDS,
            )
            return await self._ended(attempt, session, receipt, launch)
        except SandboxFailed as fault:
            if not fault.from_inside:
                raise
            # All was well until the harness began, and nothing else was in there.
            return Capture(how=ExitUnknown(fault.reason)), None

    async def _begun(
        self, attempt: Attempt, session: SandboxSession, run: Run
    ) -> Capture | None:
        """Begin the run, or find it again; tell of one that never began."""
        if attempt.fresh:
            launched = await session.launch(
                _run_id(attempt),
                _command(run),
                stdin_path=run.stdin_path,
                watch=run.watch,
            )
            if launched is Launched.EARLIER:
                # What it wrote may have been written over since: it measures nothing.
                raise LaunchFailed(_run_id(attempt), JOURNAL_BEHIND)
        else:
            state = await session.forbid(_run_id(attempt))
            if isinstance(state, run_receipts.Forbidden | run_receipts.Absent):
                reason = "it had not begun when the process that asked for it was ended"
                return Capture(how=None, stopped=True, reason=reason)
        return None

    async def _ended(
        self,
        attempt: Attempt,
        session: SandboxSession,
        receipt: Receipt,
        launch: Launch,
    ) -> tuple[Capture, Stillness | None]:
        """Return what a run that is over left."""
        if isinstance(receipt.how, NotStarted) and receipt.how.no_program:
            raise CommandMissing(self.harness.name, receipt.how.reason)
        capture = await self._of_receipt(attempt, session, receipt, launch)
        if _was_ended_from_inside(attempt, receipt):
            capture = attrs.evolve(capture, stopped=False)
        return capture, _stillness(receipt)

    async def _stopped(self, attempt: Attempt) -> tuple[Capture, Stillness | None]:
        if attempt.sandbox is None:
            return Capture(how=None, stopped=True), Stillness.NOTHING_RAN
        if (await attempt.sandbox.status()).liveness is Liveness.FROZEN:
            how = Lost("it was not looked for in a sandbox that is frozen")
            return Capture(how=how, stopped=True), None
        session = self._session(attempt.sandbox)
        state = await session.forbid(_run_id(attempt))
        by_itself = not isinstance(state, run_receipts.Running)
        if not by_itself:
            state = await session.stop(_run_id(attempt), grace_seconds=GRACE_SECONDS)
        if isinstance(state, Finished | Vanished):
            try:
                launch = await self.harness.prepare(attempt.request, _place(attempt))
            except RequestRefused:
                # What it was prepared from is gone; its outputs are not.
                launch = Launch()
            capture = await self._of_receipt(attempt, session, state.receipt, launch)
            # What was cut off in its launch is ended by a signal, and not by itself.
            by_itself = by_itself and _is_over_by_itself(state.receipt.how)
            capture = attrs.evolve(capture, stopped=not by_itself)
            return capture, _stillness(state.receipt)
        still = isinstance(state, run_receipts.Forbidden | run_receipts.Absent)
        reason = "" if still else "it goes on in its sandbox"
        return (
            Capture(how=None, stopped=True, reason=reason),
            Stillness.NOTHING_RAN if still else None,
        )

    async def _of_receipt(
        self,
        attempt: Attempt,
        session: SandboxSession,
        receipt: Receipt,
        launch: Launch,
    ) -> Capture:
        return Capture(
            how=_how(receipt),
            stopped=isinstance(receipt.how, Cancelled),
            stdout=await self._output(attempt, session, "stdout", receipt.stdout.size),
            stderr=await self._output(attempt, session, "stderr", receipt.stderr.size),
            duration_seconds=receipt.duration_seconds,
            reason="; ".join(
                filter(None, (receipt.stdout.fault, receipt.stderr.fault))
            ),
            ended_early=(
                receipt.how.cause if isinstance(receipt.how, EndedEarly) else None
            ),
            files=await self._collected(attempt, launch.collected),
        )

    async def _output(
        self, attempt: Attempt, session: SandboxSession, stream: Stream, size: int
    ) -> Output:
        """Keep an output whole as an artifact, and read its two ends."""
        if not size:
            return Output()
        opened = session.output(_run_id(attempt), stream)
        try:
            kept = await self._kept(attempt, f"{stream}.log", opened)
        except _NO_OUTPUT:
            return Output(size=size)
        return attrs.evolve(kept, size=size)

    async def _collected(
        self, attempt: Attempt, wanted: tuple[CollectedFile, ...]
    ) -> Mapping[str, Output]:
        """Keep the files that are there; each is a further source, none is needed."""
        found: dict[str, Output] = {}
        sandbox = attempt.sandbox
        assert sandbox is not None, "what ran had a sandbox"
        for file in wanted:
            opened = _beginning(sandbox, file.path)
            try:
                kept = await self._kept(attempt, file.name, opened)
                if kept.size == COLLECTED_BYTES_MAX:
                    seen = await sandbox.stat(file.path)
                    # What a link leads to is not looked at: it may hold more.
                    is_file = seen.kind is FileKind.FILE
                    size = seen.size if is_file else kept.size + 1
                    kept = attrs.evolve(kept, size=max(size, kept.size))
            except _NOT_COLLECTED:
                continue
            found[file.name] = kept
        return found

    async def _kept(
        self,
        attempt: Attempt,
        name: str,
        opened: AbstractAsyncContextManager[AsyncIterator[bytes]],
    ) -> Output:
        ends = OutputEnds(bytes_max=READ_BYTES_MAX)
        shelf = Shelf(attempt.request.episode.key)
        async with opened as chunks:
            await self.artifacts.put(shelf, name, ends.through(chunks))
        return Output(head=bytes(ends.head), tail=ends.last(), size=ends.size)

    async def _ending(
        self,
        attempt: Attempt,
        capture: Capture,
        stillness: Stillness | None,
        outcome: Outcome | None = None,
    ) -> Ending:
        sandbox, seen = attempt.sandbox, attempt.equipment.seen_of_model
        capture = attrs.evolve(
            capture,
            provider=sandbox.access().provider if sandbox is not None else "",
            sandbox_id=sandbox.sandbox_id if sandbox is not None else "",
            model=seen() if seen is not None else None,
        )
        reading = await self.harness.read(attempt.request, capture)
        if outcome is None and capture.stopped:
            outcome = Outcome.CANCELLED
        if outcome is not None:
            reading = attrs.evolve(
                reading, outcome=outcome, reason=_reason(reading, capture)
            )
        return self._told(attempt, reading, stillness, capture.duration_seconds)

    def _told(
        self,
        attempt: Attempt,
        reading: Reading,
        stillness: Stillness | None,
        seconds: float,
    ) -> Ending:
        runtime = attempt.equipment.runtime
        output, gaps = with_whole_token_data(reading.output)
        reading = attrs.evolve(reading, output=output)
        response = to_response(
            reading,
            attempt.request.parameters,
            f"resp_{attempt.run}",
            self.clock.now(),
        )
        return Ending(
            outcome=reading.outcome,
            reply=to_json(response),
            observations=to_json(_bundle(reading.observations, gaps)),
            stillness=stillness,
            upstream_failed=reading.upstream_failed,
            reason=reading.reason,
            runtime="" if runtime is None else to_json(runtime),
            seconds=seconds,
        )

    def _session(self, sandbox: Sandbox) -> SandboxSession:
        return SandboxSession(sandbox=sandbox, supervisor=self.supervisor_program)


@asynccontextmanager
async def _beginning(
    sandbox: Sandbox, path: str
) -> AsyncGenerator[AsyncIterator[bytes]]:
    """Open a file of which `COLLECTED_BYTES_MAX` are read, and no more."""
    async with sandbox.get(path) as chunks:
        yield _at_most(chunks, COLLECTED_BYTES_MAX)


async def _at_most(chunks: AsyncIterator[bytes], left: int) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            return


def _place(attempt: Attempt) -> Place:
    if attempt.sandbox is None:
        return Place(workdir="/", scratch="/")
    return Place(
        workdir=attempt.sandbox.workdir,
        scratch=f"{attempt.sandbox.scratch}/{attempt.run}",
        is_boundary=attempt.equipment.is_boundary,
        runtime_path=attempt.equipment.runtime_path,
        model=attempt.equipment.model,
    )


def _run_id(attempt: Attempt) -> run_receipts.RunId:
    return run_receipts.RunId(attempt.run)


def _command(run: Run) -> Command:
    return Command(
        argv=run.argv,
        env=run.env,
        timeout_seconds=run.timeout_seconds,
        output_bytes_max=run.output_bytes_max,
    )


def _is_over_by_itself(how: RunHow) -> bool:
    """Whether a run ended like that and nobody had to stop it."""
    if isinstance(how, NotStarted):
        return how.no_program
    return isinstance(how, Exited | TimedOut | EndedEarly)


def _how(receipt: Receipt) -> How:
    if isinstance(receipt.how, Cancelled):
        return ExitUnknown(f"it was stopped: {receipt.how.reason}")
    if isinstance(receipt.how, EndedEarly):
        return ExitUnknown(
            f"it was ended after {receipt.how.after_seconds:g} seconds,"
            f" by its watch: {receipt.how.cause.value}"
        )
    return receipt.how


def _was_ended_from_inside(attempt: Attempt, receipt: Receipt) -> bool:
    """Whether nobody but the harness can have asked for the run's end.

    Where the sandbox is no boundary, the host ends all of its processes like that.
    """
    stopped = isinstance(receipt.how, Cancelled) and not receipt.how.asked
    return stopped and attempt.equipment.is_boundary


async def _ended_its_supervisor(attempt: Attempt, capture: Capture) -> bool:
    """Whether what supervises was ended in a sandbox that lives on."""
    told = capture.stopped or capture.ended_early is not None
    if told or not isinstance(capture.how, ExitUnknown) or attempt.sandbox is None:
        return False
    return (await attempt.sandbox.status()).liveness is Liveness.RUNNING


def _stillness(receipt: Receipt) -> Stillness | None:
    return Stillness.PROCESSES_SEEN_DEAD if receipt.seen_gone else None


def _reason(reading: Reading, capture: Capture) -> str:
    how = capture.how.reason if isinstance(capture.how, Lost) else ""
    return capture.reason or how or reading.reason


def _bundle(
    observations: Observations, more_gaps: Iterable[Mapping[str, Json]]
) -> Mapping[str, Json]:
    return {
        "source": observations.source,
        "records": [dict(record) for record in observations.records],
        "gaps": [dict(gap) for gap in (*observations.gaps, *more_gaps)],
    }
