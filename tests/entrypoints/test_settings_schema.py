# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema that ships says what the reader does."""

import json
import tomllib
from typing import Annotated, Literal

import attrs
import jsonschema
import pytest

from livery.entrypoints.secret_references import Secret
from livery.entrypoints.setting_words import Range
from livery.entrypoints.settings import Settings
from livery.entrypoints.settings_reading import structured
from livery.entrypoints.settings_schema import (
    schema_of,
    settings_schema,
    shipped_schema,
    written_schema,
)
from livery.entrypoints.strict_converter import Refused


def accepted(content: object) -> bool:
    return jsonschema.Draft202012Validator(settings_schema()).is_valid(content)


def test_the_shipped_schema_is_the_one_that_the_classes_give() -> None:
    assert shipped_schema() == written_schema()
    jsonschema.Draft202012Validator.check_schema(json.loads(shipped_schema()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[run]\nlimit = "none"\nrepeats = 3',
        '[sandbox.x]\ncpus = 0.5\nmounts = [{source = "/a", target = "/b"}]',
        '[harness.x]\noptions = {a = {b = 1}}\n[log]\nlevel = "debug"',
        "[run]\nconcurency = 1",
        "[run]\nrepeats = 0",
        '[sandbox.x]\nimage = ""',
        '[sandbox.x]\nmounts = [{source = "/a"}]',
        "[sandbox.x]\nlifetime_seconds = 0",
        '[log]\nlevel = "loud"',
        "[harness.x]\noptions = 1",
        "[run]\nrepeats = 1e400",
    ],
)
def test_the_schema_and_the_reader_agree(text: str) -> None:
    content = tomllib.loads(text)
    try:
        structured(Settings, content)
        read = True
    except Refused:
        read = False

    assert accepted(content) == read


@attrs.frozen(kw_only=True)
class _Options:
    """Forms that only options have."""

    token: Secret
    kind: Literal["a", "b"] = "a"
    many: tuple[Annotated[int, Range(least=1)], ...] = ()


def test_a_secret_in_the_schema_is_a_reference() -> None:
    validator = jsonschema.Draft202012Validator(schema_of(_Options))

    assert validator.is_valid({"token": {"env": "A"}, "kind": "b", "many": [1]})
    assert not validator.is_valid({"token": "sk-secret"})
    assert not validator.is_valid({"token": {"env": "A", "file": "B"}})
    assert not validator.is_valid({"token": {"env": "A"}, "many": [0]})
