# SPDX-License-Identifier: Apache-2.0
"""Digests: the same content has the same digest, however it was written."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from livery.domain.digests import NotJson, canonical, digest_of

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters()),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def rebuilt(value: Any, scalar: Callable[[Any], Any], reverse: bool) -> Any:
    """Copy a JSON value with other scalars and, if asked, keys in reverse order."""
    if isinstance(value, dict):
        items = [(key, rebuilt(each, scalar, reverse)) for key, each in value.items()]
        return dict(reversed(items) if reverse else items)
    if isinstance(value, list):
        return [rebuilt(each, scalar, reverse) for each in value]
    return scalar(value)


def as_float(value: Any) -> Any:
    """Write a whole number as 1.0, where that is the same number."""
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    return value


@given(value=JSON)
def test_the_order_of_keys_does_not_count(value: Any) -> None:
    assert digest_of(rebuilt(value, lambda each: each, True)) == digest_of(value)


@given(value=JSON, indent=st.sampled_from([None, 0, 4]))
def test_spacing_and_escapes_do_not_count(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)

    assert digest_of(json.loads(text)) == digest_of(value)


@given(value=JSON)
@example(value=[1, {"a": 0, "b": [10**15]}])
@example(value=[-0.0, 1e22])
def test_the_way_a_whole_number_is_written_does_not_count(value: Any) -> None:
    assert digest_of(rebuilt(value, as_float, False)) == digest_of(value)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; true is not 1, but 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.case("FC-110")
@given(one=JSON, other=JSON)
@example(one=True, other=1)
@example(one=1, other="1")
@example(one=None, other=[])
@example(one={"a": None}, other={})
@example(one=[[1], 2], other=[[1, 2]])
@example(one=0.1, other=0.1 + 2**-55)
@example(one=2**53 + 1, other=2**53)
def test_any_difference_of_content_counts(one: Any, other: Any) -> None:
    assert (digest_of(one) == digest_of(other)) is same(one, other)


@given(value=JSON)
def test_the_canonical_text_is_json_and_its_own_canonical_text(value: Any) -> None:
    text = canonical(value)

    assert canonical(json.loads(text)) == text


@pytest.mark.parametrize(
    "found", [math.nan, math.inf, -math.inf, b"x", {1, 2}, object()]
)
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: [x], lambda x: {"a": {"b": x}}]
)
def test_what_json_cannot_write_is_refused(
    found: Any, wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(NotJson):
        digest_of(wrap(found))


def test_what_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 0.5
    for _ in range(100_000):
        deep = [deep]

    for value in (endless, deep):
        with pytest.raises(NotJson):
            canonical(value)


def test_the_digest_is_what_others_compute_from_the_same_text() -> None:
    # printf '{"a":[1,2.5,null],"b":"ä"}' | sha256sum
    expected = "5cb9bf35b739cfc1603b2a3d4d2dc77c93225e98e216aafb6301c0ba3c12675e"

    assert digest_of({"b": "ä", "a": [1.0, 2.5, None]}) == expected
