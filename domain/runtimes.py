# SPDX-License-Identifier: Apache-2.0
"""Runtimes: what runs was verified in the sandbox.

A runtime is absent, staging, verified, installed. It is verified by the sha256 of
the whole decompressed file and by the version it tells; only what was verified is
installed, by a rename, so a partial install is never visible. One stages at a
time; whoever comes meanwhile waits and then finds it installed.
"""

from enum import StrEnum
from typing import ClassVar, Final, NewType, assert_never

import attrs

from .deciders import Decider, Instant, Table, may_follow, next_phase
from .refusals import Refusal

Stager = NewType("Stager", str)
"""Who stages: the id of a session or claim."""

_BY_DIGEST: Final = "sha256-"
_DIGITS: Final = 12


@attrs.frozen(kw_only=True, order=True)
class Platform:
    """What a program is built for."""

    system: str
    machine: str
    libc: str
    """"glibc", "musl" or "none"."""

    @property
    def word(self) -> str:
        """The platform in one word, "linux-x86_64-glibc"."""
        return f"{self.system}-{self.machine}-{self.libc}"


@attrs.frozen(kw_only=True)
class Runtime:
    """A verified program that a harness needs in the sandbox."""

    name: str
    version: str
    """Exact, or `version_by_digest`."""
    platform: Platform
    sha256: str
    """Of the whole decompressed file, hexadecimal."""

    def is_version(self, told: str) -> bool:
        """Whether a program that tells this version can be the one that is meant."""
        return self.version.startswith(_BY_DIGEST) or told == self.version


def version_by_digest(sha256: str) -> str:
    """Return the version of a program that nobody names but by its digest."""
    return f"{_BY_DIGEST}{sha256.lower()[:_DIGITS]}"


class RuntimePhase(StrEnum):
    """Where a runtime stands in one sandbox."""

    ABSENT = "absent"
    STAGING = "staging"
    VERIFIED = "verified"
    INSTALLED = "installed"


@attrs.frozen(kw_only=True)
class StartStaging:
    """Asks to bring `runtime` into the sandbox, under a name of `stager`'s own."""

    runtime: Runtime
    stager: Stager
    at: Instant


@attrs.frozen(kw_only=True)
class Verify:
    """Tells what was found in the staged file."""

    stager: Stager
    sha256: str
    version: str
    at: Instant


@attrs.frozen(kw_only=True)
class Install:
    """Tells that the verified file has its final name."""

    stager: Stager
    path: str
    at: Instant


@attrs.frozen(kw_only=True)
class AbandonStaging:
    """Tells that the stager is gone or gave up; what it staged is removed."""

    stager: Stager
    reason: str
    at: Instant


Command = StartStaging | Verify | Install | AbandonStaging


@attrs.frozen(kw_only=True)
class StagingStarted:
    """The file is on its way, under a name that nothing runs."""

    runtime: Runtime
    stager: Stager
    at: Instant


@attrs.frozen(kw_only=True)
class StagingAbandoned:
    """Nothing is left of it."""

    reason: str
    at: Instant


@attrs.frozen(kw_only=True)
class RuntimeVerified:
    """The staged file is the one that was asked for."""

    at: Instant


@attrs.frozen(kw_only=True)
class VerificationFailed:
    """The staged file is another one; it was never run as a harness."""

    sha256: str
    version: str
    at: Instant


@attrs.frozen(kw_only=True)
class RuntimeInstalled:
    """The file has its final name and can be run."""

    path: str
    at: Instant


Event = (
    StagingStarted
    | StagingAbandoned
    | RuntimeVerified
    | VerificationFailed
    | RuntimeInstalled
)

_P = RuntimePhase
TRANSITIONS: Final[Table[RuntimePhase]] = {
    (_P.ABSENT, StagingStarted): _P.STAGING,
    (_P.STAGING, StagingAbandoned): _P.ABSENT,
    (_P.STAGING, RuntimeVerified): _P.VERIFIED,
    (_P.STAGING, VerificationFailed): _P.ABSENT,
    (_P.VERIFIED, StagingAbandoned): _P.ABSENT,
    (_P.VERIFIED, VerificationFailed): _P.ABSENT,
    (_P.VERIFIED, RuntimeInstalled): _P.INSTALLED,
}


@attrs.frozen(kw_only=True)
class Installation:
    """What is known of one runtime in one sandbox."""

    phase: RuntimePhase = RuntimePhase.ABSENT
    runtime: Runtime | None = None
    stager: Stager | None = None
    path: str | None = None
    reason: str = ""
    """Why the last staging came to nothing."""


