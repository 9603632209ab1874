# SPDX-License-Identifier: Apache-2.0
"""Making the container of a claim, and undoing it when anything after fails.

A container has the name of its claim, so that the engine itself keeps two of
them from being made; whether one that is there may be adopted, its labels
decide. The engine's answer is waited for even by a call that is given up: what
was made is known by its id before it is undone.
"""

import logging
import time
from collections.abc import Mapping
from enum import StrEnum

import anyio
import attrs

from ...ports.required.sandbox_provider import (
    ClaimLabel,
    ClaimTaken,
    CreateFailed,
    ImageMissing,
    ProviderUnreachable,
    SandboxSpec,
)
from .container_config import (
    DIGEST,
    ContainerRules,
    container_name,
    label_of,
    sandbox_user,
    spec_digest,
    to_config,
    to_labels,
)
from .ending import LOOK_SECONDS, remove
from .engine import Engine
from .engine_facts import ContainerFacts, ImageFacts
from .engine_faults import EngineRefused

UNDO_SECONDS = 90.0
LOST_REPLY_LOOKS = 5
REMOVING_SECONDS = 15.0
PULL_TOLD_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Pull(StrEnum):
    """When an image is pulled."""

    MISSING = "missing"
    NEVER = "never"


@attrs.frozen(kw_only=True)
class Made:
    """A claim's container, running."""

    container: str
    labels: Mapping[str, str]
    image: ImageFacts
    is_ours: bool
    """Whether this call made it; one that was adopted is not ours to undo."""


