# SPDX-License-Identifier: Apache-2.0
"""Agent sessions: the caller's id, one seed, one harness start, one closed reply.

The rules of NeMo Gym's sessions are in here too. One thing is ours on purpose: an
activation that has begun is joined by a repeat of its request also while the session
closes, so that whoever lost the connection still learns how it ended.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from livery.domain.activations import (
    Activate,
    ActivationConflict,
    ActivationEnded,
    ActivationStarted,
    ActivationUnknown,
    EndActivation,
    Ending,
    Outcome,
    RunId,
)
from livery.domain.agent_sessions import (
    DECIDER,
    AbandonSeed,
    ActivationUnfinished,
    AgentSession,
    AgentSessionId,
    CaptureStarted,
    Close,
    CloseFailed,
    CloseStarted,
    EpisodeMismatch,
    FailClose,
    FailSetup,
    Forget,
    GiveUpSeed,
    MarkReady,
    Seed,
    SeedAbandoned,
    SeedConflict,
    SeedGivenUp,
    SeedStarted,
    SessionClosed,
    SessionForgotten,
    SessionIsClosed,
    SessionIsClosing,
    SessionPhase,
    SessionReady,
    SessionTakenOver,
    SessionUnknown,
    SetupFailed,
    StartCapture,
    StartClose,
    StillRetained,
    TakeOver,
    decide,
)
from livery.domain.claims import ClaimId, Holder
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.tasks import EpisodeId

from .deciding import START, DeciderMachine, after, outcome

NOW = Instant(START)
SESSION = AgentSessionId("agent-session-1")
EPISODE, OTHER_EPISODE = EpisodeId("r1"), EpisodeId("r1", 1)
CLAIM = ClaimId("claim-1")
HELLO, BYE = RequestDigest("hello"), RequestDigest("bye")
RETENTION_SECONDS = 300.0

SEED = Seed(session=SESSION, episode=EPISODE, request=RequestDigest("seed"), at=NOW)
OTHER_SEED = attrs.evolve(SEED, request=RequestDigest("other seed"))
READY = MarkReady(claim=CLAIM, at=NOW)
ACTIVATE = Activate(request=HELLO, run=RunId("run-1"), at=NOW)
DONE = Ending(outcome=Outcome.COMPLETED, reply='{"done":true}')
END = EndActivation(request=HELLO, ending=DONE, at=NOW)
START_CLOSE = StartClose(episode=EPISODE, at=NOW)
CLOSE = Close(session=SESSION, episode=EPISODE, reply='{"closed":1}', at=NOW)
UNSEEDED_CLOSE = attrs.evolve(CLOSE, reply='{"nothing":1}')


def ready(*, stepwise: bool = False) -> AgentSession:
    return after(DECIDER, attrs.evolve(SEED, stepwise=stepwise), READY)


def activating(*, stepwise: bool = False) -> AgentSession:
    return after(DECIDER, ACTIVATE, state=ready(stepwise=stepwise))


def finished(*, stepwise: bool = False) -> AgentSession:
    return after(DECIDER, END, state=activating(stepwise=stepwise))


def closed() -> AgentSession:
    return after(DECIDER, START_CLOSE, CLOSE, state=finished())


def setup_failed() -> AgentSession:
    return after(DECIDER, SEED, FailSetup(reason="no runtime", at=NOW))


def test_a_session_goes_from_seed_to_closed() -> None:
    commands = (
        SEED,
        READY,
        ACTIVATE,
        StartCapture(request=HELLO, at=NOW),
        END,
        START_CLOSE,
        CLOSE,
    )

    events, session = DECIDER.decide_all(DECIDER.initial, commands)

    assert [type(event) for event in events] == [
        SeedStarted,
        SessionReady,
        ActivationStarted,
        CaptureStarted,
        ActivationEnded,
        CloseStarted,
        SessionClosed,
    ]
    assert session.closed is not None
    assert session.closed.reply == CLOSE.reply


@pytest.mark.case("FC-083")
@pytest.mark.parametrize(
    "state", [after(DECIDER, SEED), ready(), setup_failed()], ids=lambda s: s.phase
)
def test_who_lost_the_seed_reply_closes_by_its_own_id(state: AgentSession) -> None:
    session = after(DECIDER, START_CLOSE, CLOSE, state=state)

    assert session.phase is SessionPhase.CLOSED


@pytest.mark.case("FC-083")
def test_a_seed_that_a_close_overtook_is_refused_and_its_seeder_has_to_release() -> (
    None
):
    closing = after(DECIDER, SEED, START_CLOSE)

    for late in (READY, AbandonSeed(reason="x", at=NOW), FailSetup(reason="x", at=NOW)):
        with pytest.raises(SessionIsClosing):
            decide(closing, late)


def test_who_was_overtaken_by_a_close_tells_when_it_is_done() -> None:
    given_up = GiveUpSeed(reason="closed meanwhile", at=NOW)
    closing = after(DECIDER, SEED, START_CLOSE)

    over = after(DECIDER, given_up, state=closing)

    assert (closing.seed_over, over.seed_over) == (False, True)
    assert (over.phase, over.reason) == (SessionPhase.CLOSING, "closed meanwhile")
    assert decide(over, given_up) == ()
    assert decide(ready(), given_up) == ()
    with pytest.raises(SessionUnknown):
        decide(after(DECIDER, SEED), given_up)


def test_what_a_dead_process_had_in_hand_is_taken_over_once() -> None:
    dead, first, second = Holder("dead"), Holder("first"), Holder("second")
    running = after(DECIDER, attrs.evolve(ACTIVATE, holder=dead), state=ready())

    taken = after(
        DECIDER, TakeOver(taken_from=dead, holder=first, at=NOW), state=running
    )

    assert (running.holder, taken.holder) == (dead, first)
    assert decide(taken, TakeOver(taken_from=dead, holder=second, at=NOW)) == ()
    assert decide(ready(), TakeOver(taken_from=None, holder=second, at=NOW)) == ()
    of_first = attrs.evolve(ready(), holder=first)
    (cared_for,) = decide(of_first, TakeOver(taken_from=first, holder=second, at=NOW))
    assert DECIDER.evolve(of_first, cared_for) == attrs.evolve(of_first, holder=second)
    assert taken.phase is SessionPhase.ACTIVATING


@pytest.mark.case("FC-084")
def test_close_twice_answers_the_same_and_still_checks_whose_it_is() -> None:
    again = attrs.evolve(CLOSE, reply="another")

    assert decide(closed(), START_CLOSE) == ()
    assert decide(closed(), again) == ()
    for command in (StartClose, Close):
        asked = attrs.evolve(
            START_CLOSE if command is StartClose else CLOSE, episode=OTHER_EPISODE
        )
        with pytest.raises(EpisodeMismatch):
            decide(closed(), asked)


@pytest.mark.case("FC-084")
@pytest.mark.parametrize(
    "state",
    [after(DECIDER, SEED), ready(), activating(), finished(), setup_failed()],
    ids=lambda s: s.phase,
)
def test_a_live_session_is_not_closed_for_another_episode(state: AgentSession) -> None:
    with pytest.raises(EpisodeMismatch):
        decide(state, attrs.evolve(START_CLOSE, episode=OTHER_EPISODE))


@pytest.mark.case("FC-085")
@pytest.mark.parametrize("seed", [SEED, OTHER_SEED])
def test_a_closed_id_is_not_seeded_again_while_its_reply_is_kept(seed: Seed) -> None:
    forget = Forget(retention_seconds=RETENTION_SECONDS, at=Instant(NOW + 299.9))

    with pytest.raises(SessionIsClosed):
        decide(closed(), seed)
    with pytest.raises(StillRetained):
        decide(closed(), forget)

    forgotten = after(
        DECIDER, attrs.evolve(forget, at=Instant(NOW + 300)), state=closed()
    )
    assert forgotten == DECIDER.initial


@pytest.mark.case("FC-085")
def test_an_id_that_was_closed_before_it_was_seeded_is_not_seeded() -> None:
    never_seeded = after(DECIDER, START_CLOSE, UNSEEDED_CLOSE)

    with pytest.raises(SessionIsClosed):
        decide(never_seeded, SEED)
    assert never_seeded.closed.reply == UNSEEDED_CLOSE.reply


@pytest.mark.case("FC-109")
def test_of_many_equal_seeds_one_sets_up() -> None:
    state = after(DECIDER, SEED)

    assert [decide(state, SEED) for _ in range(19)] == [()] * 19


@pytest.mark.case("FC-110")
@pytest.mark.parametrize("state", [after(DECIDER, SEED), ready(), activating()])
@pytest.mark.parametrize(
    "other", [OTHER_SEED, attrs.evolve(SEED, episode=OTHER_EPISODE)]
)
def test_another_seed_under_the_id_is_a_conflict(
    state: AgentSession, other: Seed
) -> None:
    with pytest.raises(SeedConflict):
        decide(state, other)

    assert decide(state, SEED) == ()


def test_a_seed_that_kept_nothing_frees_the_id() -> None:
    abandoned = after(DECIDER, SEED, AbandonSeed(reason="no room", at=NOW))

    assert after(DECIDER, OTHER_SEED, state=abandoned).phase is SessionPhase.SEEDING


def test_a_failed_setup_is_only_good_for_closing() -> None:
    state = setup_failed()

    with pytest.raises(SessionIsClosing):
        decide(state, SEED)
    with pytest.raises(SessionIsClosing):
        decide(state, ACTIVATE)
    assert state.reason == "no runtime"


def test_a_session_that_is_not_ready_is_not_activated() -> None:
    for state in (DECIDER.initial, after(DECIDER, SEED)):
        with pytest.raises(SessionUnknown):
            decide(state, ACTIVATE)


@pytest.mark.case("FC-112")
@pytest.mark.parametrize(
    "state",
    [
        activating(),
        after(DECIDER, StartCapture(request=HELLO, at=NOW), state=activating()),
        after(DECIDER, START_CLOSE, state=activating()),
    ],
    ids=lambda s: s.phase,
)
def test_a_repeat_joins_the_activation_that_runs(state: AgentSession) -> None:
    assert decide(state, attrs.evolve(ACTIVATE, run=RunId("run-2"))) == ()
    assert state.activations.of(HELLO).run == "run-1"


@pytest.mark.case("FC-113")
@pytest.mark.parametrize("result", list(Outcome))
def test_a_repeat_of_what_is_over_is_answered_as_before(result: Outcome) -> None:
    ending = Ending(outcome=result, reply="as before")
    over = after(DECIDER, attrs.evolve(END, ending=ending), state=activating())

    assert decide(over, ACTIVATE) == ()
    assert decide(over, END) == ()
    assert over.activations.of(HELLO).ending == ending


@pytest.mark.case("FC-113")
@pytest.mark.parametrize("state", [activating(), finished()], ids=lambda s: s.phase)
def test_another_request_is_a_conflict_and_the_first_one_stands(
    state: AgentSession,
) -> None:
    with pytest.raises(ActivationConflict) as caught:
        decide(state, attrs.evolve(ACTIVATE, request=BYE))

    assert caught.value.standing == HELLO


@pytest.mark.case("FC-113")
@pytest.mark.parametrize("request_", [HELLO, BYE])
def test_nothing_is_activated_under_a_closed_id(request_: RequestDigest) -> None:
    with pytest.raises(SessionIsClosed):
        decide(closed(), attrs.evolve(ACTIVATE, request=request_))


def test_a_stepwise_session_takes_one_request_after_the_other() -> None:
    bye = attrs.evolve(ACTIVATE, request=BYE)

    with pytest.raises(ActivationConflict):
        decide(activating(stepwise=True), bye)
    both = after(DECIDER, bye, state=finished(stepwise=True))

    assert [each.request for each in both.activations.standing] == [HELLO, BYE]


def test_capture_belongs_to_the_activation_that_runs() -> None:
    with pytest.raises(ActivationUnknown):
        decide(activating(), StartCapture(request=BYE, at=NOW))

    assert decide(finished(), StartCapture(request=HELLO, at=NOW)) == ()


def test_a_session_does_not_close_over_a_running_activation() -> None:
    closing = after(DECIDER, START_CLOSE, state=activating())

    with pytest.raises(ActivationUnfinished):
        decide(closing, CLOSE)

    cancelled = Ending(outcome=Outcome.CANCELLED, reply="cut", reason="closed")
    over = after(DECIDER, attrs.evolve(END, ending=cancelled), CLOSE, state=closing)
    assert over.phase is SessionPhase.CLOSED


def test_a_close_that_failed_keeps_everything_and_can_be_asked_again() -> None:
    failed = FailClose(reason="daemon gone", at=NOW)

    closing = after(DECIDER, START_CLOSE, failed, START_CLOSE, state=finished())

    assert (closing.phase, closing.reason) == (SessionPhase.CLOSING, "daemon gone")
    assert closing.claim == CLAIM
    assert after(DECIDER, CLOSE, state=closing).phase is SessionPhase.CLOSED


@given(
    commands=st.lists(
        st.sampled_from(
            [SEED, READY, ACTIVATE, END, START_CLOSE, CLOSE, UNSEEDED_CLOSE]
        ),
        max_size=12,
    )
)
def test_whatever_comes_a_close_answers_what_the_first_one_did(
    commands: list[Any],
) -> None:
    state, replies = DECIDER.initial, list[str]()
    for command in commands:
        told = outcome(DECIDER, state, command)
        state = DECIDER.replay(told if isinstance(told, tuple) else (), state)
        replies += [state.closed.reply] if state.closed else []

    assert len(set(replies)) <= 1


class AgentSessions(DeciderMachine):
    """A session, its callers, and the harness that they would launch.

    Rules 1 and 7 of the design; whoever wrote the start launches, nobody else. A
    process that dies between the two launches nothing, and neither does a successor.
    """

    decider = DECIDER
    stepwise: ClassVar[bool]
    happens_again = (FailClose, StartCapture)
    ends_the_story = (
        AbandonSeed,
        FailSetup,
        GiveUpSeed,
        TakeOver,
        StartClose,
        Close,
        FailClose,
    )

    def begin(self) -> None:
        super().begin()
        self.lives = 0
        """How often the id was used anew, after it was forgotten or abandoned."""
        self.to_launch: list[tuple[int, RequestDigest]] = []
        self.launched: Counter[tuple[int, RequestDigest]] = Counter()
        self.endings: dict[tuple[int, RequestDigest], Ending] = {}
        self.ends = 0

    def way(self) -> list[Callable[[], object]]:
        commands = (attrs.evolve(SEED, stepwise=self.stepwise), READY, ACTIVATE, END)
        return [
            partial(self.tell, attrs.evolve(command, at=self.now))
            for command in commands
        ]

    def asked(self) -> list[Any]:
        at = self.now
        self.ends += 1
        commands: list[Any] = [
            attrs.evolve(SEED, stepwise=self.stepwise, at=at),
            attrs.evolve(OTHER_SEED, stepwise=self.stepwise, at=at),
            attrs.evolve(SEED, episode=OTHER_EPISODE, at=at),
            MarkReady(claim=CLAIM, at=at),
            AbandonSeed(reason="kept nothing", at=at),
            FailSetup(reason="kept something", at=at),
            GiveUpSeed(reason="closed meanwhile", at=at),
            TakeOver(
                taken_from=self.state.holder, holder=Holder(f"h-{self.ends}"), at=at
            ),
            StartClose(episode=EPISODE, at=at),
            StartClose(episode=OTHER_EPISODE, at=at),
            FailClose(reason="not released", at=at),
            attrs.evolve(CLOSE, reply=f"reply {self.ends}", at=at),
            attrs.evolve(CLOSE, episode=OTHER_EPISODE, at=at),
            Forget(retention_seconds=RETENTION_SECONDS, at=at),
        ]
        for request in (HELLO, BYE):
            ending = Ending(outcome=Outcome.COMPLETED, reply=f"end {self.ends}")
            commands += [
                Activate(request=request, run=RunId(f"run {self.ends}"), at=at),
                StartCapture(request=request, at=at),
                EndActivation(request=request, ending=ending, at=at),
            ]
        return commands

    def answered(self, before: AgentSession, command: Any, told: Any) -> None:
        seeded, closed = before.seeded, before.closed
        match command:
            case Seed() if closed is not None:
                assert isinstance(told, SessionIsClosed)
            case Seed() if seeded is not None:
                same = (seeded.request, seeded.episode) == (
                    command.request,
                    command.episode,
                )
                assert isinstance(told, SeedConflict) is not same
            case StartClose() | Close() if closed is not None:
                if command.episode == closed.episode:
                    assert told == (), "close answers the same thing each time"
                else:
                    assert isinstance(told, EpisodeMismatch)
            case Activate(request=request) if before.activations.of(request):
                joins = closed is None
                assert (told == ()) is joins, "the same request, the same result"
            case _:
                pass

    def saw(self, before: AgentSession, event: Any) -> None:
        phase = before.phase
        match event:
            case SeedStarted():
                assert phase is SessionPhase.ABSENT
                assert before == DECIDER.initial, "nothing is left of an earlier use"
                self.lives += 1
            case SessionReady() | SeedAbandoned() | SetupFailed():
                assert phase is SessionPhase.SEEDING
            case SeedGivenUp():
                assert phase is SessionPhase.CLOSING
                assert not before.seed_over, "a setup is over once"
            case SessionTakenOver(holder=holder):
                assert before.seeded is not None
                assert before.holder != holder
            case ActivationStarted(request=request):
                assert phase is SessionPhase.READY, "only a ready one is activated"
                assert self.stepwise or not before.activations.standing
                self.to_launch.append((self.lives, request))
            case ActivationEnded(request=request, ending=ending):
                key = (self.lives, request)
                assert key not in self.endings, "the first ending stands"
                self.endings[key] = ending
            case CaptureStarted(request=request):
                assert before.activations.under_way.request == request
            case CloseStarted(episode=episode):
                assert before.seeded.episode == episode
            case CloseFailed():
                assert phase is SessionPhase.CLOSING
            case SessionClosed():
                assert before.activations.under_way is None
                assert phase in (SessionPhase.CLOSING, SessionPhase.ABSENT)
            case SessionForgotten(at=at):
                assert at >= before.closed.at + RETENTION_SECONDS

    @rule()
    @precondition(lambda self: self.to_launch)
    def who_wrote_the_start_launches_the_harness(self) -> None:
        self.launched[self.to_launch.pop()] += 1

    @rule()
    @precondition(lambda self: self.to_launch)
    def who_wrote_the_start_dies(self) -> None:
        self.to_launch.pop()

    @invariant()
    def a_harness_starts_at_most_once_for_a_request(self) -> None:
        assert all(count == 1 for count in self.launched.values())

    @invariant()
    def what_ended_is_answered_as_it_was(self) -> None:
        for activation in self.state.activations.standing:
            key = (self.lives, activation.request)
            assert activation.ending == self.endings.get(key)

    @invariant()
    def one_activation_runs_and_the_phase_tells_it(self) -> None:
        running = [a for a in self.state.activations.standing if a.ending is None]
        assert len(running) <= 1
        if self.state.phase in (SessionPhase.ACTIVATING, SessionPhase.CAPTURING):
            assert running
        if self.state.phase in (SessionPhase.READY, SessionPhase.CLOSED):
            assert not running

    @invariant()
    def a_closed_session_has_its_first_reply_and_an_open_one_none(self) -> None:
        closes = [each for each in self.journal if isinstance(each, SessionClosed)]
        if self.state.phase is SessionPhase.CLOSED:
            assert self.state.closed == closes[-1]
        else:
            assert self.state.closed is None

    @invariant()
    def what_was_seeded_with_a_claim_keeps_it_until_closed(self) -> None:
        kept = (SessionPhase.READY, SessionPhase.ACTIVATING, SessionPhase.CAPTURING)
        if self.state.phase in kept:
            assert self.state.claim == CLAIM

    def end(self) -> None:
        """Whatever happened, a close comes to an end, and once."""
        if self.state.closed is None and self.state.seeded is not None:
            episode = self.state.seeded.episode
            self.tell(StartClose(episode=episode, at=self.now))
            if running := self.state.activations.under_way:
                ending = Ending(outcome=Outcome.CANCELLED, reply="cut")
                self.tell(
                    EndActivation(request=running.request, ending=ending, at=self.now)
                )
            self.tell(attrs.evolve(CLOSE, episode=episode, at=self.now))
            assert self.state.phase is SessionPhase.CLOSED


class OneShotSessions(AgentSessions):
    stepwise = False


class StepwiseSessions(AgentSessions):
    stepwise = True


TestOneShotSessions = OneShotSessions.TestCase
TestStepwiseSessions = StepwiseSessions.TestCase
