# SPDX-License-Identifier: Apache-2.0
"""Secrets are found by value, in every spelling, and nothing else is touched."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.ports.provided.secret_values import MASK, SecretsFull, SecretValues

# The mask itself is left out: a secret made of stars shows in its own cover.
SECRETS = st.text(
    st.characters(exclude_characters="*", exclude_categories=["Cs"]), min_size=1
)
TEXTS = st.text(st.characters(exclude_characters="*", exclude_categories=["Cs"]))


def knowing(*values: str) -> SecretValues:
    known = SecretValues()
    for value in values:
        known.add(value)
    return known


@given(st.lists(SECRETS, min_size=1, max_size=4), st.lists(TEXTS, max_size=5))
def test_no_secret_is_in_a_masked_text(secrets: list[str], texts: list[str]) -> None:
    text = "".join(
        piece
        for index, words in enumerate([*texts, ""])
        for piece in (words, secrets[index % len(secrets)])
    )

    masked = knowing(*secrets).masked(text)

    assert MASK in masked
    assert not any(secret in masked for secret in secrets)


@given(SECRETS, TEXTS)
def test_only_what_spells_a_secret_is_covered(secret: str, text: str) -> None:
    masked = knowing(secret).masked(text)

    at = 0
    for piece in masked.split(MASK):
        at = text.index(piece, at) + len(piece)
    assert at <= len(text)
    assert masked == text or len(text) > 0


@given(TEXTS)
def test_without_secrets_every_text_stays_as_it_is(text: str) -> None:
    assert SecretValues().masked(text) == text


@given(SECRETS)
def test_a_secret_is_found_in_the_spellings_that_quoting_gives_it(secret: str) -> None:
    known = knowing(secret)

    for spelling in (
        json.dumps({"k": secret}),
        json.dumps({"k": secret}, ensure_ascii=False),
        repr(secret),
        repr(secret.encode()),
        f"https://host/?key={quote(secret, safe='')}",
        base64.b64encode(secret.encode()).decode(),
    ):
        assert MASK in known.masked(spelling)


def test_overlapping_secrets_are_covered_whole() -> None:
    assert knowing("abc", "bcd", "abcabc").masked("-abcd-abcabcabc-") == "-***-***-"


@pytest.mark.case("FC-240")
def test_harmless_fields_with_telling_names_are_kept() -> None:
    line = '{"max_output_tokens": 16, "api_key_name": "x", "odd": "s3cret-value"}'

    masked = knowing("s3cret-value").masked(line)

    assert masked == line.replace("s3cret-value", MASK)


def test_a_secret_is_watched_until_forgotten_as_often_as_added() -> None:
    known = knowing("token", "token")

    known.forget("token")
    assert known.masked("a token") == "a ***"
    known.forget("token")
    assert known.masked("a token") == "a token"
    known.forget("token")
    assert known.masked("a token") == "a token"


def test_a_secret_is_watched_inside_the_block() -> None:
    known = SecretValues()

    with known.watching("token"):
        assert known.masked("token") == MASK

    assert known.masked("token") == "token"
    assert "token" not in repr(known)


def test_an_empty_secret_covers_nothing() -> None:
    assert knowing("").masked("text") == "text"


def test_a_full_table_is_told() -> None:
    known = SecretValues(values_max=1)
    known.add("one")
    known.add("one")

    with pytest.raises(SecretsFull, match="1 secret values are in use"):
        known.add("two")

    assert known.masked("one two") == "*** two"
