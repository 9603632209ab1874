# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: what configuration can name, ours and other people's.

A distribution publishes a plug-in under an entry point; the value is one of the
classes here, and the entry point's name is the word in configuration. Nothing is
loaded before it is used. Names of ours cannot be taken, and a name that two
distributions claim belongs to neither.
"""

import importlib.metadata
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import attrs

from ..ports.provided.secret_values import SecretValues
from ..ports.required.faults import Fault
from ..ports.required.harness import TURN_TIMEOUT_SECONDS, Harness
from ..ports.required.sandbox_provider import ProviderTerms, SandboxProvider
from ..ports.required.task_source import CallSolutions, Solutions, TaskSource
from ..ports.required.world import World
from .secret_references import Secret

O = TypeVar("O")  # noqa: E741 (the options of a plug-in)
P = TypeVar("P")
Opened = AbstractAsyncContextManager[SandboxProvider]


@attrs.frozen(kw_only=True)
class Surroundings:
    """What a plug-in is given beside its options."""

    name: str
    """The block's name, which a provider or harness carries in messages."""
    state: Path
    """The state folder; what a plug-in keeps goes below a folder of its own."""
    secrets: SecretValues = attrs.field(factory=SecretValues)
    """Covers what `Secret.revealed` gives."""
    turn_timeout_seconds: float = TURN_TIMEOUT_SECONDS
    """For a harness: the deadline of its command."""
    world: World | None = None
    """For a task source or harness: the world that the tasks are in."""
    solutions: Solutions | None = None
    """For a harness: the reference solutions, where the tasks have some."""
    called_solutions: CallSolutions | None = None
    """For a harness: the calls of tools that solve the tasks, where those are known."""
    model_url: str | None = None
    """For a harness on this host: the model's server that the settings name."""
    model_credential: Secret | None = None
    """What that server wants."""


@attrs.frozen
class NoOptions:
    """The options of a plug-in that has none."""


@attrs.frozen(kw_only=True)
class ProviderPlugIn:
    """A maker of sandboxes; made by `provider_plug_in`."""

    group: ClassVar[str] = "livery.sandbox_providers"
    word: ClassVar[str] = "sandbox provider"

    options: type[object]
    open: Callable[[Surroundings, object], Opened]
    terms: Callable[[Surroundings, object], ProviderTerms] | None = None
    """What is known of the provider before it is opened; None: nothing."""


@attrs.frozen(kw_only=True)
class HarnessPlugIn:
    """A harness; made by `harness_plug_in`."""

    group: ClassVar[str] = "livery.harnesses"
    word: ClassVar[str] = "harness"

    options: type[object]
    make: Callable[[Surroundings, object], Harness]


@attrs.frozen(kw_only=True)
class WorldPlugIn:
    """A kind of task world."""

    group: ClassVar[str] = "livery.worlds"
    word: ClassVar[str] = "world"

    make: Callable[[Surroundings], World]


@attrs.frozen(kw_only=True)
class TaskSourcePlugIn:
    """A set of tasks; the text after `NAME:` on the command line is given to it."""

    group: ClassVar[str] = "livery.task_sources"
    word: ClassVar[str] = "task source"

    make: Callable[[Surroundings, str], TaskSource]


def provider_plug_in(
    options: type[O],
    open: Callable[[Surroundings, O], Opened],
    terms: Callable[[Surroundings, O], ProviderTerms] | None = None,
) -> ProviderPlugIn:
    """Return the plug-in whose block's `options` are the fields of an attrs class.

    By its `terms` what it refuses is found before it is opened; they touch nothing.
    """

    def opened(surroundings: Surroundings, given: object) -> Opened:
        assert isinstance(given, options), "options are read as what they are"
        return open(surroundings, given)

    def known(surroundings: Surroundings, given: object) -> ProviderTerms:
        assert isinstance(given, options), "options are read as what they are"
        assert terms is not None, "it is asked where there are some"
        return terms(surroundings, given)

    return ProviderPlugIn(
        options=options, open=opened, terms=None if terms is None else known
    )


def harness_plug_in(
    options: type[O], make: Callable[[Surroundings, O], Harness]
) -> HarnessPlugIn:
    """Return the plug-in whose block's `options` are the fields of an attrs class."""

    def made(surroundings: Surroundings, given: object) -> Harness:
        assert isinstance(given, options), "options are read as what they are"
        return make(surroundings, given)

    return HarnessPlugIn(options=options, make=made)


@attrs.frozen
class SolutionsMissing(Fault):
    """A harness needs solutions where there can be none."""

    kind: ClassVar[str] = "solutions_missing"
    message: ClassVar[str] = (
        "Harness {harness} applies reference solutions, and these tasks have none."
    )

    harness: str


