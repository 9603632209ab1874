# SPDX-License-Identifier: Apache-2.0
"""What a run is to be: the settings file, and what the command line says over it.

The command line goes first, then the file, then the environment, then the defaults.
Limits inside are derived from those outside where nobody set them, and a limit that
was set too low to ever be of use is refused.
"""

import os
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Final, cast

import attrs

from ..domain.digests import Json
from ..ports.provided.run_episode import CLEANUP_SECONDS, EPISODE_SECONDS
from ..ports.required.sandbox_provider import Capabilities, Capability, SandboxSpec
from .journal_settings import JournalSettings
from .model_settings import ModelSettings
from .secret_references import Secret
from .setting_words import NONE_WORD, Name, Range, Seconds, doc
from .settings import (
    CONCURRENCY_MAX,
    DEFAULT_IMAGE,
    EPISODE_MARGIN_SECONDS,
    LIFETIME_MARGIN_SECONDS,
    LIMIT_MAX,
    REPEATS_MAX,
    HarnessSettings,
    SandboxSettings,
)
from .settings_reading import SettingsFile, structured
from .strict_converter import Mistake, Refused

IMAGE_VARIABLE: Final = "LIVERY_IMAGE"


@attrs.frozen(kw_only=True)
class RunPlan:
    """The choices of a run, complete."""

    world: Name
    harness: Name
    sandbox: Name
    harness_block: HarnessSettings
    sandbox_block: SandboxSettings
    concurrency: Annotated[int, Range(least=1, most=CONCURRENCY_MAX)]
    repeats: Annotated[int, Range(least=1, most=REPEATS_MAX)]
    limit: Annotated[int, Range(least=1, most=LIMIT_MAX)] | None
    episode_timeout_seconds: Seconds | None = attrs.field(
        default=None, metadata=doc("")
    )
    cleanup_timeout_seconds: Seconds = CLEANUP_SECONDS
    model: ModelSettings = attrs.field(factory=ModelSettings)
    journal: JournalSettings = attrs.field(factory=JournalSettings)
    via: Name | None = None
    """The environment server that runs the episodes; None: this process does."""

    @property
    def harness_kind(self) -> str:
        """The name of the harness's plug-in."""
        return self.harness_block.harness or self.harness

    @property
    def provider_kind(self) -> str:
        """The name of the provider's plug-in."""
        return self.sandbox_block.provider or self.sandbox

    @property
    def episode_seconds(self) -> float:
        """How long an episode may take."""
        if self.episode_timeout_seconds is not None:
            return self.episode_timeout_seconds
        needed = self.harness_block.turn_timeout_seconds + EPISODE_MARGIN_SECONDS
        return max(EPISODE_SECONDS, needed)

    @property
    def lifetime_seconds(self) -> float:
        """How long a sandbox lives."""
        if self.sandbox_block.lifetime_seconds is not None:
            return self.sandbox_block.lifetime_seconds
        return self.harness_block.turn_timeout_seconds + LIFETIME_MARGIN_SECONDS

    def spec(
        self, capabilities: Capabilities, environ: Mapping[str, str] = os.environ
    ) -> SandboxSpec:
        """Return the kind of sandbox to ask of a provider that can do this."""
        image = self.sandbox_block.image
        if image is None and Capability.IMAGES in capabilities:
            image = environ.get(IMAGE_VARIABLE) or DEFAULT_IMAGE
        return self.sandbox_block.spec(
            image=image, lifetime_seconds=self.lifetime_seconds
        )

    def check(self) -> None:
        """Raise `Refused` where one limit makes another useless."""
        turn = self.harness_block.turn_timeout_seconds
        mistakes = [
            Mistake(
                path=path,
                told=f"is {found:g}, and the harness's turn_timeout_seconds is {turn:g}:"
                " it would end each long turn. Make it longer, or the turn shorter",
            )
            for path, found in (
                (("run", "episode_timeout_seconds"), self.episode_timeout_seconds),
                (
                    ("sandbox", self.sandbox, "lifetime_seconds"),
                    self.sandbox_block.lifetime_seconds,
                ),
            )
            if found is not None and found < turn
        ]
        if mistakes:
            raise Refused(tuple(mistakes))


def plan_of(file: SettingsFile, chosen: Mapping[str, Any]) -> RunPlan:
    """Return the plan of a settings file, with what was `chosen` laid over it.

    `chosen` has the names of `[run]`, and `harness_block`, `sandbox_block` and `model`
    with the names of those blocks; what is not chosen is left out.

    Raises:
        SettingsRefused: With every mistake.
    """
    run = file.settings.run
    given = dict(chosen)
    over_harness = cast("dict[str, Any]", given.pop("harness_block", {}))
    over_sandbox = cast("dict[str, Any]", given.pop("sandbox_block", {}))
    over_model = cast("dict[str, Any]", given.pop("model", {}))
    run = attrs.evolve(run, **given)
    harness = file.settings.harness.get(run.harness, HarnessSettings())
    if "options" in over_harness:
        over_harness["options"] = {**harness.options, **over_harness["options"]}
    plan = RunPlan(
        world=run.world,
        harness=run.harness,
        sandbox=run.sandbox,
        harness_block=attrs.evolve(harness, **over_harness),
        sandbox_block=attrs.evolve(block_of(file, run.sandbox), **over_sandbox),
        concurrency=run.concurrency,
        repeats=run.repeats,
        limit=run.limit,
        episode_timeout_seconds=run.episode_timeout_seconds,
        cleanup_timeout_seconds=run.cleanup_timeout_seconds,
        model=attrs.evolve(file.settings.model, **over_model),
        journal=file.settings.journal,
    )
    try:
        plan.check()
    except Refused as refused:
        raise file.refusal(refused.mistakes) from refused
    return plan


def block_of(file: SettingsFile, name: str) -> SandboxSettings:
    """Return the block of a provider; the defaults where there is none."""
    return file.settings.sandbox.get(name, SandboxSettings())


def plan_of_block(file: SettingsFile, name: str) -> RunPlan:
    """Return a plan that says what the sandboxes of a block are, whoever uses them."""
    return RunPlan(
        world=file.settings.run.world,
        harness=file.settings.run.harness,
        sandbox=name,
        harness_block=HarnessSettings(),
        sandbox_block=block_of(file, name),
        concurrency=1,
        repeats=1,
        limit=None,
    )


def to_stored(plan: RunPlan) -> Mapping[str, Json]:
    """Return the plan as `run.json` keeps it; secrets stay references."""
    stored = _plain(plan)
    assert isinstance(stored, dict)
    return cast("Mapping[str, Json]", stored)


def from_stored(stored: object) -> RunPlan:
    """Return the plan that `run.json` keeps; raises `Refused` for what is none."""
    return structured(RunPlan, stored)


def _plain(value: object) -> Json:
    if isinstance(value, Secret):
        return {"env": value.env} if value.env else {"file": value.file}
    if attrs.has(type(value)):
        fields = attrs.fields_dict(cast("type[attrs.AttrsInstance]", type(value)))
        return {name: _plain(getattr(value, name)) for name in fields}
    if value is None:
        return NONE_WORD
    if isinstance(value, Enum):
        return cast("str", value.value)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {name: _plain(one) for name, one in table.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in cast("list[object]", value)]
    return cast("Json", value)
