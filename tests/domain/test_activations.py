# SPDX-License-Identifier: Apache-2.0
"""Activations: one start per request, one answer for ever."""

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis.stateful import invariant, rule

from livery.domain.activations import (
    DECIDER,
    Activate,
    ActivationConflict,
    ActivationEnded,
    Activations,
    ActivationStarted,
    ActivationUnknown,
    EndActivation,
    Ending,
    Outcome,
    RunId,
    decide,
)
from livery.domain.deciders import Instant
from livery.domain.digests import RequestDigest

from .deciding import START, DeciderMachine, after

NOW = Instant(START)
HELLO = RequestDigest("hello")
ACTIVATE = Activate(request=HELLO, run=RunId("run-1"), at=NOW)
DONE = Ending(outcome=Outcome.COMPLETED, reply="done")


def test_the_first_request_stands_and_is_answered_again() -> None:
    started = after(DECIDER, ACTIVATE)
    ended = after(
        DECIDER, EndActivation(request=HELLO, ending=DONE, at=NOW), state=started
    )

    assert started.under_way == started.of(HELLO)
    assert ended.under_way is None
    assert decide(ended, ACTIVATE) == ()
    assert ended.of(HELLO).ending == DONE


def test_an_activation_that_was_not_started_has_no_ending() -> None:
    with pytest.raises(ActivationUnknown):
        decide(DECIDER.initial, EndActivation(request=HELLO, ending=DONE, at=NOW))


@pytest.mark.parametrize("stepwise", [False, True])
def test_two_requests_at_once_are_a_conflict(stepwise: bool) -> None:
    running = after(DECIDER, ACTIVATE, state=Activations(stepwise=stepwise))

    with pytest.raises(ActivationConflict) as caught:
        decide(running, attrs.evolve(ACTIVATE, request=RequestDigest("bye")))

    assert (caught.value.standing, caught.value.refused) == ("hello", "bye")


class SharedActivations(DeciderMachine):
    """Several workers that all want to run the same requests."""

    def begin(self) -> None:
        super().begin()
        self.number = 0
        self.starts: Counter[RequestDigest] = Counter()
        self.endings: dict[RequestDigest, Ending] = {}

    def asked(self) -> list[Any]:
        self.number += 1
        commands: list[Any] = []
        for request in map(RequestDigest, ("hello", "bye", "again")):
            ending = Ending(outcome=Outcome.FAILED, reply=f"reply {self.number}")
            run = RunId(f"run {self.number}")
            commands += [
                Activate(request=request, run=run, at=self.now),
                EndActivation(request=request, ending=ending, at=self.now),
            ]
        return commands

    def saw(self, before: Activations, event: Any) -> None:
        match event:
            case ActivationStarted(request=request):
                assert before.under_way is None
                assert before.stepwise or not before.standing
                self.starts[request] += 1
            case ActivationEnded(request=request, ending=ending):
                assert self.starts[request] == 1
                assert request not in self.endings
                self.endings[request] = ending

    @rule()
    def who_asks_is_told_what_stands(self) -> None:
        for request, ending in self.endings.items():
            assert self.state.of(request).ending == ending

    @invariant()
    def each_request_starts_at_most_once(self) -> None:
        assert all(count == 1 for count in self.starts.values())
        assert [a.request for a in self.state.standing] == list(self.starts)


class OneShotActivations(SharedActivations):
    decider = DECIDER


class StepwiseActivations(SharedActivations):
    decider = attrs.evolve(DECIDER, initial=Activations(stepwise=True))


TestOneShotActivations = OneShotActivations.TestCase
TestStepwiseActivations = StepwiseActivations.TestCase
