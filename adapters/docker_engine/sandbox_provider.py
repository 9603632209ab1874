# SPDX-License-Identifier: Apache-2.0
"""A Docker Engine as a place that makes sandboxes.

Each sandbox is a container with the name and the labels of its claim. It ends
itself: its lifetime counts from the moment it was made ready, inside. Networks
and volumes are not made, so none are left.

An own entry point runs under the engine's init as the sandbox's user, in the
image's folder, beside a guard of ours that ends it at expiry; the image's
health check, which is for it, is waited for. A frozen container does not expire.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from ...domain.claims import ClaimId, OwnerId
from ...ports.provided.worker_channel import ChannelEnded
from ...ports.required.sandbox import (
    SandboxAccess,
    SandboxFailed,
    SandboxId,
    SandboxLost,
)
from ...ports.required.sandbox_provider import (
    Capabilities,
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    ListedSandbox,
    SandboxSpec,
    SpecRefused,
)
from .config import DockerEngineConfig
from .container_config import (
    OWNER,
    ROOT,
    USER,
    WORKDIR,
    ContainerRules,
    container_name,
    expires_at,
    label_of,
    lifetime_seconds,
)
from .ending import remove, set_frozen
from .engine import Engine
from .engine_address import to_address
from .engine_facts import ContainerFacts
from .engine_faults import EngineRefused
from .making import Made, Making
from .opening import OpeningFailed, scratch_folder
from .sandbox import Berth, DockerSandbox
from .terms import terms_at, with_image

CONNECT_SECONDS = 60.0
HEALTH_LOOK_SECONDS = 0.25
DESCRIPTOR_WORDS = frozenset({"sandbox_id", "workdir", "ports"})
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
"""What may name a container: its name, its id, or the beginning of its id."""


@asynccontextmanager
async def open_docker_engine(
    config: DockerEngineConfig | None = None,
) -> AsyncGenerator["DockerSandboxProvider"]:
    """Open the provider; the engine is not asked anything before the first call.

    Raises:
        SpecRefused: The address is of a kind that is not spoken here.
    """
    config = config or DockerEngineConfig()
    address = to_address(config.address, provider=config.name)
    engine = Engine(address, provider=config.name)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield DockerSandboxProvider(config, engine=engine, tasks=tasks)
        except Exception as raised:
            failure = raised  # Raised below: a task group would wrap it.
        finally:
            # The channels run here; what they run in a sandbox ends with them.
            tasks.cancel_scope.cancel()
            await engine.aclose()
    if failure is not None:
        raise failure


class DockerSandboxProvider:
    """Makes sandboxes that are containers of one engine."""

    def __init__(
        self,
        config: DockerEngineConfig,
        *,
        engine: Engine,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Use `engine`; channels to the workers run in `tasks`."""
        self._config = config
        self._engine = engine
        self._tasks = tasks
        self._terms = terms_at(engine.address, config)
        self._rules = ContainerRules(
            provider=config.name,
            network=config.network,
            no_new_privileges=config.no_new_privileges,
        )

    @property
    def name(self) -> str:
        """The short word for the provider in configuration and messages."""
        return self._config.name

    @property
    def capabilities(self) -> Capabilities:
        """All of them, but for what needs the engine to be on this host."""
        return self._terms.capabilities

    async def create(self, label: ClaimLabel, spec: SandboxSpec) -> DockerSandbox:
        """Make the sandbox of a claim, or return the one that it has.

        `create_timeout_seconds` bounds each of looking at the image, making and
        starting; a call that is given up waits for the answer to its making, no
        longer. What an engine makes after that time is found by its label.
        """
        self._terms.check(spec)
        spec = with_image(spec, self._config)
        making = Making(
            engine=self._engine,
            rules=self._rules,
            pull=self._config.pull,
            label=label,
            spec=spec,
            image_name=spec.image or "",
        )
        made = await making.make()
        try:
            return await self._make_ready(making, made)
        except BaseException as failure:
            await making.undo(made, failure)
            raise

    async def find(self, label: ClaimLabel) -> DockerSandbox | None:
        """Return the live sandbox of a claim, or None when there was seen to be none."""
        facts = await self._engine.inspect(container_name(label.claim))
        if facts is None or not facts.is_live or label_of(facts.labels) != label:
            return None
        return self._of_claim(label.claim, facts.container_id, facts.labels)

    async def identify(self, access: SandboxAccess) -> SandboxId:
        """Tell the name of the container that an access spells by name or by id."""
        reference = self._reference(access)
        facts = await self._engine.inspect(reference)
        return SandboxId(reference if facts is None else facts.name)

    async def connect(
        self, access: SandboxAccess, *, borrower: ClaimId
    ) -> DockerSandbox:
        """Reach a container that another lent, also one that Livery did not make.

        Commands run as the user that its labels tell, else as the container's.
        """
        reference = self._reference(access)
        facts = await self._engine.inspect(reference)
        if facts is None:
            raise self._lost(reference, "there is no such container")
        if facts.state == "paused":
            raise self._lost(reference, "it is frozen")
        if not facts.is_live:
            raise self._lost(reference, facts.end_reason)
        sandbox = self._sandbox(
            Berth(
                provider=self.name,
                container_id=facts.container_id,
                name=facts.name,
                workdir=access.workdir,
                scratch=scratch_folder(borrower),
                user=facts.labels.get(USER) or facts.user or ROOT,
                expires_at=expires_at(facts.labels),
                is_borrowed=True,
            )
        )
        # What is wrong with its inside is found now, not under the first command.
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                await sandbox.make_ready()
        except (EngineRefused, OpeningFailed, ChannelEnded) as failure:
            again = await self._engine.inspect(facts.container_id)
            if again is None or not again.is_live:
                raise self._lost(reference, "it ended meanwhile") from failure
            raise SandboxFailed(
                provider=self.name,
                sandbox=reference,
                operation="connect",
                reason=str(failure),
            ) from failure
        except TimeoutError as failure:
            raise self._lost(
                reference, f"it did not answer within {CONNECT_SECONDS:g} s"
            ) from failure
        return sandbox

    async def list(self, owner: OwnerId) -> AsyncIterator[ListedSandbox]:
        """Tell every container with the owner's label, the ended ones included."""
        for container in await self._engine.containers(f"{OWNER}={owner}"):
            label = label_of(container.labels)
            if label is None or label.owner != owner:
                continue
            yield ListedSandbox(
                label=label,
                sandbox_id=SandboxId(container.name),
                expires_at=expires_at(container.labels),
                state=container.state,
            )

    async def destroy(self, label: ClaimLabel) -> None:
        """End the container of a claim, until it is seen gone.

        Frozen, starting and half-removed ones too; one that resists is thawed and
        killed between the tries.
        """
        facts = await self._engine.inspect(container_name(label.claim))
        if facts is None:
            return
        if label_of(facts.labels) != label:
            raise ClaimTaken(
                provider=self.name,
                claim=label.claim,
                reason="its labels name another owner or claim",
            )
        await remove(self._engine, label, facts.container_id)

    async def freeze(self, label: ClaimLabel) -> None:
        """Stop every process of the sandbox where it stands."""
        await set_frozen(self._engine, label, frozen=True)

    async def thaw(self, label: ClaimLabel) -> None:
        """Let the processes go on."""
        await set_frozen(self._engine, label, frozen=False)

    async def aclose(self) -> None:
        """Let go of connections; sandboxes go on."""
        await self._engine.aclose()

    async def _make_ready(self, making: Making, made: Made) -> DockerSandbox:
        health = made.image.health if making.spec.entrypoint else None
        budget = making.spec.ready_timeout_seconds
        if health is not None:
            budget += health.budget_seconds
        try:
            with anyio.fail_after(budget):
                sandbox = self._of_claim(
                    making.label.claim, made.container, made.labels
                )
                await sandbox.make_ready()
                if making.spec.entrypoint:
                    await self._until_healthy(making, made)
                return sandbox
        except TimeoutError as failure:
            raise making.too_late("ready", budget) from failure
        except OpeningFailed as failed:
            if failed.what in {"user", "workdir"}:
                raise SpecRefused(
                    provider=self.name, field=failed.what, reason=failed.reason
                ) from failed
            facts = await self._engine.inspect(made.container)
            raise _not_ready(making, facts, str(failed)) from failed
        except (EngineRefused, ChannelEnded) as failed:
            facts = await self._engine.inspect(made.container)
            raise _not_ready(making, facts, str(failed)) from failed

    async def _until_healthy(self, making: Making, made: Made) -> None:
        while True:
            facts = await self._engine.inspect(made.container)
            if facts is None or not facts.is_live or facts.health == "unhealthy":
                raise _not_ready(making, facts, "the image's health check fails")
            # Without a check there is nothing to wait for.
            if facts.health != "starting":
                return
            await anyio.sleep(HEALTH_LOOK_SECONDS)

    def _of_claim(
        self, claim: ClaimId, container: str, labels: Mapping[str, str]
    ) -> DockerSandbox:
        return self._sandbox(
            Berth(
                provider=self.name,
                container_id=container,
                name=container_name(claim),
                workdir=labels[WORKDIR],
                scratch=scratch_folder(claim),
                user=labels[USER],
                expires_at=expires_at(labels),
                lifetime_seconds=lifetime_seconds(labels),
            )
        )

    def _sandbox(self, berth: Berth) -> DockerSandbox:
        return DockerSandbox(
            berth,
            engine=self._engine,
            tasks=self._tasks,
            python=self._config.python,
        )

    def _reference(self, access: SandboxAccess) -> str:
        for word in access.descriptor:
            if word not in DESCRIPTOR_WORDS:
                raise self._refused(f"descriptor.{word}", "it is not known")
        reference = access.descriptor.get("sandbox_id", "")
        # It becomes a part of a path, in which dots and slashes lead elsewhere.
        if not REFERENCE.fullmatch(reference):
            reason = (
                f"{reference!r} is not a container's name (letters, digits and _.-,"
                " the first a letter or digit) or id (hex digits)"
            )
            raise self._refused("descriptor.sandbox_id", reason)
        if not access.workdir.startswith("/"):
            raise self._refused("workdir", "an absolute path is needed")
        return reference

    def _lost(self, sandbox: str, reason: str) -> SandboxLost:
        return SandboxLost(provider=self.name, sandbox=sandbox, reason=reason)

    def _refused(self, field: str, reason: str) -> SpecRefused:
        return SpecRefused(provider=self.name, field=field, reason=reason)


def _not_ready(making: Making, facts: ContainerFacts | None, said: str) -> CreateFailed:
    if facts is None:
        return making.failed("ready", "its container is gone")
    if not facts.is_live:
        return making.failed("ready", facts.end_reason)
    return making.failed("ready", said or f"its container is {facts.state}")
