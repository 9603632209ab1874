# SPDX-License-Identifier: Apache-2.0
"""Grade the work: see that it stands still, copy it out, judge it elsewhere.

By default the workspace is exported, the agent's sandbox released, and the grader
runs in a fresh one on the copy. The copy stands as an artifact, so a grader whose
sandbox broke is given another one; the agent is not run again for that.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

import anyio
import attrs

from ...domain.activations import Outcome, Stillness
from ...domain.claims import DECIDER, ClaimId, ClaimPhase
from ...domain.digests import Json
from ...domain.scores import Evidence, GraderEnd, GraderEvidence, judge
from ...domain.tasks import EpisodeId, Task
from ..required.apps import Apps
from ..required.artifact_store import ArtifactStore, Reader, Shelf
from ..required.clock import Ids
from ..required.faults import Fault
from ..required.journal import claim_stream
from ..required.participants import Turn
from ..required.sandbox import (
    ExitUnknown,
    FileForbidden,
    FileMissing,
    Liveness,
    Lost,
    NotAFile,
    NotStarted,
    Output,
    PathRefused,
    Sandbox,
    SandboxFailed,
    SandboxLost,
)
from ..required.sandbox_provider import ClaimLabel, SandboxSpec
from ..required.world import GraderPlan, GraderRun, GradeWhere, World
from .carry_out import read_state
from .claim_sandbox import ClaimSandbox, HeldSandbox
from .grader_starts import folder_taken, taken_from
from .move_tree import TreeNotMoved, export_tree, import_tree
from .place_files import place_over, whole
from .release_claim import ReleaseClaim
from .sandbox_programs import RuntimeMissing
from .take_turns import TakeTurns

log = logging.getLogger(__name__)

GRADING_ATTEMPTS_MAX: Final = 2
"""Fresh sandboxes that one grading may use up, when the first one breaks."""
GRADER_CLAIMS_MAX: Final = 8
"""Names of graders' claims; one is spent each time that a grading is cut off."""
REWARD_FILE_BYTES_MAX: Final = 64 * 1024
WORKSPACE_BYTES_MAX: Final = 8 * 1024**3
"""What a copied workspace may hold: one episode must not fill the disk of all."""
RELEASE_SECONDS: Final = 60.0
WORKSPACE: Final = "workspace.tar"

_NOTHING_TO_GRADE: Final = (Outcome.CANCELLED, Outcome.SANDBOX_ERROR, Outcome.OOM)


def grader_claim(session: str, number: int) -> ClaimId:
    """Return the claim of a session's grader sandbox, by its number."""
    return ClaimId(f"{session}-g{number}")


@attrs.frozen(kw_only=True)
class GradeWork:
    """The use case, for one world and one sandbox provider."""

    world: World
    claim: ClaimSandbox
    release: ReleaseClaim
    artifacts: ArtifactStore
    archive_program: bytes
    """The worker script that packs and unpacks a folder inside a sandbox."""
    marks: Ids
    turns: TakeTurns | None = None
    """In which apps are judged where many may be at once: a world does it on the loop."""

    async def __call__(
        self,
        *,
        session: str,
        episode: EpisodeId,
        task: Task,
        turn: Turn,
        stillness: Stillness,
        held: HeldSandbox | None,
        spec: SandboxSpec | None,
        apps: Apps | None = None,
        provider_failure: str = "",
    ) -> Mapping[str, Json]:
        """Return the verify reply. `held` is the agent's sandbox, `spec` its kind.

        A world's `apps` are judged by the state that they are in. A
        `provider_failure` that hindered the agent says that the reward measures
        nothing. Where the sandbox had to be ended for the harness to stand still, there is
        nothing left to grade, and that was the agent's doing.

        Raises:
            Fault: The workspace could not be copied out of the agent's sandbox.
        """
        evidence = Evidence(
            outcome=turn.outcome,
            upstream_failed=turn.upstream_failed,
            reason=turn.reason,
            provider_failure=provider_failure,
        )
        if evidence.provider_failure or turn.upstream_failed:
            return _reply(task, turn, evidence)
        if turn.outcome not in _NOTHING_TO_GRADE:
            grading = _Grading(
                work=self,
                session=session,
                episode=episode,
                task=task,
                spec=spec,
                stillness=stillness,
            )
            if apps is not None:
                judge = partial(_of_apps, apps)
                found = await (judge() if self.turns is None else self.turns(judge))
            elif stillness is Stillness.SANDBOX_GONE and self.looks_inside(task):
                found = _no_work(turn.reason)
            else:
                found = await grading.evidence(held)
            evidence = attrs.evolve(evidence, grader=found)
        return _reply(task, turn, evidence)

    def looks_inside(self, task: Task) -> bool:
        """Tell whether the work is judged by what the sandbox holds."""
        return self.world.grader(task, self.marks.fresh("mark")) is not None


