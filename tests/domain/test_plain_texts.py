# SPDX-License-Identifier: Apache-2.0
"""What is no text is found, wherever it stands, and what is one is left alone."""

from hypothesis import given
from hypothesis import strategies as st

from livery.domain.plain_texts import is_plain_text, no_texts

BAD = ("a\0b", "\ud800", "\udcff", "x\udfff")
TEXTS = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_what_utf_8_writes_is_a_text(text: str) -> None:
    assert is_plain_text(text)


def test_what_is_no_text_is_told_by_its_place() -> None:
    for bad in BAD:
        value = {"env": {"A": bad, "B": "b"}, "argv": ("run", bad), "user": bad}

        assert list(no_texts(value, "")) == ["env.A", "argv[1]", "user"]
        assert next(iter(no_texts(value, "spec"))) == "spec.env.A"


@given(VALUES)
def test_a_place_can_be_shown(value: object) -> None:
    for name in BAD:
        (place,) = no_texts({name: 1}, "env")
        place.encode()
    for place in no_texts({"a": value}, ""):
        place.encode()
