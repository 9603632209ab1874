# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym's sandbox provider, on top of one of ours.

Each sandbox is under a claim in our journal, so one that NeMo Gym loses, or whose
process is killed, is given back by `livery claims reap`. A sandbox that was reached
through a descriptor is borrowed: closing it lets go of it and never ends it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import anyio

from ...domain.claims import ClaimId
from ...domain.refusals import Refusal
from ...ports.required.faults import Fault
from ...ports.required.sandbox import Sandbox, SandboxLost
from ...ports.required.sandbox_provider import ClaimLabel, Unsupported
from .cancellation import carried_out
from .files import download, upload
from .gym import Gym, GymHandle, GymResult, GymSpec
from .held import Held, held_by, to_access, to_descriptor
from .provider_settings import GymProviderSettings
from .results import Told, failed, gym_status, told
from .specs import SpecMistake, SpecReader, to_env
from .workshop import OpenWorkshop, Workshop, WorkshopKeeper

log = logging.getLogger(__name__)


class GymProvider:
    """The provider protocol of NeMo Gym 0.4.0 and newer.

    `serialize_handle` and `connect` are asked for from 0.5.0 on, `endpoint` from
    0.6.0, `exec_with_background_services` from 0.7.0.
    """

    def __init__(
        self,
        settings: GymProviderSettings,
        *,
        gym: Gym,
        specs: SpecReader,
        open_workshop: OpenWorkshop,
    ) -> None:
        """Make nothing yet: the first call opens what is needed."""
        self.name = settings.name
        self._settings = settings
        self._gym = gym
        self._specs = specs
        self._keeper = WorkshopKeeper(open_workshop, self._end_work)
        self._held: dict[int, Held] = {}

    @property
    def claims(self) -> tuple[ClaimLabel, ...]:
        """The claims that are not released yet."""
        labels = (held.label for held in self._held.values())
        return tuple(label for label in labels if label is not None)

    async def create(self, spec: GymSpec) -> GymHandle:
        """Claim a sandbox in which commands and files work.

        Raises NeMo Gym's `SandboxCreateError` with the reason; nothing is left then,
        nor when it is cancelled.
        """
        return await carried_out(lambda: self._create(spec))

    async def _create(self, spec: GymSpec) -> GymHandle:
        try:
            wanted = self._specs.read(spec)
            workshop = await self._keeper.workshop()
            held = await workshop.claim(
                ClaimId(workshop.ids.fresh("gym")),
                wanted,
                used_by=f"NeMo Gym ({self.name})",
            )
        except (Fault, Refusal, SpecMistake) as error:
            raise self._gym.create_error(str(error)) from error
        mine = Held(
            sandbox=held.sandbox,
            workshop=workshop,
            workdir=held.sandbox.workdir,
            label=held.label,
        )
        handle = self._handle(mine)
        try:
            await self._probe(mine)
        except BaseException:
            await self._give_up(handle)
            raise
        return handle

    async def exec(
        self,
        handle: GymHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> GymResult:
        """Run a command to its end; what it leaves behind is ended with it.

        Raises:
            ValueError: `env` has a name that is none.
        """
        return self._result(
            await self._run(held_by(handle), command, cwd, to_env(env), timeout_s, user)
        )

    async def exec_with_background_services(
        self,
        handle: GymHandle,
        command: str,
        *,
        cwd: str | None = None,
        timeout_s: float | None = None,
    ) -> GymResult:
        """Run a command, and let what it leaves in the background go on."""
        return self._result(
            await self._run(
                held_by(handle), command, cwd, {}, timeout_s, None, detaches=True
            )
        )

    async def upload_file(
        self, handle: GymHandle, source_path: Path, target_path: str
    ) -> None:
        """Write a file of this host into the sandbox; parents are made."""
        await self._transferred(
            f"upload to {target_path!r}",
            handle,
            lambda sandbox: upload(sandbox, Path(source_path), target_path),
        )

    async def download_file(
        self, handle: GymHandle, source_path: str, target_path: Path
    ) -> None:
        """Write a file of the sandbox to this host, whole or not at all."""
        await self._transferred(
            f"download of {source_path!r}",
            handle,
            lambda sandbox: download(sandbox, source_path, Path(target_path)),
        )

    async def status(self, handle: GymHandle) -> object:
        """Tell how the sandbox is."""
        try:
            sandbox = await self._sandbox(held_by(handle))
            return self._gym.status(gym_status(await sandbox.status()))
        except SandboxLost:
            return self._gym.status("stopped")
        except Fault as fault:
            log.warning("The status of %s is unknown: %s", handle.sandbox_id, fault)
            return self._gym.status("unknown")

    async def close(self, handle: GymHandle) -> None:
        """Release the sandbox until it is seen gone, or let go of a borrowed one.

        It is carried out to its end, also when the caller is cancelled.

        Raises:
            RuntimeError: It was not seen gone; another close tries again.
        """
        await carried_out(lambda: self._close(handle), to_its_end=True)

    async def _close(self, handle: GymHandle) -> None:
        held = held_by(handle)
        seconds = self._settings.close_timeout_s
        try:
            with anyio.fail_after(seconds, shield=True):
                if self._keeper.has_open(held.workshop):
                    await self._let_go(held)  # Else it was, with that workshop.
                if held.label is not None:
                    workshop = await self._keeper.workshop()
                    await workshop.release(held.label, reason="NeMo Gym closed it")
        except TimeoutError as error:
            raise RuntimeError(
                f"Sandbox {handle.sandbox_id} was not seen gone within {seconds:g} s;"
                " close it again, or run `livery claims reap`"
            ) from error
        except (Fault, Refusal) as error:
            raise self._failed(f"close of {handle.sandbox_id}", error) from error
        self._held.pop(id(held), None)

    async def aclose(self) -> None:
        """Let go of connections. Sandboxes go on, unless told otherwise."""
        await self._keeper.aclose()

    async def serialize_handle(
        self, handle: GymHandle, *, scope: str | None = None
    ) -> dict[str, object]:
        """Return what another process reaches the sandbox by; `scope` is not known."""
        held = held_by(handle)
        access = (await self._sandbox(held)).access()
        return to_descriptor(access, handle.sandbox_id)

    async def connect(self, descriptor: Mapping[str, object]) -> GymHandle:
        """Borrow a sandbox; raises NeMo Gym's `SandboxCreateError` where it cannot."""
        access = to_access(descriptor, block=self._settings.block)
        try:
            workshop = await self._keeper.workshop()
            borrower = ClaimId(workshop.ids.fresh("gym"))
            sandbox = await carried_out(
                lambda: workshop.provider.connect(access, borrower=borrower)
            )
        except (Fault, Refusal) as error:
            raise self._gym.create_error(str(error)) from error
        return self._handle(
            Held(
                sandbox=sandbox,
                workshop=workshop,
                workdir=access.workdir,
                access=access,
            )
        )

    async def endpoint(self, handle: GymHandle, port: int) -> object:
        """Tell where this host reaches a port that the spec asked for.

        Raises:
            NotImplementedError: This provider publishes none, or not this one.
        """
        assert self._gym.endpoint is not None, "NeMo Gym asks from 0.6.0 on"
        try:
            found = await (await self._sandbox(held_by(handle))).endpoint(port)
        except Unsupported as refused:
            raise NotImplementedError(str(refused)) from refused
        except Fault as fault:
            raise self._failed(f"endpoint of port {port}", fault) from fault
        return self._gym.endpoint(endpoint=found.url, headers=dict(found.headers))

    async def _run(
        self,
        held: Held,
        command: str,
        cwd: str | None,
        env: Mapping[str, str],
        timeout_s: float | None,
        user: str | int | None,
        *,
        detaches: bool = False,
    ) -> Told:
        asked = self._settings.command(
            command, cwd=cwd, env=env, timeout_s=timeout_s, user=user, detaches=detaches
        )
        try:
            sandbox = await self._sandbox(held)
            ended = await carried_out(lambda: sandbox.exec(asked))
        except Fault as fault:
            return failed(str(fault))
        return told(ended)

    async def _transferred(
        self,
        what: str,
        handle: GymHandle,
        move: Callable[[Sandbox], Awaitable[None]],
    ) -> None:
        async def bounded() -> None:
            with anyio.fail_after(self._settings.transfer_timeout_s):
                await move(await self._sandbox(held_by(handle)))

        try:
            await carried_out(bounded)
        except (Fault, TimeoutError) as error:
            raise self._failed(what, error) from error

    async def _probe(self, held: Held) -> None:
        """Wait until the probe has passed as often in a row as it must."""
        probe = self._settings.probe
        if probe is None:
            return
        passed, last = 0, "no answer"
        with anyio.move_on_after(probe.deadline_s):
            while passed < probe.stable_count:
                # Without the spec's folder and environment: the sandbox itself is asked.
                answer = await self._run(
                    held, probe.command, "/", {}, probe.timeout_s, None
                )
                expected = probe.expected_stdout
                if answer.return_code == 0 and (
                    expected is None or expected in answer.stdout
                ):
                    passed += 1
                else:
                    passed, last = 0, f"{answer.return_code}: {answer.stderr.strip()}"
                if passed < probe.stable_count:
                    await anyio.sleep(probe.stable_delay_s)
        if passed < probe.stable_count:
            raise self._gym.verification_error(
                f"Sandbox {held.sandbox.sandbox_id} did not pass its probe"
                f" {probe.stable_count} time(s) in a row within {probe.deadline_s:g} s;"
                f" it answered last: {last}"
            )

    async def _sandbox(self, held: Held) -> Sandbox:
        """Return the sandbox, found again when it came from a workshop that closed.

        Raises:
            SandboxLost: It is not there any more.
        """
        workshop = await self._keeper.workshop()
        if held.workshop is workshop:
            return held.sandbox
        provider = workshop.provider
        found: Sandbox | None
        if held.label is not None:
            found = await provider.find(held.label)
        else:
            assert held.access is not None, "it was created or borrowed"
            borrower = ClaimId(workshop.ids.fresh("gym"))
            found = await provider.connect(held.access, borrower=borrower)
        if found is None:
            raise SandboxLost(
                provider=provider.name,
                sandbox=str(held.sandbox.sandbox_id),
                reason="it was not found again",
            )
        held.sandbox, held.workshop = found, workshop
        self._held[id(held)] = held
        return found

    async def _end_work(self, workshop: Workshop) -> None:
        """Let go of every sandbox, and release or name those that nobody closed."""
        async with anyio.create_task_group() as group:
            for held in [*self._held.values()]:
                group.start_soon(self._end_one, held, workshop)
        if self._held:
            log.warning(
                "%d sandbox(es) of provider %s go on until they are closed or expire;"
                " once this process has ended `livery claims reap` gives them back: %s",
                len(self._held),
                self.name,
                ", ".join(label.claim for label in self.claims),
            )

    async def _end_one(self, held: Held, workshop: Workshop) -> None:
        if held.workshop is workshop:
            await self._let_go(held)
        if held.label is None:
            self._held.pop(id(held), None)
        elif self._settings.releases_at_end:
            try:
                await workshop.release(held.label, reason="its provider was closed")
                self._held.pop(id(held), None)
            except (Fault, Refusal) as error:
                log.error("Claim %s is still open: %s", held.label.claim, error)

    async def _give_up(self, handle: GymHandle) -> None:
        try:
            await self.close(handle)
        except RuntimeError as error:
            log.error("Sandbox %s is still there: %s", handle.sandbox_id, error)

    async def _let_go(self, held: Held) -> None:
        try:
            with anyio.move_on_after(self._settings.close_timeout_s, shield=True):
                await held.sandbox.disconnect()
        except Fault as fault:
            log.warning("Sandbox %s: %s", held.sandbox.sandbox_id, fault)

    def _handle(self, held: Held) -> GymHandle:
        self._held[id(held)] = held
        return self._gym.handle(
            sandbox_id=str(held.sandbox.sandbox_id), provider_name=self.name, raw=held
        )

    def _result(self, found: Told) -> GymResult:
        return self._gym.result(
            stdout=found.stdout,
            stderr=found.stderr,
            return_code=found.return_code,
            error_type=found.error_type,
        )

    def _failed(self, what: str, error: Exception) -> RuntimeError:
        reason = str(error) or f"no answer in {self._settings.transfer_timeout_s:g} s"
        return RuntimeError(f"Sandbox provider {self.name}: {what} failed: {reason}")
