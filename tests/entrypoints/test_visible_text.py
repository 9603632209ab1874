# SPDX-License-Identifier: Apache-2.0
"""What others wrote is told to the user, and steers no terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as some

from livery.entrypoints.command_line.shared import Shared, tell
from livery.entrypoints.visible_text import visible, visible_in_one_line
from livery.ports.required.sandbox import SandboxFailed

CLEARING = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b1A\r"


@given(some.text())
def test_what_is_shown_has_no_control_characters(text: str) -> None:
    shown, line = visible(text), visible_in_one_line(text)

    assert not [mark for mark in shown if _controls(mark) and mark not in "\n\t"]
    assert not [mark for mark in line if _controls(mark)]
    assert visible(shown) == shown


@given(some.text(alphabet="abc äß文\n\t\\[]|"))
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_fault_told_with_a_sandbox_s_words_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault = SandboxFailed("docker", "box", "make a folder", f"sh said {CLEARING}!")

    tell(fault, Shared())

    told = capsys.readouterr().err
    assert not set(told) & {*"\x1b\x07\x9b\r"}
    assert r"sh said \x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b1A\r!" in told


def _controls(mark: str) -> bool:
    """Whether it is a control character, or ends a line or a paragraph."""
    return unicodedata.category(mark) in ("Cc", "Zl", "Zp")
