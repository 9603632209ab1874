# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are folders and processes of this host: no isolation.

A command can do whatever the user who runs Livery can do. What is promised is
order: a folder for each claim, a reduced environment, every process of a
sandbox ended with it. A sandbox outlives the process that made it and is found
by its claim; its lifetime is kept while a provider object is open, and looked
at whenever it is found, but nothing ends it while nobody looks. What a command
runs ends with this process, but for detached supervisors, which have a deadline
of their own.
"""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import attrs

from ...domain.claims import ClaimId, OwnerId
from ...ports.required.faults import Fault
from ...ports.required.sandbox import (
    Liveness,
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
)
from ...ports.required.sandbox_provider import (
    Capabilities,
    CapacityExhausted,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    DestroyFailed,
    ListedSandbox,
    ProviderForbidden,
    ProviderUnreachable,
    SandboxSpec,
)
from . import claim_folders, host_processes
from .claim_folders import ClaimRecord, FolderState, RecordUnreadable
from .host_settings import LocalHostConfig, environment, opened_root
from .sandbox import LocalHostSandbox
from .sandbox_paths import described, identity
from .spec_terms import CAPABILITIES, check_spec, to_digest

THREADS_MAX = 8
FOUND_READY_SECONDS = 60.0
"""How long a sandbox that was found may take to run its first command."""
END_SECONDS_MAX = 15.0
"""How long killed processes are waited for before they are named instead."""
LOOK_AGAIN_SECONDS = 0.02
ROLLBACK_SECONDS_MAX = 60.0

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def open_local_host(
    config: LocalHostConfig,
) -> AsyncGenerator["LocalHostSandboxProvider"]:
    """Open the provider; on leaving, its handles end and its sandboxes go on.

    Raises:
        ProviderUnreachable: This is no Linux, or the folder cannot be made.
        ProviderForbidden: The folder is not this user's.
    """
    root = opened_root(config)
    async with anyio.create_task_group() as tasks:
        provider = LocalHostSandboxProvider(config=config, root=root, tasks=tasks)
        try:
            yield provider
        finally:
            with anyio.CancelScope(shield=True):
                await provider.aclose()
            tasks.cancel_scope.cancel()


@attrs.define(kw_only=True, eq=False)
class LocalHostSandboxProvider:
    """What makes, finds and ends the sandboxes below one folder."""

    config: LocalHostConfig
    root: Path
    tasks: anyio.abc.TaskGroup
    _threads: anyio.CapacityLimiter = attrs.field(
        factory=lambda: anyio.CapacityLimiter(THREADS_MAX), init=False
    )
    _handles: dict[Path, set[LocalHostSandbox]] = attrs.field(
        factory=dict[Path, set[LocalHostSandbox]], init=False
    )
    _is_closed: bool = attrs.field(default=False, init=False)
    _has_warned: bool = attrs.field(default=False, init=False)

    @property
    def name(self) -> str:
        """The short word for the provider."""
        return self.config.name

    @property
    def capabilities(self) -> Capabilities:
        """Lending alone: this host is no isolated machine."""
        return CAPABILITIES

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> LocalHostSandbox:
        """Make the folder of a claim and a worker for it, or adopt what is there."""
        check_spec(self.name, spec)
        self._check_open()
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "Provider %s does not isolate: commands run as this user, on this host",
                self.name,
            )
        folder = claim_folders.folder_of(self.root, label.claim)
        now = time.time()
        record = ClaimRecord(
            label=label,
            spec=to_digest(spec),
            env=spec.env,
            created=now,
            # Until it is ready; the lifetime is counted from then.
            expires=now + spec.ready_timeout_seconds + spec.lifetime_seconds,
        )
        is_made = await self._made(folder, record)
        try:
            if not is_made:
                record = await self._adopted(folder, record)
            return await self._ready(folder, record, spec, is_made=is_made)
        except BaseException:
            if is_made:
                await self._undo(label)
            raise

    async def find(self, label: ClaimLabel) -> LocalHostSandbox | None:
        """Return the live sandbox of a claim; one that expired is ended by this."""
        self._check_open()
        folder = claim_folders.folder_of(self.root, label.claim)
        record = await self._record(
            folder, lambda why: SandboxFailed(self.name, folder.name, "find", why)
        )
        if record is None or record.label != label:
            return None
        if record.state is not FolderState.LIVE:
            return None
        if time.time() >= record.expires:
            await self._expire(folder)
            return None
        sandbox = self._handle(folder, record)
        try:
            wrong = await sandbox.check_ready(seconds=FOUND_READY_SECONDS)
        except BaseException:
            await sandbox.disconnect()
            raise
        if wrong is None:
            return self._kept(sandbox)
        await sandbox.disconnect()
        if (await sandbox.status()).liveness is Liveness.ENDED:
            return None
        raise SandboxFailed(self.name, folder.name, "find", wrong)

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell the folder that is meant, without links, whatever folder is inside it."""
        return await self._in_thread(lambda: identity(self.name, access))

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> LocalHostSandbox:
        """Reach a sandbox of this host that another lent."""
        self._check_open()
        folder, workdir = described(self.name, access)
        record = await self._record(
            folder, lambda why: SandboxLost(self.name, folder.name, why)
        )
        if record is None:
            reason = f"there is no sandbox in {folder}"
            raise SandboxLost(self.name, folder.name, reason)
        if record.state is FolderState.LIVE and time.time() >= record.expires:
            await self._expire(folder)
        sandbox = self._handle(folder, record, workdir=workdir, borrower=borrower)
        try:
            wrong = await sandbox.check_ready(seconds=FOUND_READY_SECONDS)
            if wrong is not None:
                raise SandboxLost(self.name, folder.name, wrong)
            await self._in_thread(
                lambda: Path(sandbox.scratch).mkdir(mode=0o700, exist_ok=True)
            )
        except BaseException:
            await sandbox.disconnect()
            raise
        return self._kept(sandbox)

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every folder with the owner's label, ended and half made ones too."""
        for path, record in await self._in_thread(
            lambda: tuple(claim_folders.records(self.root))
        ):
            if isinstance(record, RecordUnreadable):
                _LOG.warning("Nobody can tell whose this is: %s", record)
            elif record.label.owner == owner:
                yield ListedSandbox(
                    label=record.label,
                    sandbox_id=SandboxId(path.name),
                    expires_at=record.expires,
                    state=claim_folders.told_state(path, record),
                )

    async def destroy(self, label: ClaimLabel) -> None:
        """End every process of the sandbox, see them gone, remove its folder."""
        folder = claim_folders.folder_of(self.root, label.claim)
        record = await self._record(
            folder, lambda why: DestroyFailed(self.name, label.claim, why)
        )
        if record is not None and record.label != label:
            raise ClaimTaken(self.name, label.claim, f"{folder} is another owner's")
        await self._mark(folder, FolderState.ENDING, "it was destroyed")
        if left := await self._end_processes(folder):
            reason = f"processes {sorted(left)} do not end"
            raise DestroyFailed(self.name, label.claim, reason)
        await self._let_go(folder)
        try:
            await self._in_thread(lambda: claim_folders.remove(folder))
        except OSError as fault:
            raise DestroyFailed(self.name, label.claim, str(fault)) from fault
        if await self._in_thread(folder.exists):
            raise DestroyFailed(self.name, label.claim, f"{folder} is there again")

    async def aclose(self) -> None:
        """Let go of every handle; folders and detached supervisors go on."""
        self._is_closed = True
        async with anyio.create_task_group() as closing:
            for folder in tuple(self._handles):
                closing.start_soon(self._let_go, folder)

    async def _made(self, folder: Path, record: ClaimRecord) -> bool:
        """Make the folder; return False when one has the name already."""
        claim = record.label.claim
        try:
            return await self._in_thread(lambda: claim_folders.make(folder, record))
        except OSError as fault:
            if fault.errno in claim_folders.FULL:
                raise CapacityExhausted(self.name, str(fault)) from fault
            if fault.errno in claim_folders.FORBIDDEN:
                root = str(self.root)
                raise ProviderForbidden(self.name, root, str(fault)) from fault
            raise CreateFailed(self.name, claim, "create", str(fault)) from fault

    async def _adopted(self, folder: Path, asked: ClaimRecord) -> ClaimRecord:
        """Return the record of what has the name, when it is what was asked for."""
        claim = asked.label.claim
        there = await self._record(
            folder, lambda why: ClaimTaken(self.name, claim, why)
        )
        if there is None:
            reason = f"{folder} went away while it was looked at"
            raise CreateFailed(self.name, claim, "create", reason)
        if reason := claim_folders.why_not_adopted(there, asked):
            raise ClaimTaken(self.name, claim, f"{folder} is {reason}")
        return there

    async def _ready(
        self, folder: Path, record: ClaimRecord, spec: SandboxSpec, *, is_made: bool
    ) -> LocalHostSandbox:
        """Return a handle whose commands and files work."""
        claim, seconds = record.label.claim, spec.create_timeout_seconds
        sandbox = self._handle(folder, record)
        try:
            with anyio.fail_after(seconds):
                wrong = await sandbox.check_ready(seconds=spec.ready_timeout_seconds)
            if wrong is not None:
                raise CreateFailed(self.name, claim, "ready", wrong)
            if is_made:
                sandbox.expires_at = time.time() + spec.lifetime_seconds
                ready = attrs.evolve(record, expires=sandbox.expires_at)
                await self._in_thread(lambda: claim_folders.write_record(folder, ready))
        except BaseException as fault:
            await sandbox.disconnect()
            if not isinstance(fault, TimeoutError | OSError):
                raise
            reason = str(fault) or f"it took longer than {seconds:g} s"
            raise CreateFailed(self.name, claim, "ready", reason) from fault
        return self._kept(sandbox)

    async def _undo(self, label: ClaimLabel) -> None:
        """Destroy what a create made that did not succeed; its fault goes first."""
        with anyio.move_on_after(ROLLBACK_SECONDS_MAX, shield=True) as scope:
            try:
                await self.destroy(label)
            except (DestroyFailed, ClaimTaken) as fault:
                _LOG.error("A create that failed was not undone: %s", fault)
        if scope.cancelled_caught:
            _LOG.error("A create of claim %s that failed was not undone", label.claim)

    def _handle(
        self,
        folder: Path,
        record: ClaimRecord,
        *,
        workdir: str | None = None,
        borrower: ClaimId | None = None,
    ) -> LocalHostSandbox:
        """Return a new handle that `destroy` and `aclose` know of."""
        handles = self._handles.setdefault(folder, set())

        def forget(closed: LocalHostSandbox) -> None:
            handles.discard(closed)
            if not handles and self._handles.get(folder) is handles:
                del self._handles[folder]

        sandbox = LocalHostSandbox(
            provider=self.name,
            folder=folder,
            workdir=workdir or str(folder / "work"),
            env=record.env,
            worker_env=environment(self.config, folder),
            expires_at=record.expires,
            python=self.config.python,
            borrower=borrower,
            tasks=self.tasks,
            threads=self._threads,
            on_closed=forget,
        )
        handles.add(sandbox)
        return sandbox

    def _kept(self, sandbox: LocalHostSandbox) -> LocalHostSandbox:
        """Return the handle, with its lifetime kept as long as it is open."""
        self.tasks.start_soon(self._keep_time, sandbox)
        return sandbox

    async def _keep_time(self, sandbox: LocalHostSandbox) -> None:
        # Within the scope, so that whoever ends the sandbox first ends this too.
        with sandbox.in_use:
            await anyio.sleep(max(0.0, sandbox.expires_at - time.time()))
            try:
                await self._expire(sandbox.folder)
            except (OSError, RecordUnreadable) as fault:
                _LOG.error("Sandbox %s did not expire: %s", sandbox.folder, fault)

    async def _expire(self, folder: Path) -> None:
        """End what runs in a sandbox whose time is over; its folder stays."""
        await self._mark(folder, FolderState.ENDED, "its lifetime is over")
        if left := await self._end_processes(folder):
            _LOG.error("Processes %s outlive %s", sorted(left), folder)
        await self._let_go(folder)

    async def _mark(self, folder: Path, state: FolderState, reason: str) -> None:
        """Write down how far the folder's life went; it never goes back."""

        def mark() -> None:
            record = claim_folders.read_record(folder)
            if record is None or record.state is FolderState.ENDING:
                return
            marked = attrs.evolve(record, state=state, reason=reason)
            try:
                claim_folders.write_record(folder, marked)
            except OSError as fault:
                # It may be removed meanwhile; and a full disk must not keep it.
                _LOG.warning("%s is not marked as %s: %s", folder, state, fault)

        await self._in_thread(mark)

    async def _end_processes(self, folder: Path) -> set[int]:
        """Kill all that belongs to the folder; return what does not end."""
        found: set[int] = set()
        with anyio.move_on_after(END_SECONDS_MAX):
            while found := await self._in_thread(
                lambda: host_processes.processes_of(folder)
            ):
                host_processes.kill(found)
                await anyio.sleep(LOOK_AGAIN_SECONDS)
        return found

    async def _let_go(self, folder: Path) -> None:
        async with anyio.create_task_group() as closing:
            for sandbox in tuple(self._handles.get(folder, ())):
                closing.start_soon(sandbox.disconnect)

    async def _record(
        self, folder: Path, to_fault: Callable[[str], Fault]
    ) -> ClaimRecord | None:
        try:
            return await self._in_thread(lambda: claim_folders.read_record(folder))
        except RecordUnreadable as unreadable:
            raise to_fault(str(unreadable)) from unreadable

    async def _in_thread(self, look: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(look, limiter=self._threads)

    def _check_open(self) -> None:
        if self._is_closed:
            reason = "this provider object was closed"
            raise ProviderUnreachable(self.name, str(self.root), reason)
