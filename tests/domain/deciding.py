# SPDX-License-Identifier: Apache-2.0
"""A machine that treats any decider as its shells do, and worse.

Writers ask, appends are refused to whoever read an older version, commands come
twice, processes die and read everything again, time passes. What each decider
promises on top of that is told by its own machine: which commands can be asked
(`asked`), and what a fact means for the model beside it (`saw`).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from livery.domain.deciders import Decider, Instant
from livery.domain.refusals import Refusal

START = 1_000_000.0
ENDS_EVERY = 3
STEPS_OF_TIME = (0.0, 0.5, 10.0, 61.0, 400.0)


def outcome(decider: Decider[Any, Any, Any], state: Any, command: Any) -> Any:
    """Return the facts, or the refusal, that `command` leads to."""
    try:
        return decider.decide(state, command)
    except Refusal as refusal:
        return refusal


def after(decider: Decider[Any, Any, Any], *commands: Any, state: Any = None) -> Any:
    """Return the state after commands that are all allowed."""
    start = decider.initial if state is None else state
    return decider.decide_all(start, commands)[1]


class DeciderMachine(RuleBasedStateMachine):
    """One aggregate's stream, its writers, and the clock."""

    decider: ClassVar[Decider[Any, Any, Any]]
    happens_again: ClassVar[tuple[type, ...]] = ()
    """Commands that tell something new each time they come."""
    ends_the_story: ClassVar[tuple[type, ...]] = ()
    """Commands that are kept rarer, so that runs become long enough."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Instant(START)
        self.begin()

    def begin(self) -> None:
        """Start with an empty stream, and the model with it."""
        self.journal: list[Any] = []
        self.state = self.decider.initial
        self.other_writer = (0, self.decider.initial)

    def way(self) -> list[Callable[[], object]]:
        """Return the steps that an undisturbed story takes."""
        return []

    def end(self) -> None:
        """Bring the story to its end, from wherever it stands, and look at it."""

    def asked(self) -> list[Any]:
        """Return the commands that somebody could send now; the model is honest."""
        raise NotImplementedError

    def saw(self, before: Any, event: Any) -> None:
        """Check a fact against the model, and let the model follow."""

    def answered(self, before: Any, command: Any, told: Any) -> None:
        """Check what a command was answered against what stood."""

    def tell(self, command: Any) -> Any:
        """Carry the command out; return the facts or the refusal."""
        told = outcome(self.decider, self.state, command)
        self.answered(self.state, command, told)
        if isinstance(told, Refusal):
            assert str(told), "a refusal has words"
            return told
        self.write(told, expected_version=len(self.journal))
        if self.happens_once(command):
            again = outcome(self.decider, self.state, command)
            assert again == () or isinstance(again, Refusal), (command, again)
        return told

    def happens_once(self, command: Any) -> bool:
        """Whether the same command changes nothing when it comes again at once."""
        return not isinstance(command, self.happens_again)

    def would_happen(self, command: Any) -> bool:
        told = outcome(self.decider, self.state, command)
        return isinstance(told, tuple) and told != ()

    def write(self, events: tuple[Any, ...], *, expected_version: int) -> bool:
        """Append like a journal: False, and nothing, when another was first."""
        if expected_version != len(self.journal):
            return False
        for event in events:
            before = self.state
            self.state = self.decider.evolve(before, event)
            self.journal.append(event)
            self.saw(before, event)
        return True

    def chosen(self, data: st.DataObject, *, only_possible: bool = False) -> Any:
        """Draw what is asked next, with what ends the story kept rare."""
        ends = data.draw(st.integers(1, ENDS_EVERY)) == 1
        commands = [
            command
            for command in self.asked()
            if (ends or not isinstance(command, self.ends_the_story))
            and (not only_possible or self.would_happen(command))
        ]
        return data.draw(st.sampled_from(commands)) if commands else None

    @initialize(steps=st.integers(0, 12))
    def a_story_begins(self, steps: int) -> None:
        for step in self.way()[:steps]:
            step()

    @rule(steps=st.integers(0, 12))
    def another_story_begins(self, steps: int) -> None:
        if self.journal and not any(map(self.would_happen, self.asked())):
            self.end()
            self.begin()
            self.a_story_begins(steps)

    @rule(data=st.data(), times=st.integers(1, 4))
    def something_possible_is_asked(self, data: st.DataObject, times: int) -> None:
        for _ in range(times):
            if command := self.chosen(data, only_possible=True):
                self.tell(command)

    @rule(data=st.data())
    def anything_is_asked(self, data: st.DataObject) -> None:
        if command := self.chosen(data):
            self.tell(command)

    @rule(seconds=st.sampled_from(STEPS_OF_TIME))
    def time_passes(self, seconds: float) -> None:
        self.now = Instant(self.now + seconds)

    @rule(cut=st.integers(min_value=0, max_value=200))
    def the_process_dies_and_reads_again(self, cut: int) -> None:
        prefix, rest = self.journal[:cut], self.journal[cut:]

        read = self.decider.replay(rest, self.decider.replay(prefix))

        assert read == self.state
        self.state = read

    @rule()
    def another_writer_reads(self) -> None:
        self.other_writer = (len(self.journal), self.state)

    @rule(data=st.data())
    def another_writer_writes(self, data: st.DataObject) -> None:
        version, old = self.other_writer
        if (command := self.chosen(data)) is None:
            return
        told = outcome(self.decider, old, command)
        written = isinstance(told, tuple) and self.write(told, expected_version=version)
        assert not written or version == len(self.journal) - len(told)
        if not written:
            self.tell(command)
        self.other_writer = (len(self.journal), self.state)

    def teardown(self) -> None:
        self.end()

    @invariant()
    def the_journal_gives_the_state_back(self) -> None:
        assert self.decider.replay(self.journal) == self.state