@attrs.frozen
class PlugInUnknown(Fault):
    """Nobody has that name."""

    kind: ClassVar[str] = "plug_in_unknown"
    message: ClassVar[str] = "There is no {word} {name!r}; there are {known}."

    word: str
    name: str
    known: str


@attrs.frozen
class PlugInTwice(Fault):
    """Two distributions have taken one name."""

    kind: ClassVar[str] = "plug_in_twice"
    message: ClassVar[str] = (
        "The {word} {name!r} is published by {distributions}; uninstall all but one."
    )

    word: str
    name: str
    distributions: str


@attrs.frozen
class PlugInBroken(Fault):
    """What is published under the name cannot be used."""

    kind: ClassVar[str] = "plug_in_broken"
    message: ClassVar[str] = (
        "The {word} {name!r} of {distribution} cannot be used: {reason}."
    )

    word: str
    name: str
    distribution: str
    reason: str


@attrs.frozen
class ExtraMissing(Fault):
    """An adapter of ours needs a library that was not installed."""

    kind: ClassVar[str] = "extra_missing"
    message: ClassVar[str] = (
        "The {word} {name!r} needs the library {library}:"
        " pip install 'livery[{extra}]' brings it."
    )

    word: str
    name: str
    library: str
    extra: str


@attrs.frozen(kw_only=True)
class BuiltIn(Generic[P]):
    """One of ours: loaded when it is used, since its library may be missing."""

    load: Callable[[], P]
    extra: str | None = None


def find(kind: type[P], name: str, built_in: Mapping[str, BuiltIn[P]]) -> P:
    """Return the plug-in of a kind by its name.

    Raises:
        PlugInUnknown, PlugInTwice, PlugInBroken, ExtraMissing: As they say.
    """
    ours = built_in.get(name)
    if ours is not None:
        return _loaded(ours, kind, name)
    published = _published(kind)
    match published.get(name, []):
        case []:
            known = ", ".join(sorted({*built_in, *published})) or "none"
            raise PlugInUnknown(word(kind), name, known)
        case [entry]:
            return _checked(entry, kind)
        case several:
            distributions = " and ".join(sorted(map(distribution, several)))
            raise PlugInTwice(word(kind), name, distributions)


def published_mistakes(
    kind: type[P], built_in: Mapping[str, BuiltIn[P]]
) -> tuple[str, ...]:
    """Return what is wrong with the names that others publish, a sentence each."""
    found: list[str] = []
    for name, entries in _published(kind).items():
        distributions = " and ".join(sorted(map(distribution, entries)))
        if name in built_in:
            found.append(
                f"The {word(kind)} {name!r} of {distributions} is hidden: the name is"
                " one of Livery's own."
            )
        elif len(entries) > 1:
            found.append(str(PlugInTwice(word(kind), name, distributions)))
    return tuple(found)


def published_names(kind: type[P]) -> tuple[str, ...]:
    """Return the names that others publish."""
    return tuple(sorted(_published(kind)))


def word(kind: type[object]) -> str:
    """Return what a kind of plug-in is called in messages."""
    return str(getattr(kind, "word", kind.__name__))


def distribution(entry: importlib.metadata.EntryPoint) -> str:
    """Return who publishes an entry point."""
    if entry.dist is None:
        return "(unknown)"
    return f"{entry.dist.name} {entry.dist.version}"


def _published(
    kind: type[object],
) -> Mapping[str, list[importlib.metadata.EntryPoint]]:
    group = str(getattr(kind, "group", ""))
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=group):
        found.setdefault(entry.name, []).append(entry)
    return found


def _checked(entry: importlib.metadata.EntryPoint, kind: type[P]) -> P:
    def broken(reason: str) -> PlugInBroken:
        return PlugInBroken(word(kind), entry.name, distribution(entry), reason)

    try:
        loaded: object = entry.load()
    except Exception as error:
        # Its module is somebody else's code, which can fail in any way.
        raise broken(f"{entry.value}: {type(error).__name__}: {error}") from error
    if not isinstance(loaded, kind):
        raise broken(f"{entry.value} is {type(loaded).__name__}, not {kind.__name__}")
    return loaded


def _loaded(ours: BuiltIn[P], kind: type[P], name: str) -> P:
    try:
        return ours.load()
    except ModuleNotFoundError as error:
        library = error.name or "(unknown)"
        if ours.extra is None or library.startswith("livery"):
            raise
        raise ExtraMissing(word(kind), name, library, ours.extra) from error