@attrs.frozen
class StagingUnderWay(Refusal):
    """Another stages it; wait and it will be installed."""

    kind: ClassVar[str] = "staging_under_way"
    message: ClassVar[str] = "{stager} is bringing that runtime; wait for it."

    stager: Stager | None


@attrs.frozen
class RuntimeConflict(Refusal):
    """Another runtime stands under that name."""

    kind: ClassVar[str] = "runtime_conflict"
    message: ClassVar[str] = (
        "{name} {version} stands in the sandbox with sha256 {standing:.12},"
        " asked for was {refused:.12}. Nothing was replaced."
    )

    name: str
    version: str
    standing: str
    refused: str


@attrs.frozen
class NotTheStager(Refusal):
    """Who speaks does not stage it, or not any more."""

    kind: ClassVar[str] = "not_the_stager"
    message: ClassVar[str] = "{stager} is not staging that runtime."

    stager: Stager


@attrs.frozen
class RuntimeUnverified(Refusal):
    """Only what was verified is installed."""

    kind: ClassVar[str] = "runtime_unverified"
    message: ClassVar[str] = (
        "The runtime is {phase}, not verified; it is not installed."
    )

    phase: RuntimePhase


def decide(installation: Installation, command: Command) -> tuple[Event, ...]:
    """Return what happens next.

    Raises:
        StagingUnderWay, RuntimeConflict, NotTheStager, RuntimeUnverified: As they say.
    """
    match command:
        case StartStaging():
            return _start(installation, command)
        case Verify():
            return _verify(installation, command)
        case Install(stager=stager, path=path, at=at):
            if installation.phase is RuntimePhase.INSTALLED:
                return ()
            _check_stager(installation, stager)
            if installation.phase is not RuntimePhase.VERIFIED:
                raise RuntimeUnverified(phase=installation.phase)
            return (RuntimeInstalled(path=path, at=at),)
        case AbandonStaging(stager=stager, reason=reason, at=at):
            abandoned = StagingAbandoned(reason=reason, at=at)
            if not may_follow(TRANSITIONS, installation.phase, StagingAbandoned):
                return ()
            _check_stager(installation, stager)
            return (abandoned,)
        case _:
            assert_never(command)


def evolve(installation: Installation, event: Event) -> Installation:
    """Return the installation after `event`."""
    phase = next_phase(TRANSITIONS, installation.phase, event)
    match event:
        case StagingStarted(runtime=runtime, stager=stager):
            return Installation(phase=phase, runtime=runtime, stager=stager)
        case StagingAbandoned(reason=reason):
            return Installation(phase=phase, reason=reason)
        case VerificationFailed(sha256=sha256, version=version):
            found = f"found sha256 {sha256[:12]}, version {version!r}"
            return Installation(phase=phase, reason=found)
        case RuntimeVerified():
            return attrs.evolve(installation, phase=phase)
        case RuntimeInstalled(path=path):
            return attrs.evolve(installation, phase=phase, path=path, stager=None)
        case _:
            assert_never(event)


def _start(installation: Installation, command: StartStaging) -> tuple[Event, ...]:
    wanted, standing = command.runtime, installation.runtime
    if standing is None:
        return (StagingStarted(runtime=wanted, stager=command.stager, at=command.at),)
    if standing != wanted:
        raise RuntimeConflict(
            name=standing.name,
            version=standing.version,
            standing=standing.sha256,
            refused=wanted.sha256,
        )
    if installation.phase is RuntimePhase.INSTALLED:
        return ()
    if installation.stager == command.stager:
        return ()
    raise StagingUnderWay(stager=installation.stager)


def _verify(installation: Installation, command: Verify) -> tuple[Event, ...]:
    if installation.phase is RuntimePhase.INSTALLED:
        return ()  # What was staged has its final name; this tells of an older file.
    _check_stager(installation, command.stager)
    wanted = installation.runtime
    assert wanted is not None, "what is staged is known"
    if command.sha256 == wanted.sha256 and wanted.is_version(command.version):
        known = installation.phase is RuntimePhase.VERIFIED
        return () if known else (RuntimeVerified(at=command.at),)
    return (
        VerificationFailed(
            sha256=command.sha256, version=command.version, at=command.at
        ),
    )


def _check_stager(installation: Installation, stager: Stager) -> None:
    if installation.stager != stager:
        raise NotTheStager(stager=stager)


DECIDER: Final[Decider[Installation, Command, Event]] = Decider(
    initial=Installation(), decide=decide, evolve=evolve
)
