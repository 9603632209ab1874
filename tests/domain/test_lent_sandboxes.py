# SPDX-License-Identifier: Apache-2.0
"""Lent sandboxes: one session uses each, or several that all share it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.domain.agent_sessions import AgentSessionId, SandboxInUse
from livery.domain.deciders import Instant
from livery.domain.lent_sandboxes import (
    DECIDER,
    BeginUse,
    Command,
    EndUse,
    decide,
    evolve,
)

from .deciding import after

AT = Instant(1.0)
A, B, C = AgentSessionId("a"), AgentSessionId("b"), AgentSessionId("c")


def begin(session: AgentSessionId, *, shares: bool = False) -> BeginUse:
    return BeginUse(
        session=session, shares=shares, provider="fake", sandbox="box", at=AT
    )


def test_who_uses_it_goes_on_using_it_and_nobody_else_does() -> None:
    used = after(DECIDER, begin(A))

    assert decide(used, begin(A)) == ()
    with pytest.raises(SandboxInUse) as refused:
        decide(used, begin(B))
    told = refused.value
    assert (told.provider, told.sandbox, told.session) == ("fake", "box", A)


def test_all_have_to_share_it() -> None:
    shared = after(DECIDER, begin(A, shares=True), begin(B, shares=True))

    assert list(shared.users) == [A, B]
    with pytest.raises(SandboxInUse):
        decide(shared, begin(C))
    with pytest.raises(SandboxInUse):
        decide(after(DECIDER, begin(A)), begin(B, shares=True))


def test_who_has_left_is_in_nobody_s_way() -> None:
    left = after(DECIDER, begin(A), EndUse(session=A, at=AT))

    assert decide(left, EndUse(session=A, at=AT)) == ()
    assert list(after(DECIDER, begin(A), EndUse(session=A, at=AT), begin(B)).users) == [
        B
    ]


COMMANDS = st.one_of(
    st.builds(begin, st.sampled_from([A, B, C]), shares=st.booleans()),
    st.builds(EndUse, session=st.sampled_from([A, B, C]), at=st.just(AT)),
)


@given(st.lists(COMMANDS))
def test_of_several_who_use_it_all_share_it(commands: list[Command]) -> None:
    lent = DECIDER.initial
    for command in commands:
        try:
            events = decide(lent, command)
        except SandboxInUse:
            continue
        for event in events:
            lent = evolve(lent, event)
        assert len(lent.users) < 2 or all(lent.users.values())
