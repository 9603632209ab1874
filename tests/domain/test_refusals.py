# SPDX-License-Identifier: Apache-2.0
"""The text over a refusal's fields ends its sentences once."""

import attrs
import pytest

from livery.domain.refusals import told


@attrs.frozen
class Fact:
    reason: str
    count: int = 3


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("the door is shut", "No: the door is shut. 3."),
        ("The door is shut.", "No: The door is shut. 3."),
        ("and so on...", "No: and so on.... 3."),
        ("", "No: . 3."),
    ],
)
def test_a_field_that_is_a_sentence_does_not_end_one_twice(
    reason: str, text: str
) -> None:
    assert told("No: {reason}. {count}.", Fact(reason)) == text
