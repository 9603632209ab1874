# SPDX-License-Identifier: Apache-2.0
"""Resources sessions: graded once, and only what nothing writes to any more."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis.stateful import invariant, rule

from livery.domain.activations import Stillness
from livery.domain.claims import ClaimId
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.resources_sessions import (
    DECIDER,
    AbandonBuild,
    BuildAbandoned,
    BuildStarted,
    CloseResources,
    FailResourcesClose,
    FailVerification,
    GiveVerdict,
    HarnessMayWrite,
    MarkBuilt,
    NoteProviderFailure,
    ProviderFailed,
    ResourcesClosed,
    ResourcesCloseFailed,
    ResourcesCloseStarted,
    ResourcesConflict,
    ResourcesNotUsable,
    ResourcesPhase,
    ResourcesSession,
    ResourcesSessionId,
    SeedResources,
    StartResourcesClose,
    StartVerification,
    VerdictGiven,
    VerificationGivenUp,
    VerificationStarted,
    WorldBuilt,
    decide,
)
from livery.domain.tasks import EpisodeId

from .deciding import START, DeciderMachine, after

NOW = Instant(START)
EPISODE, OTHER_EPISODE = EpisodeId("r1"), EpisodeId("r1", 1)
CLAIM = ClaimId("claim-1")
SEED = SeedResources(
    session=ResourcesSessionId("resources-session-1"),
    episode=EPISODE,
    request=RequestDigest("seed"),
    at=NOW,
)
BUILT = MarkBuilt(claim=CLAIM, at=NOW)
VERIFY = StartVerification(
    request=RequestDigest("answer"), stillness=Stillness.PROCESSES_SEEN_DEAD, at=NOW
)
VERDICT = GiveVerdict(reply='{"reward":1}', at=NOW)
START_CLOSE = StartResourcesClose(episode=EPISODE, at=NOW)
CLOSE = CloseResources(episode=EPISODE, at=NOW)


def built() -> ResourcesSession:
    return after(DECIDER, SEED, BUILT)


def verified() -> ResourcesSession:
    return after(DECIDER, VERIFY, VERDICT, state=built())


def test_a_session_goes_from_seed_over_the_verdict_to_closed() -> None:
    commands = (SEED, BUILT, VERIFY, VERDICT, START_CLOSE, CLOSE)

    events, session = DECIDER.decide_all(DECIDER.initial, commands)

    assert [type(event) for event in events] == [
        BuildStarted,
        WorldBuilt,
        VerificationStarted,
        VerdictGiven,
        ResourcesCloseStarted,
        ResourcesClosed,
    ]
    assert session.verdict == VERDICT.reply


def test_nothing_is_graded_while_the_harness_may_write() -> None:
    with pytest.raises(HarnessMayWrite):
        decide(built(), attrs.evolve(VERIFY, stillness=None))


@pytest.mark.parametrize("stillness", list(Stillness))
def test_what_was_seen_of_the_harness_is_part_of_the_fact(stillness: Stillness) -> None:
    (started,) = decide(built(), attrs.evolve(VERIFY, stillness=stillness))

    assert started.stillness is stillness


def test_the_first_verdict_stands() -> None:
    assert decide(verified(), attrs.evolve(VERDICT, reply="another")) == ()
    assert decide(verified(), VERIFY) == ()
    with pytest.raises(ResourcesConflict):
        decide(verified(), attrs.evolve(VERIFY, request=RequestDigest("another")))


def test_a_verification_that_came_to_nothing_can_be_asked_again() -> None:
    given_up = FailVerification(reason="grader lost", at=NOW)

    again = after(DECIDER, VERIFY, given_up, VERIFY, state=built())

    assert again.phase is ResourcesPhase.VERIFYING


def test_a_failure_of_the_provider_is_kept_until_the_verdict() -> None:
    note = NoteProviderFailure(reason="the daemon is gone", at=NOW)
    hindered = after(DECIDER, note, state=built())

    assert hindered.provider_failure == "the daemon is gone"
    assert decide(hindered, attrs.evolve(note, reason="again")) == ()
    assert after(DECIDER, VERIFY, state=hindered).provider_failure
    with pytest.raises(ResourcesNotUsable):
        decide(verified(), note)


def test_a_close_during_grading_ends_the_wait_for_a_verdict() -> None:
    closing = after(DECIDER, VERIFY, START_CLOSE, state=built())

    for command in (VERIFY, VERDICT):
        with pytest.raises(ResourcesNotUsable):
            decide(closing, command)


def test_a_verdict_is_told_again_after_the_close() -> None:
    closed = after(DECIDER, START_CLOSE, CLOSE, state=verified())

    assert decide(closed, VERIFY) == ()
    assert closed.verdict == VERDICT.reply


@pytest.mark.case("FC-110")
@pytest.mark.parametrize(
    "other",
    [
        attrs.evolve(SEED, request=RequestDigest("another")),
        attrs.evolve(SEED, episode=OTHER_EPISODE),
    ],
)
def test_another_seed_under_the_id_is_a_conflict(other: SeedResources) -> None:
    assert decide(built(), SEED) == ()
    with pytest.raises(ResourcesConflict):
        decide(built(), other)


@pytest.mark.case("FC-085")
def test_a_seed_after_a_close_is_refused_also_of_an_id_never_seeded() -> None:
    never_seeded = after(DECIDER, START_CLOSE, CLOSE)
    closed = after(DECIDER, START_CLOSE, CLOSE, state=built())

    for state in (never_seeded, closed):
        with pytest.raises(ResourcesNotUsable):
            decide(state, SEED)


@pytest.mark.case("FC-084")
def test_close_twice_is_fine_and_still_checks_whose_it_is() -> None:
    closed = after(DECIDER, START_CLOSE, CLOSE, state=built())

    assert decide(closed, START_CLOSE) == ()
    assert decide(closed, CLOSE) == ()
    with pytest.raises(ResourcesConflict):
        decide(closed, attrs.evolve(CLOSE, episode=OTHER_EPISODE))


def test_a_close_that_failed_keeps_the_claim_and_can_be_asked_again() -> None:
    failed = FailResourcesClose(reason="daemon gone", at=NOW)

    closing = after(DECIDER, START_CLOSE, failed, START_CLOSE, state=built())

    assert (closing.claim, closing.reason) == (CLAIM, "daemon gone")
    assert after(DECIDER, CLOSE, state=closing).phase is ResourcesPhase.CLOSED


def test_a_world_that_a_close_overtook_is_refused_and_its_builder_has_to_release() -> (
    None
):
    closing = after(DECIDER, SEED, START_CLOSE)

    for late in (BUILT, AbandonBuild(reason="x", at=NOW)):
        with pytest.raises(ResourcesNotUsable):
            decide(closing, late)


class ResourcesSessions(DeciderMachine):
    """A world, its graders, and a harness that may or may not still write.

    Rule 5 of the design: what is graded is still. The teller of stillness is honest
    (`asked`), so whoever grades without it would be seen by the model.
    """

    decider = DECIDER
    happens_again = (FailResourcesClose,)
    ends_the_story = (AbandonBuild, StartResourcesClose, CloseResources)

    def begin(self) -> None:
        super().begin()
        self.harness_runs = True
        self.number = 0
        self.verdicts: list[str] = []

    def way(self) -> list[Callable[[], object]]:
        return [
            partial(self.tell, attrs.evolve(command, at=self.now))
            for command in (SEED, BUILT)
        ]

    def asked(self) -> list[Any]:
        at = self.now
        self.number += 1
        stillness = None if self.harness_runs else Stillness.PROCESSES_SEEN_DEAD
        commands: list[Any] = [
            attrs.evolve(SEED, at=at),
            attrs.evolve(SEED, request=RequestDigest("another"), at=at),
            attrs.evolve(SEED, episode=OTHER_EPISODE, at=at),
            MarkBuilt(claim=CLAIM, at=at),
            AbandonBuild(reason="kept nothing", at=at),
            GiveVerdict(reply=f"verdict {self.number}", at=at),
            FailVerification(reason="grader lost", at=at),
            NoteProviderFailure(reason="daemon gone", at=at),
            StartResourcesClose(episode=EPISODE, at=at),
            StartResourcesClose(episode=OTHER_EPISODE, at=at),
            FailResourcesClose(reason="daemon gone", at=at),
            CloseResources(episode=EPISODE, at=at),
            CloseResources(episode=OTHER_EPISODE, at=at),
        ]
        for answer in map(RequestDigest, ("answer", "another answer")):
            commands.append(StartVerification(request=answer, stillness=None, at=at))
            commands.append(
                StartVerification(request=answer, stillness=stillness, at=at)
            )
        return commands

    def answered(self, before: ResourcesSession, command: Any, told: Any) -> None:
        match command:
            case GiveVerdict() if before.verdict is not None:
                assert told == (), "the first verdict stands"
            case StartVerification(request=request) if before.verification is not None:
                same = before.verification.request == request
                assert isinstance(told, ResourcesConflict) is not same
            case SeedResources() if before.closed is not None:
                assert isinstance(told, ResourcesNotUsable)
            case StartResourcesClose() | CloseResources() if before.closed is not None:
                same = command.episode == before.closed.episode
                assert (told == ()) is same
            case _:
                pass

    def saw(self, before: ResourcesSession, event: Any) -> None:
        match event:
            case BuildStarted():
                assert before == DECIDER.initial
            case WorldBuilt() | BuildAbandoned():
                assert before.phase is ResourcesPhase.SEEDING
            case VerificationStarted():
                assert not self.harness_runs, "what is graded is still"
                assert before.phase is ResourcesPhase.READY
                assert before.verdict is None
            case VerdictGiven(reply=reply):
                assert before.verification is not None
                assert not self.verdicts, "graded once"
                self.verdicts.append(reply)
            case VerificationGivenUp():
                assert before.verdict is None
            case ProviderFailed():
                assert before.phase is ResourcesPhase.READY
                assert not before.provider_failure, "the first reason is kept"
            case ResourcesCloseStarted(episode=episode):
                assert before.built.episode == episode
            case ResourcesCloseFailed():
                assert before.phase is ResourcesPhase.CLOSING
            case ResourcesClosed():
                assert before.phase in (ResourcesPhase.CLOSING, ResourcesPhase.ABSENT)

    @rule()
    def the_harness_is_seen_dead(self) -> None:
        self.harness_runs = False

    @invariant()
    def the_first_verdict_stands_for_ever(self) -> None:
        assert self.state.verdict == (self.verdicts[0] if self.verdicts else None)

    @invariant()
    def a_world_keeps_its_claim_until_it_is_closed(self) -> None:
        kept = (ResourcesPhase.READY, ResourcesPhase.VERIFYING, ResourcesPhase.VERIFIED)
        if self.state.phase in kept:
            assert self.state.claim == CLAIM

    @invariant()
    def a_closed_session_stays_closed(self) -> None:
        closed = any(isinstance(event, ResourcesClosed) for event in self.journal)
        assert closed is (self.state.phase is ResourcesPhase.CLOSED)

    def end(self) -> None:
        """Whatever happened, a close comes to an end."""
        if self.state.built is not None:
            episode = self.state.built.episode
            self.tell(StartResourcesClose(episode=episode, at=self.now))
            self.tell(CloseResources(episode=episode, at=self.now))
            assert self.state.phase is ResourcesPhase.CLOSED


TestResourcesSessions = ResourcesSessions.TestCase
