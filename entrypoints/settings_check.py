# SPDX-License-Identifier: Apache-2.0
"""What a start by a settings file would refuse, found without touching the outside.

A run is looked at whatever the file says, since it goes with the defaults; a server
where the file has its section. Each thing is resolved by what the start itself uses.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import attrs

from ..ports.required.apps import has_apps
from ..ports.required.faults import Fault
from ..ports.required.sandbox_provider import (
    ProviderTerms,
    SandboxSpec,
    SpecRefused,
)
from .agent_parts import harness_of, own_name, plan_of_agent
from .built_in import HARNESSES, PROVIDERS, WORLDS
from .extras import GATEWAY, POSTGRES, apps_part, server_part
from .outfits import uses_gateway
from .plug_ins import (
    BuiltIn,
    HarnessPlugIn,
    ProviderPlugIn,
    Surroundings,
    WorldPlugIn,
    find,
)
from .resources_parts import check_resources, spec_of_resources
from .run_plan import block_of, plan_of, plan_of_block
from .run_tasks import refusal_of
from .server_urls import to_url
from .settings import DEFAULT_IMAGE
from .settings_reading import SettingsFile, SettingsRefused, structured
from .strict_converter import KeyPath, Mistake, Refused

T = TypeVar("T")

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_OF_TASKS = ("image", "provider_options.warmpool")
"""What each task, or the command line, can still name: the image, and by it the pool."""


def check_starts(file: SettingsFile, surroundings: Surroundings) -> None:
    """Find all that a start by the file would refuse.

    Raises:
        SettingsRefused: With everything that was found.
    """
    check = _Check(file=file, surroundings=surroundings)
    for name in file.settings.sandbox:
        check.provider(name, at=("sandbox", name))
    for name, block in file.settings.harness.items():
        at = ("harness", name)
        plug_in = check.found(HarnessPlugIn, block.harness or name, HARNESSES, at=at)
        if plug_in is not None:
            check.options(plug_in.options, block.options, at=at)
    check.journal()
    check.run()
    check.servers()
    if "agent_server" in file.sections:
        check.agent()
    if "resources_server" in file.sections:
        check.resources()
    if "environment_server" in file.sections:
        check.environment()
    check.refuse()


@attrs.define(kw_only=True)
class _Check:
    """One look at a file, and what it found."""

    file: SettingsFile
    surroundings: Surroundings
    mistakes: list[Mistake] = attrs.field(factory=list[Mistake])
    lines: list[str] = attrs.field(factory=list[str])
    """What came in lines already."""
    terms: dict[str, ProviderTerms | None] = attrs.field(
        factory=dict[str, ProviderTerms | None]
    )

    def refuse(self) -> None:
        """Raise what was found, if anything was."""
        own = self.file.refusal(tuple(dict.fromkeys(self.mistakes)))
        lines = dict.fromkeys([*own.mistakes.splitlines(), *self.lines])
        if lines:
            told = "\n".join(lines)
            raise SettingsRefused(where=self.file.where, mistakes=told)

    def asked(self, ask: Callable[[], T], *, at: KeyPath) -> T | None:
        """Return what is asked for; None where it was refused, which is noted."""
        try:
            return ask()
        except SettingsRefused as refused:
            self.lines += refused.mistakes.splitlines()
        except Refused as refused:
            self.mistakes += refused.mistakes
        except Fault as fault:
            self.mistakes.append(Mistake(path=at, told=str(fault)))
        return None

    def found(
        self,
        kind: type[T],
        name: str,
        built_in: Mapping[str, BuiltIn[T]],
        *,
        at: KeyPath,
    ) -> T | None:
        """Return a plug-in; None where there is none, which is noted."""
        return self.asked(lambda: find(kind, name, built_in), at=at)

    def options(
        self, kind: type[T], content: Mapping[str, object], *, at: KeyPath
    ) -> T | None:
        """Return the options of a block; None for wrong ones, which are noted."""
        at = (*at, "options")
        return self.asked(lambda: structured(kind, content, at=at), at=at)

    def provider(self, name: str, *, at: KeyPath) -> ProviderTerms | None:
        """Look at a provider, once, and at the sandbox that its block says."""
        if name in self.terms:
            return self.terms[name]
        self.terms[name] = None
        block = block_of(self.file, name)
        plug_in = self.found(ProviderPlugIn, block.provider or name, PROVIDERS, at=at)
        if plug_in is None:
            return None
        options = self.options(plug_in.options, block.options, at=("sandbox", name))
        if options is None or (terms_of := plug_in.terms) is None:
            return None
        beside = attrs.evolve(self.surroundings, name=name)
        terms = self.asked(lambda: terms_of(beside, options), at=at)
        if terms is not None:
            spec = plan_of_block(self.file, name).spec(terms.capabilities)
            may_be_named = block.image is None and spec.image in (None, DEFAULT_IMAGE)
            self.sandbox(terms, spec, at=at, beyond=_OF_TASKS if may_be_named else ())
        self.terms[name] = terms
        return terms

    def sandbox(
        self,
        terms: ProviderTerms,
        spec: SandboxSpec,
        *,
        at: KeyPath,
        beyond: tuple[str, ...] = (),
    ) -> None:
        """Look at a sandbox; what is wrong with the fields `beyond` is not known yet."""
        refused = refusal_of(terms, spec)
        field = refused.field if isinstance(refused, SpecRefused) else ""
        if refused is not None and field not in beyond:
            self.mistakes.append(Mistake(path=(*at, *_steps(field)), told=str(refused)))

    def journal(self) -> None:
        """Look at what every start opens first."""
        if self.file.settings.journal.kind == "postgres":
            self.asked(POSTGRES.check, at=("journal", "kind"))

    def servers(self) -> None:
        """Look whether the libraries of the servers are there."""
        for name in ("agent", "resources", "environment"):
            if (section := f"{name}_server") in self.file.sections:
                self.asked(server_part(name).check, at=(section,))

    def run(self) -> None:
        """Look at what `livery run` starts where the command line says no more."""
        run = self.file.settings.run
        self.asked(lambda: plan_of(self.file, {}), at=("run",))
        at = ("run", "world")
        plug_in = self.found(WorldPlugIn, run.world, WORLDS, at=at)
        if plug_in is not None and has_apps(plug_in.make(self.surroundings)):
            self.asked(apps_part(run.world).check, at=at)
        if self.run_needs_gateway():
            self.asked(GATEWAY.check, at=("model", "url"))
        if run.sandbox not in self.file.settings.sandbox:
            self.provider(run.sandbox, at=("run", "sandbox"))
        if run.harness not in self.file.settings.harness:
            self.found(HarnessPlugIn, run.harness, HARNESSES, at=("run", "harness"))

    def run_needs_gateway(self) -> bool:
        """Whether the harness of a run asks the model of the settings.

        What is wrong with the harness itself, the command line can still mend.
        """
        agent = self.file.settings.agent_server
        settings = attrs.evolve(agent, harness=self.file.settings.run.harness)
        try:
            made = harness_of(self.file, settings, self.surroundings)
            return uses_gateway(made, self.file.settings.model)
        except (Fault, Refused):
            return False

    def agent(self) -> None:
        """Look at what `livery serve agent` starts."""
        file, settings = self.file, self.file.settings.agent_server
        at = ("agent_server", "harness")
        made = self.asked(lambda: harness_of(file, settings, self.surroundings), at=at)
        if made is not None:
            self.asked(lambda: uses_gateway(made, file.settings.model), at=at)
        named = settings.sandbox_provider
        name = named if made is None else own_name(settings, made)
        if name is None:
            return
        at = ("agent_server", "sandbox_provider")
        terms = self.provider(name, at=at)
        plan = self.asked(lambda: plan_of_agent(file, settings, name), at=at)
        if terms is not None and plan is not None:
            spec = plan.spec(terms.capabilities)
            if spec != plan_of_block(file, name).spec(terms.capabilities):
                self.sandbox(terms, spec, at=("agent_server", "sandbox_config"))

    def resources(self) -> None:
        """Look at what `livery serve resources` starts."""
        file, settings = self.file, self.file.settings.resources_server
        name, at = settings.sandbox_provider, ("resources_server", "sandbox_provider")
        lends = name is not None
        self.asked(lambda: check_resources(file, lends=lends), at=("resources_server",))
        world = ("resources_server", "world")
        self.found(WorldPlugIn, settings.world, WORLDS, at=world)
        terms = None if name is None else self.provider(name, at=at)
        if name is not None and terms is not None:
            able = terms.capabilities
            self.asked(
                lambda: spec_of_resources(file, name, able, lends=True),
                at=("resources_server", "block_internet"),
            )

    def environment(self) -> None:
        """Look at what `livery serve environment` starts."""
        settings = self.file.settings.environment_server
        for name in ("resources_url", "agent_url"):
            field, url = f"environment_server.{name}", getattr(settings, name)
            self.asked(partial(to_url, field, url), at=("environment_server", name))


def _steps(field: str) -> KeyPath:
    """Return where in a block a field of a spec is set."""
    steps = tuple(int(index) if index else name for name, index in _STEP.findall(field))
    return (
        ("sandbox_options", *steps[1:]) if steps[:1] == ("provider_options",) else steps
    )
