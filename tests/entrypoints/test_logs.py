# SPDX-License-Identifier: Apache-2.0
"""Log lines carry ids, hide secrets and cannot be forged."""

import contextlib
import io
import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.entrypoints.logs import (
    TEXT_CHARACTERS_MAX,
    Layout,
    Level,
    LineHandler,
    logging_to,
)
from livery.ports.provided.log_context import known_as, logged_as
from livery.ports.provided.secret_values import MASK, SecretValues

LOG = logging.getLogger("livery.tests")
CANARY = "c4nary-s3cret/value+1"
TEXTS = st.text(st.characters(exclude_characters="*", exclude_categories=["Cs"]))
LAYOUTS = pytest.mark.parametrize("layout", Layout)


class Written:
    """What is logged inside the block, with the canary for a secret."""

    def __init__(self, layout: Layout, level: Level = Level.DEBUG) -> None:
        self.secrets = SecretValues()
        self.secrets.add(CANARY)
        self.stream = io.StringIO()
        self._block = logging_to(
            self.stream, level=level, layout=layout, secrets=self.secrets
        )

    def __enter__(self) -> "Written":
        self._block.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._block.__exit__(None, None, None)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def line(self) -> dict[str, object]:
        (line,) = self.text.splitlines()
        found: dict[str, object] = json.loads(line)
        return found


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def ours() -> LineHandler:
    """The handler alone: pytest's own raises at a line that does not fit."""
    root = logging.getLogger()
    (handler,) = (one for one in root.handlers if isinstance(one, LineHandler))
    return handler


def fail_with(secret: str) -> None:
    try:
        raise KeyError(secret)
    except KeyError as cause:
        failure = RuntimeError(f"the key {secret} is refused")
        failure.add_note(f"sent was {secret}")
        raise failure from cause


def test_a_json_line_has_its_ids_and_fields() -> None:
    with Written(Layout.JSON) as written, logged_as(episode="r1/1", session="s1"):
        LOG.info("put %s", "a file", extra={"size": 3, "claim": "c9", "none": None})

    line = written.line
    assert line["time"].endswith("Z")  # type: ignore[attr-defined]
    assert line["level"] == "info"
    assert line["logger"] == "livery.tests"
    assert line["message"] == "put a file"
    assert (line["episode"], line["session"], line["claim"]) == ("r1/1", "s1", "c9")
    assert line["fields"] == {"size": 3, "none": None}


def test_what_is_found_out_on_the_way_is_carried_until_the_block_around_ends() -> None:
    with Written(Layout.TEXT) as written:
        with logged_as(claim="c1"):
            known_as(session="s1")
            LOG.warning("inside")
        LOG.warning("outside")

    inside, outside = written.text.splitlines()
    assert inside.endswith(": inside session=s1 claim=c1")
    assert outside.endswith(": outside")


def test_a_text_line_has_its_ids_and_fields() -> None:
    with Written(Layout.TEXT) as written, logged_as(claim="c1"):
        LOG.warning("put %s", "a file", extra={"size": 3, "names": ["ä"]})

    assert written.text.endswith(
        ' WARNING livery.tests: put a file claim=c1 size=3 names=["ä"]\n'
    )


def test_a_line_without_ids_names_none() -> None:
    with Written(Layout.JSON) as written:
        LOG.info("alone")

    assert not {"episode", "session", "claim"} & set(written.line)


@LAYOUTS
@pytest.mark.case("FC-239")
@pytest.mark.case("FC-240")
def test_a_secret_is_hidden_wherever_it_stands(layout: Layout) -> None:
    fields = {
        "odd": {"max_output_tokens": 16, CANARY: [CANARY, (CANARY,), {"k": CANARY}]},
        "header": f"Bearer {CANARY}".encode(),
        "number": 12345678,
    }
    with Written(layout) as written:
        written.secrets.add("12345678")
        try:
            fail_with(CANARY)
        except RuntimeError:
            LOG.exception(f"ran {CANARY} with %r", [CANARY], extra=fields)
        LOG.error("stack", stack_info=True, extra={"claim": CANARY})

    assert "c4nary" not in written.text
    assert "12345678" not in written.text
    assert "max_output_tokens" in written.text
    assert "sent was ***" in written.text
    assert fields["header"] == f"Bearer {CANARY}".encode()