@attrs.frozen(kw_only=True)
class _Grading:
    """One grading under way."""

    work: GradeWork
    session: str
    episode: EpisodeId
    task: Task
    spec: SandboxSpec | None
    stillness: Stillness

    async def evidence(self, held: HeldSandbox | None) -> GraderEvidence:
        mark = self.work.marks.fresh("mark")
        plan = self.work.world.grader(self.task, mark)
        if plan is None:
            return self.work.world.evidence(self.task, None)
        if plan.where is GradeWhere.SAME:
            return await self._in_the_same_sandbox(held)
        try:
            await self._export(held)
        except (RuntimeMissing, SandboxFailed, TreeNotMoved) as fault:
            if not await self._is_of_the_agent(fault, held):
                raise
            return _no_work(str(fault))
        if held is not None:
            await held.sandbox.disconnect()
            await self.work.release(
                held.label, reason="graded in a fresh sandbox", known=held.standing
            )
        return await self._in_fresh_sandboxes()

    async def _export(self, held: HeldSandbox | None) -> None:
        """Copy the workspace out, unless an earlier try has done it."""
        if await self.work.artifacts.find(self._shelf, WORKSPACE) is not None:
            return
        if held is None:
            raise SandboxLost(
                provider=self.work.claim.provider.name,
                sandbox=self.session,
                reason="it was gone before the work in it was copied",
            )
        async with export_tree(
            held.sandbox,
            held.sandbox.workdir,
            program=self.work.archive_program,
            bytes_max=WORKSPACE_BYTES_MAX,
        ) as exported:
            for skipped in exported.report.skipped:
                log.warning("Not exported: %s: %s", skipped.path, skipped.reason)
            await self.work.artifacts.put(
                self._shelf,
                WORKSPACE,
                exported.chunks,
                readers=frozenset({Reader.GRADER}),
            )

    async def _is_of_the_agent(self, fault: Fault, held: HeldSandbox | None) -> bool:
        """Whether work cannot be taken out for what the harness did to its sandbox.

        It was supervised there, so there was a Python then, and nothing else ran since.
        """
        if self.stillness is not Stillness.PROCESSES_SEEN_DEAD or held is None:
            return False
        match fault:
            case TreeNotMoved(too_large=True):
                return True
            case RuntimeMissing() | SandboxFailed(from_inside=True):
                return await _lives(held.sandbox)
            case _:
                return False

    async def _in_the_same_sandbox(self, held: HeldSandbox | None) -> GraderEvidence:
        if held is None:
            return _not_started("there is no sandbox to grade in")
        evidence = _not_started("it was never tried")
        for _ in range(GRADING_ATTEMPTS_MAX):
            plan, mark = self._plan()
            try:
                evidence = await self._run(plan, mark, held.sandbox)
            except (NotAFile, FileForbidden, PathRefused, SandboxFailed) as fault:
                nothing_ran = self.stillness is Stillness.NOTHING_RAN
                if nothing_ran or not (taken := await folder_taken(held.sandbox)):
                    raise
                return _no_work(f"{taken}: {fault}")
            if evidence.end is not GraderEnd.UNSEEN:
                break
        return evidence

    async def _in_fresh_sandboxes(self) -> GraderEvidence:
        if self.spec is None:
            return _not_started("the task has no sandbox to grade in")
        lost = GraderEvidence(
            end=GraderEnd.LOST, reason="no claim was left for its sandbox"
        )
        unseen: GraderEvidence | None = None
        for claim in await self._unused_claims():
            plan, mark = self._plan()
            try:
                evidence = await self._in_fresh_sandbox(plan, mark, claim)
            except Fault as fault:
                evidence = attrs.evolve(lost, reason=str(fault))
            if evidence.end is GraderEnd.LOST:
                log.warning("The grader's sandbox broke: %s", evidence.reason)
                lost = evidence
            elif evidence.end is GraderEnd.UNSEEN and unseen is None:
                unseen = evidence  # Once may be chance; the work does it each time.
            else:
                return evidence
        return lost

    def _plan(self) -> tuple[GraderPlan, str]:
        """Return the plan of one try, with a mark of its own."""
        mark = self.work.marks.fresh("mark")
        plan = self.work.world.grader(self.task, mark)
        assert plan is not None, "the world had a grader a moment ago"
        return plan, mark

    async def _unused_claims(self) -> tuple[ClaimId, ...]:
        """Return the next claims; one that a cut-off grading had is given back."""
        unused: tuple[ClaimId, ...] = ()
        for number in range(GRADER_CLAIMS_MAX):
            claim = grader_claim(self.session, number)
            stream = claim_stream(claim)
            standing = await read_state(self.work.claim.journal, stream, DECIDER)
            if standing.state.phase is ClaimPhase.ABSENT:
                unused = (*unused, claim)
            else:
                label = ClaimLabel(claim=claim, owner=self.work.claim.owner)
                await self.work.release(
                    label, reason="its grading was cut off", known=standing
                )
            if len(unused) == GRADING_ATTEMPTS_MAX:
                break
        return unused

    async def _in_fresh_sandbox(
        self, plan: GraderPlan, mark: str, claim: ClaimId
    ) -> GraderEvidence:
        assert self.spec is not None, "asked for above"
        held = await self.work.claim(claim, self.spec, used_by=self.episode.key)
        try:
            async with self.work.artifacts.get(
                self._shelf, WORKSPACE, reader=Reader.GRADER
            ) as chunks:
                await import_tree(
                    held.sandbox,
                    held.sandbox.workdir,
                    chunks,
                    program=self.work.archive_program,
                    replaces=True,  # What the agent deleted is not to come back.
                )
            return await self._run(plan, mark, held.sandbox)
        finally:
            await self._give_back(held)

    async def _give_back(self, held: HeldSandbox) -> None:
        """Release the grader's sandbox; one that stays is the reaper's."""
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
            try:
                await held.sandbox.disconnect()
                await self.work.release(
                    held.label, reason="the grading is over", known=held.standing
                )
            except Fault as fault:
                log.error("Claim %s is still open: %s", held.label.claim, fault)

    async def _run(
        self, plan: GraderPlan, mark: str, sandbox: Sandbox
    ) -> GraderEvidence:
        await place_over(sandbox, plan.files)
        ended = await sandbox.exec(plan.command)
        await self._keep("grader.stdout", ended.stdout)
        await self._keep("grader.stderr", ended.stderr)
        reward = None
        if plan.reward_file is not None and not isinstance(
            ended.how, Lost | ExitUnknown
        ):
            reward = await _small_file(sandbox, plan.reward_file)
        run = GraderRun(mark=mark, ended=ended, reward_file=reward)
        evidence = self.work.world.evidence(self.task, run)
        if isinstance(ended.how, NotStarted) and (
            spoilt := await self._spoilt(plan, sandbox)
        ):
            return _no_work(f"{evidence.reason}: {spoilt}")
        if isinstance(ended.how, ExitUnknown) and await _lives(sandbox):
            return attrs.evolve(evidence, end=GraderEnd.UNSEEN, reason=ended.how.reason)
        return evidence

    async def _spoilt(self, plan: GraderPlan, sandbox: Sandbox) -> str:
        """Return what the agent took from the grader, so that it could not start."""
        if self.stillness is Stillness.NOTHING_RAN:
            return ""
        return await taken_from(plan, sandbox, self.work.world.files(self.task))

    async def _keep(self, name: str, output: Output) -> None:
        if output.size:
            await self.work.artifacts.put(self._shelf, name, whole(output.kept))

    @property
    def _shelf(self) -> Shelf:
        return Shelf(self.episode.key)


