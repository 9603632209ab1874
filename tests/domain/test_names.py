# SPDX-License-Identifier: Apache-2.0
"""Names: legal everywhere, the same each time, and another for another id."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from livery.domain.names import (
    LABEL_VALUE,
    NAME_CHARACTERS_MAX,
    to_label_value,
    to_name,
)

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
DOCKER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
KUBERNETES_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

ANY_TEXT = st.one_of(
    st.text(),
    st.text(st.characters()),
    st.text("aA0-._/", max_size=80),
    st.from_regex(r"[a-z][a-z0-9-]{0,70}-[0-9a-f]{12}", fullmatch=True),
)
PREFIXES = st.sampled_from(["livery", "x", "9", "Livery Run", "-", "a" * 70])


@pytest.mark.case("FC-075")
@pytest.mark.case("FC-076")
@given(prefix=PREFIXES, identity=ANY_TEXT)
@example(prefix="livery", identity="9abc")
@example(prefix="livery", identity="a.b")
@example(prefix="livery", identity="UPPER")
@example(prefix="livery", identity="x")
@example(prefix="livery", identity="s" * 70)
@example(prefix="livery", identity="")
@example(prefix="livery", identity="\ud800")
def test_a_name_is_legal_for_every_provider(prefix: str, identity: str) -> None:
    name = to_name(prefix, identity)

    assert DNS_LABEL.fullmatch(name)
    assert DOCKER_NAME.fullmatch(name)
    assert name[0].isalpha()
    assert len(name) <= NAME_CHARACTERS_MAX
    assert to_name(prefix, identity) == name


@pytest.mark.case("FC-075")
@pytest.mark.case("FC-076")
@given(prefix=PREFIXES, one=ANY_TEXT, other=ANY_TEXT)
@example(prefix="livery", one="A", other="a")
@example(prefix="livery", one="a.b", other="a-b")
@example(prefix="livery", one="s" * 70, other="s" * 71)
def test_two_ids_never_share_a_name(prefix: str, one: str, other: str) -> None:
    same_name = to_name(prefix, one) == to_name(prefix, other)
    assert same_name is (one == other)


@given(identity=ANY_TEXT)
def test_a_name_that_was_made_is_no_other_ids_plain_name(identity: str) -> None:
    name = to_name("livery", identity)
    plain = name.removeprefix("livery-")

    assert plain == identity or to_name("livery", plain) != name


@pytest.mark.case("FC-075")
@given(identity=st.from_regex(r"[a-z][a-z0-9-]{0,20}[g-z]", fullmatch=True))
def test_a_legal_id_is_read_in_its_name(identity: str) -> None:
    assert to_name("livery", identity) == f"livery-{identity}"


@pytest.mark.case("FC-077")
@given(text=ANY_TEXT)
@example(text="/home/me/runs")
@example(text="two words")
@example(text="o" * 200)
@example(text="-._")
def test_a_label_value_is_legal_and_the_same_each_time(text: str) -> None:
    value = to_label_value(text)

    assert KUBERNETES_LABEL.fullmatch(value)
    assert LABEL_VALUE.fullmatch(value)
    assert len(value) <= 63
    assert to_label_value(text) == value


@pytest.mark.case("FC-077")
@given(one=ANY_TEXT, other=ANY_TEXT)
@example(one="a b", other="a/b")
@example(one="o" * 200, other="o" * 201)
def test_two_texts_never_share_a_label_value(one: str, other: str) -> None:
    assert (to_label_value(one) == to_label_value(other)) is (one == other)


@pytest.mark.case("FC-077")
@given(text=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}[G-Zg-z]", fullmatch=True))
def test_a_legal_label_value_stays_as_it_is(text: str) -> None:
    assert to_label_value(text) == text
