# SPDX-License-Identifier: Apache-2.0
"""Runtimes: what is installed was verified, and nobody sees half of it."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from livery.domain.deciders import Instant
from livery.domain.runtimes import (
    DECIDER,
    AbandonStaging,
    Install,
    Installation,
    NotTheStager,
    Platform,
    Runtime,
    RuntimeConflict,
    RuntimeInstalled,
    RuntimePhase,
    RuntimeUnverified,
    RuntimeVerified,
    Stager,
    StagingAbandoned,
    StagingStarted,
    StagingUnderWay,
    StartStaging,
    VerificationFailed,
    Verify,
    decide,
)

from .deciding import START, DeciderMachine, after

NOW = Instant(START)
GOOD, BAD = "a" * 64, "b" * 64
RUNTIME = Runtime(
    name="claude",
    version="2.0.1",
    platform=Platform(system="linux", machine="x86_64", libc="glibc"),
    sha256=GOOD,
)
OTHER = attrs.evolve(RUNTIME, sha256=BAD)
ANNA, BERT = Stager("anna"), Stager("bert")
STAGE = StartStaging(runtime=RUNTIME, stager=ANNA, at=NOW)
VERIFY = Verify(stager=ANNA, sha256=GOOD, version="2.0.1", at=NOW)
INSTALL = Install(stager=ANNA, path="/opt/claude", at=NOW)


def verified() -> Installation:
    return after(DECIDER, STAGE, VERIFY)


def test_a_runtime_is_staged_verified_and_installed() -> None:
    events, installation = DECIDER.decide_all(DECIDER.initial, (STAGE, VERIFY, INSTALL))

    assert [type(event) for event in events] == [
        StagingStarted,
        RuntimeVerified,
        RuntimeInstalled,
    ]
    assert installation.path == "/opt/claude"


@pytest.mark.parametrize(
    "found", [{"sha256": BAD}, {"version": "2.0.2"}, {"version": ""}]
)
@pytest.mark.parametrize("state", [after(DECIDER, STAGE), verified()])
def test_another_file_than_was_asked_for_is_never_installed(
    state: Installation, found: dict[str, str]
) -> None:
    failed = after(DECIDER, attrs.evolve(VERIFY, **found), state=state)

    assert failed.phase is RuntimePhase.ABSENT
    assert next(iter(found.values()))[:12] in failed.reason
    with pytest.raises(NotTheStager):
        decide(failed, INSTALL)


def test_what_was_not_verified_is_not_installed() -> None:
    with pytest.raises(RuntimeUnverified):
        decide(after(DECIDER, STAGE), INSTALL)


def test_one_stages_and_who_comes_meanwhile_waits() -> None:
    staging = after(DECIDER, STAGE)

    with pytest.raises(StagingUnderWay):
        decide(staging, attrs.evolve(STAGE, stager=BERT))
    for command in (VERIFY, AbandonStaging(stager=ANNA, reason="x", at=NOW)):
        with pytest.raises(NotTheStager):
            decide(staging, attrs.evolve(command, stager=BERT))


def test_who_waited_finds_it_installed() -> None:
    installed = after(DECIDER, INSTALL, state=verified())

    assert decide(installed, attrs.evolve(STAGE, stager=BERT)) == ()


def test_another_build_under_the_same_name_is_a_conflict() -> None:
    with pytest.raises(RuntimeConflict) as caught:
        decide(verified(), attrs.evolve(STAGE, runtime=OTHER))

    assert (caught.value.standing, caught.value.refused) == (GOOD, BAD)


def test_what_a_dead_stager_left_is_given_up_and_staged_anew() -> None:
    gone = AbandonStaging(stager=ANNA, reason="the session is gone", at=NOW)

    again = after(DECIDER, gone, attrs.evolve(STAGE, stager=BERT), state=verified())

    assert (again.phase, again.stager) == (RuntimePhase.STAGING, BERT)


class Runtimes(DeciderMachine):
    """Several sessions that bring one runtime, and files that may arrive broken.

    The model keeps the sandbox's files: each stager's own, and the final one, which
    appears only by the rename of a stager that the decider let install.
    """

    decider = DECIDER
    ends_the_story = (AbandonStaging,)

    def begin(self) -> None:
        super().begin()
        self.staged: dict[Stager, str] = {}
        self.final: str | None = None

    def way(self) -> list[Callable[[], object]]:
        return [
            lambda: self.tell(attrs.evolve(STAGE, at=self.now)),
            lambda: self.the_file_arrives(GOOD),
            lambda: self.tell(attrs.evolve(VERIFY, at=self.now)),
        ]

    def asked(self) -> list[Any]:
        at = self.now
        commands: list[Any] = []
        for who in (ANNA, BERT):
            commands += [
                StartStaging(runtime=RUNTIME, stager=who, at=at),
                StartStaging(runtime=OTHER, stager=who, at=at),
                AbandonStaging(stager=who, reason="gave up", at=at),
                Install(stager=who, path="/opt/claude", at=at),
            ]
            if who in self.staged:
                content = self.staged[who]
                commands += [
                    Verify(stager=who, sha256=content, version="2.0.1", at=at),
                    Verify(stager=who, sha256=content, version="2.0.2", at=at),
                ]
        return commands

    def answered(self, before: Installation, command: Any, told: Any) -> None:
        if not isinstance(told, tuple) or not told:
            return
        match command:
            case Verify(version=version) if isinstance(told[0], RuntimeVerified):
                assert version == before.runtime.version
                assert command.stager == before.stager
            case Install() | AbandonStaging():
                assert command.stager == before.stager, "one stages at a time"
            case _:
                pass

    def saw(self, before: Installation, event: Any) -> None:
        match event:
            case StagingStarted():
                assert before.phase is RuntimePhase.ABSENT, "one stages at a time"
            case RuntimeVerified():
                assert self.staged[before.stager] == before.runtime.sha256
            case VerificationFailed(sha256=sha256, version=version):
                assert (sha256, version) != (before.runtime.sha256, "2.0.1")
                del self.staged[before.stager]
            case StagingAbandoned():
                self.staged.pop(before.stager, None)
            case RuntimeInstalled():
                assert before.phase is RuntimePhase.VERIFIED
                self.final = self.staged[before.stager]

    @rule(arrives=st.sampled_from([GOOD, BAD]))
    @precondition(lambda self: self.state.phase is RuntimePhase.STAGING)
    def the_file_arrives(self, arrives: str) -> None:
        self.staged.setdefault(self.state.stager, arrives)

    @invariant()
    def what_can_be_run_is_what_was_asked_for(self) -> None:
        assert (self.final is None) is (self.state.path is None)
        if self.final is not None:
            assert self.state.phase is RuntimePhase.INSTALLED
            assert self.final == self.state.runtime.sha256

    @invariant()
    def who_stages_is_known(self) -> None:
        stages = (RuntimePhase.STAGING, RuntimePhase.VERIFIED)
        assert (self.state.stager is not None) is (self.state.phase in stages)


TestRuntimes = Runtimes.TestCase