async def _of_apps(apps: Apps) -> GraderEvidence:
    try:
        return await apps.evidence()
    except Exception as error:
        # A world is somebody's code, and may fail in any way; that is not the agent's.
        log.exception("A world failed at grading")
        return _not_started(f"the world failed: {type(error).__name__}: {error}")


async def _lives(sandbox: Sandbox) -> bool:
    return (await sandbox.status()).liveness is Liveness.RUNNING


async def _small_file(sandbox: Sandbox, path: str) -> bytes | None:
    """Return the file's content; None when it is not there or is no small file."""
    content = b""
    try:
        async with sandbox.get(path) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > REWARD_FILE_BYTES_MAX:
                    return None
    except (FileMissing, NotAFile, FileForbidden, PathRefused):
        return None
    return content


def _no_work(reason: str) -> GraderEvidence:
    return GraderEvidence(end=GraderEnd.NO_WORK, reason=reason)


def _not_started(reason: str) -> GraderEvidence:
    return GraderEvidence(end=GraderEnd.NOT_STARTED, reason=reason)


def _reply(task: Task, turn: Turn, evidence: Evidence) -> Mapping[str, Json]:
    verdict = judge(evidence)
    # A grader's own words stand under a key of ours: at the top they could take a
    # name that the readers of results have reserved.
    details = None if evidence.grader is None else evidence.grader.details
    return {
        "responses_create_params": task.responses_create_params,
        "response": turn.response,
        "reward": verdict.reward,
        "mask_sample": verdict.masked,
        "failure_kind": verdict.failure_kind,
        "failure_reason": verdict.failure_reason,
        "livery": {"outcome": turn.outcome, "grader": details or None},
    }