@attrs.frozen(kw_only=True)
class Making:
    """Makes the container of one claim."""

    engine: Engine
    rules: ContainerRules
    pull: Pull
    label: ClaimLabel
    spec: SandboxSpec
    image_name: str

    async def make(self) -> Made:
        """Return the claim's container, made and started here, or adopted.

        Raises:
            SpecRefused, ImageMissing: Nothing was made.
            CapacityExhausted, CreateFailed: What was made was undone.
            ClaimTaken: Another spec or another owner has the name.
        """
        image = await self._image()
        seconds = self.spec.create_timeout_seconds
        made: Made | None = None
        with anyio.move_on_after(seconds, shield=True):
            made = await self._container(image)
        if made is None:
            raise self.too_late("create", seconds)
        try:
            with anyio.fail_after(seconds):
                await self.engine.start(made.container, seconds=seconds)
        except BaseException as failure:
            told = self._start_fault(failure, seconds)
            await self.undo(made, told)
            if told is failure:
                raise
            raise told from failure
        return made

    async def undo(self, made: Made, failure: BaseException) -> None:
        """Take back a container that was made for nothing, whoever has given up."""
        if not made.is_ours:
            return
        with anyio.move_on_after(UNDO_SECONDS, shield=True) as scope:
            try:
                await remove(self.engine, self.label, made.container)
                return
            except Exception as left:
                self._tell_left(made, failure, str(left))
        if scope.cancelled_caught:
            self._tell_left(made, failure, f"not gone within {UNDO_SECONDS:g} s")

    def too_late(self, step: str, seconds: float) -> CreateFailed:
        """Return the fault that a step took longer than its setting allows."""
        return self.failed(step, f"the engine was not done within {seconds:g} s")

    def failed(self, step: str, reason: str) -> CreateFailed:
        """Return the fault that a step failed."""
        return CreateFailed(
            provider=self.rules.provider,
            claim=self.label.claim,
            step=step,
            reason=reason,
        )

    async def _image(self) -> ImageFacts:
        """Look at the image, and pull it first where that is wanted."""
        seconds = self.spec.create_timeout_seconds
        try:
            with anyio.fail_after(seconds):
                return await self.engine.image(self.image_name)
        except TimeoutError as failure:
            raise self.too_late("image", seconds) from failure
        except EngineRefused as refused:
            fault = self._fault(refused, step="image")
            if not isinstance(fault, ImageMissing):
                raise fault from refused
            if self.pull is Pull.NEVER:
                raise self._missing(
                    f"{refused.text}; pulling is switched off"
                ) from refused
        await self._pull()
        try:
            return await self.engine.image(self.image_name)
        except EngineRefused as refused:
            raise self._fault(refused, step="pull") from refused

    async def _pull(self) -> None:
        repository, tag = split_reference(self.image_name)
        seconds = self.spec.pull_timeout_seconds
        _log.info("pulling %s", self.image_name)
        try:
            with anyio.fail_after(seconds):
                await self.engine.pull(
                    repository, tag, tell=Progress(self.image_name).tell
                )
        except TimeoutError as failure:
            raise self.too_late("pull", seconds) from failure
        except EngineRefused as refused:
            fault = self._fault(refused, step="pull")
            if isinstance(fault, CreateFailed):
                fault = self._missing(refused.text)
            raise fault from refused

    async def _container(self, image: ImageFacts) -> Made:
        """Ask for the container until there is one, made here or adopted."""
        user = sandbox_user(self.spec, image)
        labels = to_labels(self.label, self.spec, user=user, now=time.time())
        config = to_config(self.spec, user=user, labels=labels, rules=self.rules)
        name = container_name(self.label.claim)
        deadline = time.monotonic() + REMOVING_SECONDS
        while True:
            try:
                container = await self.engine.create(
                    config, name=name, seconds=self.spec.create_timeout_seconds
                )
                return Made(
                    container=container, labels=labels, image=image, is_ours=True
                )
            except ProviderUnreachable as lost:
                found = await self._after_lost_reply(name)
                if found is None:
                    raise
                _log.info("%s was made although %s", name, lost.reason)
                return self._adopted(found, image, is_ours=True)
            except EngineRefused as refused:
                if refused.status != 409:
                    raise self._fault(refused, step="create") from refused
                there = await self.engine.inspect(name)
                if there is not None and there.state != "removing":
                    return self._adopted(there, image, is_ours=False)
                if time.monotonic() > deadline:
                    raise self._fault(refused, step="create") from refused
            # The one that has the name is on its way out.
            await anyio.sleep(LOOK_SECONDS)

    async def _after_lost_reply(self, name: str) -> ContainerFacts | None:
        """Look for what may have been made although no answer came."""
        for _ in range(LOST_REPLY_LOOKS):
            try:
                if (facts := await self.engine.inspect(name)) is not None:
                    return facts
            except ProviderUnreachable:
                return None
            await anyio.sleep(LOOK_SECONDS)
        return None

    def _adopted(
        self, facts: ContainerFacts, image: ImageFacts, *, is_ours: bool
    ) -> Made:
        """Return a container that is there, when it is the claim's by all its labels."""
        if label_of(facts.labels) != self.label:
            raise self._taken("it belongs to another owner, or is not Livery's")
        if facts.labels.get(DIGEST) != spec_digest(self.spec):
            raise self._taken("it was made from another spec")
        if not facts.is_live and facts.state != "created":
            raise self.failed(
                "adopt", f"the sandbox of this claim has ended: {facts.end_reason}"
            )
        return Made(
            container=facts.container_id,
            labels=facts.labels,
            image=image,
            is_ours=is_ours,
        )

    def _tell_left(self, made: Made, failure: BaseException, reason: str) -> None:
        told = f"its container {made.container[:12]} is left behind: {reason}"
        _log.error("claim %s: %s", self.label.claim, told)
        failure.add_note(told)

    def _start_fault(self, failure: BaseException, seconds: float) -> BaseException:
        if isinstance(failure, TimeoutError):
            return self.too_late("start", seconds)
        if isinstance(failure, EngineRefused):
            return self._fault(failure, step="start")
        return failure

    def _taken(self, reason: str) -> ClaimTaken:
        return ClaimTaken(
            provider=self.rules.provider, claim=self.label.claim, reason=reason
        )

    def _missing(self, reason: str) -> ImageMissing:
        return ImageMissing(
            provider=self.rules.provider, image=self.image_name, reason=reason
        )

    def _fault(self, refused: EngineRefused, *, step: str) -> Exception:
        return self.engine.place.from_create(
            refused, claim=self.label.claim, image=self.image_name, step=step
        )


class Progress:
    """Tells of a long pull now and then."""

    def __init__(self, image: str, *, seconds: float = PULL_TOLD_SECONDS) -> None:
        """Tell of `image`, once in so many seconds."""
        self._image = image
        self._seconds = seconds
        self._told = time.monotonic()

    def tell(self, step: str) -> None:
        """Log a step, unless one was logged a moment ago; called in a thread."""
        if time.monotonic() - self._told >= self._seconds:
            self._told = time.monotonic()
            _log.info("pulling %s: %s", self._image, step)


def split_reference(image: str) -> tuple[str, str | None]:
    """Return an image's repository and tag; without a tag the engine pulls all."""
    if "@" in image:
        return image, None
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        return image, "latest"
    return repository, tag
