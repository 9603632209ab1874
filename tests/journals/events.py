# SPDX-License-Identifier: Apache-2.0
"""Any event of the domain, for Hypothesis, made from the types of its fields."""

from typing import get_args

from hypothesis import strategies as st

from livery.domain.deciders import Instant
from livery.domain.tasks import EpisodeId, TaskId
from livery.ports.required.journal import Event

CLASSES: tuple[type[Event], ...] = get_args(Event)

# Surrogates too: a sandbox's output may come to us in halves.
texts = st.text(st.characters(exclude_categories=()), max_size=40)
moments = st.floats(allow_nan=False, allow_infinity=False)

# JSON has no other numbers, and the journal is JSON.
st.register_type_strategy(float, moments)
st.register_type_strategy(Instant, moments.map(Instant))
st.register_type_strategy(
    EpisodeId,
    st.builds(
        EpisodeId,
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._]{0,20}", fullmatch=True),
        st.integers(0, 1000),
    ),
)
st.register_type_strategy(
    TaskId, st.builds(TaskId, texts.filter(bool), texts.filter(bool))
)

events = st.sampled_from(CLASSES).flatmap(st.from_type)