@LAYOUTS
@given(text=TEXTS, secret=TEXTS.filter(bool), again=st.booleans())
def test_no_text_brings_a_secret_through(
    layout: Layout, text: str, secret: str, again: bool
) -> None:
    with Written(layout) as written:
        written.secrets.add(secret)
        LOG.info("%s", text + secret + text * again, extra={"field": text + secret})

    shown = json.loads(written.text)["message"] if layout is Layout.JSON else ""
    assert secret not in shown
    assert MASK in written.text


@LAYOUTS
@given(text=TEXTS)
def test_a_message_cannot_forge_a_line(layout: Layout, text: str) -> None:
    with Written(layout) as written:
        LOG.info("%s", text)

    first, *rest = written.text.removesuffix("\n").split("\n")
    assert "livery.tests" in first
    assert all(line.startswith("    ") for line in rest)


def test_control_characters_are_spelled_out() -> None:
    with Written(Layout.TEXT) as written:
        LOG.info("\x1b[31mred\r\nforged\u2028")

    assert written.text.endswith(": \\x1b[31mred\\r\n    forged\\u2028\n")


def test_a_json_line_is_json_whatever_the_fields() -> None:
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    with Written(Layout.JSON) as written:
        LOG.info("m", extra={"nan": math.nan, "odd": Odd(), "deep": deep})

    fields = written.line["fields"]
    assert isinstance(fields, dict)
    assert fields["nan"] == "nan"
    assert fields["odd"] == "(Odd that cannot be shown: RuntimeError)"


@LAYOUTS
def test_a_long_text_is_cut_and_says_so(layout: Layout) -> None:
    with Written(layout) as written:
        LOG.info("x" * (TEXT_CHARACTERS_MAX + 7))

    assert "[... 7 characters dropped]" in written.text
    assert len(written.text) < TEXT_CHARACTERS_MAX + 1000


@LAYOUTS
def test_a_line_whose_arguments_do_not_fit_is_still_written(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    with Written(layout) as written:
        record = LOG.makeRecord(
            LOG.name, logging.INFO, "f", 1, "%d of %s", (CANARY, Odd()), None
        )
        ours().handle(record)

    assert "its arguments do not fit" in written.text
    assert CANARY not in written.text + "".join(capsys.readouterr())


def test_levels_choose_our_lines_and_libraries_speak_from_warning_on() -> None:
    library = logging.getLogger("httpx")
    with Written(Layout.TEXT, Level.INFO) as written:
        LOG.debug("ours, too fine")
        LOG.info("ours")
        library.info("GET a URL")
        library.warning("theirs")

    assert [line.split(": ")[-1] for line in written.text.splitlines()] == [
        "ours",
        "theirs",
    ]


def test_the_block_leaves_logging_as_it_was() -> None:
    root, ours = logging.getLogger(), logging.getLogger("livery")
    before = list(root.handlers), root.level, ours.level

    with Written(Layout.TEXT):
        assert len(root.handlers) == len(before[0]) + 1

    assert (root.handlers, root.level, ours.level) == before


def test_a_line_that_cannot_be_written_is_told_without_its_content(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Written(Layout.TEXT) as written:
        written.stream.close()
        LOG.info("about %s", CANARY)

    assert capsys.readouterr().err == (
        "livery: a log line could not be written (ValueError)\n"
    )


def test_a_lost_line_with_nowhere_to_tell_it_breaks_nothing() -> None:
    closed = io.StringIO()
    closed.close()

    with contextlib.redirect_stderr(closed):
        LineHandler(closed).handle(logging.makeLogRecord({"msg": "m"}))
