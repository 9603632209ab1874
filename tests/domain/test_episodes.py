# SPDX-License-Identifier: Apache-2.0
"""Episodes: a result or a failure, and everybody closed in reverse order."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis.stateful import invariant

from livery.domain.claims import Holder
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest
from livery.domain.episodes import (
    DECIDER,
    Admit,
    CleanupOwed,
    EndTurn,
    Episode,
    EpisodeAdmitted,
    EpisodeConflict,
    EpisodeDone,
    EpisodeFailed,
    EpisodeOutOfStep,
    EpisodePhase,
    EpisodeQueued,
    EpisodeTakenOver,
    EpisodeVerified,
    Fail,
    Finish,
    NoteClosed,
    NoteSeeded,
    NoteStep,
    NoteUnclosed,
    NoteVerified,
    Participant,
    ParticipantClosed,
    ParticipantSeeded,
    ParticipantUnclosed,
    QueueEpisode,
    StartSeed,
    StartTurn,
    StartVerifying,
    StepEnded,
    TakeOverEpisode,
    TurnEnded,
    TurnStarted,
    VerifyingStarted,
    decide,
)
from livery.domain.failures import CANCELLED, Failure, Stage
from livery.domain.tasks import EpisodeId, TaskId

from .deciding import START, DeciderMachine, after

NOW = Instant(START)
HOLDER = Holder("one")
QUEUE = QueueEpisode(
    episode=EpisodeId("r1"),
    task=TaskId("set", "task-1"),
    request=RequestDigest("run"),
    holder=HOLDER,
    at=NOW,
)
RESOURCES, AGENT = Participant.RESOURCES, Participant.AGENT
FAILURE = Failure(stage=Stage.AGENT, kind=CANCELLED, reason="stopped", terminal=False)
FAIL = Fail(failure=FAILURE, at=NOW)
SEED_BOTH = (
    StartSeed(participant=RESOURCES, session="resources-1", at=NOW),
    NoteSeeded(participant=RESOURCES, at=NOW),
    StartSeed(participant=AGENT, session="agent-1", at=NOW),
    NoteSeeded(participant=AGENT, at=NOW),
)
TURN = (StartTurn(at=NOW), EndTurn(response="{}", at=NOW))
CLOSE_AGENT = NoteClosed(participant=AGENT, at=NOW)
CLOSE_RESOURCES = NoteClosed(participant=RESOURCES, at=NOW)
VERIFY = (StartVerifying(at=NOW), NoteVerified(result='{"reward":1}', at=NOW))
WHOLE = (
    QUEUE,
    Admit(at=NOW),
    *SEED_BOTH,
    *TURN,
    CLOSE_AGENT,
    *VERIFY,
    CLOSE_RESOURCES,
    Finish(at=NOW),
)


def at_step(steps: int) -> Episode:
    """Return the episode after that many steps of its whole way."""
    return after(DECIDER, *WHOLE[:steps])


def cleaned(episode: Episode) -> Episode:
    """Close whom the episode still owes, as cleaning does, and finish."""
    while episode.owed:
        who = episode.owed[-1][0]
        episode = after(DECIDER, NoteClosed(participant=who, at=NOW), state=episode)
    return after(DECIDER, Finish(at=NOW), state=episode)


def test_an_episode_goes_from_waiting_to_its_result() -> None:
    events, episode = DECIDER.decide_all(DECIDER.initial, WHOLE)

    assert [type(event) for event in events] == [
        EpisodeQueued,
        EpisodeAdmitted,
        CleanupOwed,
        ParticipantSeeded,
        CleanupOwed,
        ParticipantSeeded,
        TurnStarted,
        TurnEnded,
        ParticipantClosed,
        VerifyingStarted,
        EpisodeVerified,
        ParticipantClosed,
        EpisodeDone,
    ]
    assert (episode.result, episode.failure) == ('{"reward":1}', None)


@pytest.mark.case("FC-086")
@pytest.mark.case("FC-090")
@pytest.mark.parametrize("steps", range(1, len(WHOLE) - 2))
def test_whenever_it_is_cut_off_whoever_was_asked_to_seed_is_closed(steps: int) -> None:
    cut_off = at_step(steps)
    asked = [each.session for each in WHOLE[:steps] if isinstance(each, StartSeed)]
    closed = 1 if CLOSE_AGENT in WHOLE[:steps] else 0

    if cut_off.phase is not EpisodePhase.CLEANING:
        cut_off = after(DECIDER, FAIL, state=cut_off)
        assert cut_off.failure == FAILURE

    assert [session for _, session in cut_off.owed] == asked[: len(asked) - closed]
    assert cleaned(cut_off).phase is EpisodePhase.DONE


@pytest.mark.case("FC-090")
def test_it_does_not_finish_while_somebody_is_to_be_closed() -> None:
    failed = after(DECIDER, FAIL, state=at_step(6))

    with pytest.raises(EpisodeOutOfStep):
        decide(failed, Finish(at=NOW))


@pytest.mark.case("FC-086")
def test_whoever_could_not_be_closed_is_named_and_does_not_keep_the_others() -> None:
    hangs = NoteUnclosed(participant=AGENT, reason="no answer", at=NOW)

    done = after(
        DECIDER, FAIL, hangs, CLOSE_RESOURCES, Finish(at=NOW), state=at_step(7)
    )

    assert done.unclosed == ((AGENT, "no answer"),)
    assert done.phase is EpisodePhase.DONE


def test_participants_are_closed_in_reverse_order() -> None:
    failed = after(DECIDER, FAIL, state=at_step(6))

    with pytest.raises(EpisodeOutOfStep):
        decide(failed, CLOSE_RESOURCES)


def test_nobody_is_ready_whose_cleanup_is_not_owed() -> None:
    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(2), NoteSeeded(participant=AGENT, at=NOW))


def test_nobody_is_seeded_any_more_once_cleaning_has_begun() -> None:
    failed = after(DECIDER, FAIL, state=at_step(3))

    for command in SEED_BOTH[::2]:
        with pytest.raises(EpisodeOutOfStep):
            decide(failed, command)


def test_a_participant_has_one_session() -> None:
    another = StartSeed(participant=RESOURCES, session="resources-2", at=NOW)

    assert decide(at_step(3), SEED_BOTH[0]) == ()
    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(3), another)


def test_the_agent_acts_only_when_it_is_seeded() -> None:
    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(5), StartTurn(at=NOW))


@pytest.mark.parametrize("response", ["{}", ""])
def test_the_first_answer_stands(response: str) -> None:
    answered = after(DECIDER, EndTurn(response=response, at=NOW), state=at_step(7))

    assert decide(answered, EndTurn(response="another", at=NOW)) == ()
    assert answered.response == response


def test_a_turn_may_go_step_by_step_until_it_is_over() -> None:
    steps = tuple(NoteStep(number=n, step=f"step {n}", at=NOW) for n in (0, 1))
    stepped = after(DECIDER, *steps, state=at_step(7))

    assert stepped.steps == ("step 0", "step 1")
    assert decide(stepped, steps[1]) == (), "the first one stands"
    with pytest.raises(EpisodeOutOfStep):
        decide(stepped, NoteStep(number=3, step="later", at=NOW))
    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(8), steps[0])
    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(6), steps[0])


@pytest.mark.parametrize("steps", range(1, len(WHOLE)))
def test_an_episode_of_a_dead_process_is_taken_over_once(steps: int) -> None:
    take = TakeOverEpisode(taken_from=HOLDER, holder=Holder("two"), at=NOW)
    taken = after(DECIDER, take, state=at_step(steps))

    assert at_step(steps).holder == HOLDER
    assert taken == attrs.evolve(at_step(steps), holder=Holder("two"))
    late = TakeOverEpisode(taken_from=HOLDER, holder=Holder("three"), at=NOW)
    assert decide(taken, late) == ()


def test_what_is_over_is_not_taken_over() -> None:
    take = TakeOverEpisode(taken_from=HOLDER, holder=Holder("two"), at=NOW)

    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(len(WHOLE)), take)


def test_grading_waits_for_an_answer_and_for_the_agent_to_be_closed() -> None:
    not_closed = NoteUnclosed(participant=AGENT, reason="no answer", at=NOW)
    unclosed = after(DECIDER, not_closed, state=at_step(8))

    for state in (at_step(7), at_step(8), unclosed):
        with pytest.raises(EpisodeOutOfStep):
            decide(state, VERIFY[0])


@pytest.mark.parametrize(
    "change",
    [
        {"request": RequestDigest("another")},
        {"task": TaskId("set", "task-2")},
        {"episode": EpisodeId("r1", 1)},
    ],
)
def test_the_same_name_for_another_run_is_a_conflict(change: dict[str, Any]) -> None:
    assert decide(at_step(4), QUEUE) == ()
    with pytest.raises(EpisodeConflict):
        decide(at_step(4), attrs.evolve(QUEUE, **change))


def test_what_has_its_result_does_not_fail_any_more() -> None:
    with pytest.raises(EpisodeOutOfStep):
        decide(at_step(11), FAIL)


class Episodes(DeciderMachine):
    """An episode, two participants, and an environment that may be cut off anywhere.

    Rules 5 and 6 of the design, and that an episode that waits holds nothing.
    """

    decider = DECIDER
    ends_the_story = (Fail,)

    def begin(self) -> None:
        super().begin()
        self.number = 0
        self.open: list[tuple[Participant, str]] = []
        """Whose session may be there, in the order of their seeds."""
        self.closed: set[Participant] = set()
        self.answers: list[str] = []

    def way(self) -> list[Callable[[], object]]:
        return [
            partial(self.tell, attrs.evolve(command, at=self.now)) for command in WHOLE
        ]

    def asked(self) -> list[Any]:
        at = self.now
        self.number += 1
        commands: list[Any] = [
            attrs.evolve(QUEUE, at=at),
            attrs.evolve(QUEUE, request=RequestDigest("another"), at=at),
            Admit(at=at),
            StartTurn(at=at),
            NoteStep(number=len(self.state.steps), step="a step", at=at),
            EndTurn(response=f"answer {self.number}", at=at),
            TakeOverEpisode(taken_from=HOLDER, holder=Holder("two"), at=at),
            StartVerifying(at=at),
            NoteVerified(result=f"result {self.number}", at=at),
            Fail(failure=FAILURE, at=at),
            Finish(at=at),
        ]
        for who in Participant:
            commands += [
                StartSeed(participant=who, session=f"{who}-1", at=at),
                StartSeed(participant=who, session=f"{who}-2", at=at),
                NoteSeeded(participant=who, at=at),
                NoteClosed(participant=who, at=at),
                NoteUnclosed(participant=who, reason="no answer", at=at),
            ]
        return commands

    def saw(self, before: Episode, event: Any) -> None:
        assert before.phase is not EpisodePhase.DONE, "nothing happens after the end"
        match event:
            case EpisodeQueued() | EpisodeAdmitted():
                assert not self.open, "an episode that waits holds nothing"
            case CleanupOwed(participant=who, session=session):
                assert before.phase is EpisodePhase.SEEDING
                assert who not in dict(self.open)
                self.open.append((who, session))
            case ParticipantSeeded(participant=who):
                assert who in dict(self.open), "the debt is a fact before the seed"
                assert who not in before.seeded
            case TurnStarted():
                assert Participant.AGENT in before.seeded
                assert not any(isinstance(e, TurnStarted) for e in self.journal[:-1])
            case StepEnded():
                assert not self.answers, "no step follows the answer"
            case EpisodeTakenOver():
                assert before.holder == HOLDER, "it is taken from who had it"
            case TurnEnded(response=response):
                assert not self.answers, "the first answer stands"
                self.answers.append(response)
            case VerifyingStarted():
                assert Participant.AGENT in self.closed, "what is graded is still"
                assert self.answers
            case ParticipantClosed(participant=who):
                assert self.open.pop()[0] is who, "the last seeded is closed first"
                self.closed.add(who)
            case ParticipantUnclosed(participant=who):
                assert self.open.pop()[0] is who
            case EpisodeVerified():
                assert before.failure is None
            case EpisodeFailed():
                assert before.result is None
            case EpisodeDone():
                assert not self.open, "everybody was closed or tried"

    @invariant()
    def there_is_a_result_or_a_failure_and_never_both(self) -> None:
        outcomes = [self.state.result, self.state.failure]
        ended = self.state.phase in (EpisodePhase.CLEANING, EpisodePhase.DONE)
        assert sum(each is not None for each in outcomes) == int(ended)

    @invariant()
    def who_is_owed_a_close_is_who_may_be_there(self) -> None:
        assert list(self.state.owed) == self.open

    def end(self) -> None:
        """Wherever it was cut off, cleaning brings it to its end."""
        if self.state.phase is EpisodePhase.ABSENT:
            return
        if self.state.phase not in (EpisodePhase.CLEANING, EpisodePhase.DONE):
            self.tell(Fail(failure=FAILURE, at=self.now))
        for who, _ in reversed(list(self.open)):
            self.tell(NoteClosed(participant=who, at=self.now))
        self.tell(Finish(at=self.now))
        assert self.state.phase is EpisodePhase.DONE


TestEpisodes = Episodes.TestCase
