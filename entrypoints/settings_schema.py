# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of `livery.toml`, made from the classes that the reader uses.

The file `livery.schema.json` beside this module is what it makes, for editors; a
test compares the two.
"""

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import attrs

from .secret_references import Secret
from .setting_words import NONE_WORD, Length, NonEmpty, Range, Shape
from .settings import Settings
from .strict_converter import Form, attrs_class, nullable, without_none

SCHEMA_FILE: Final = "livery.schema.json"

Schema = dict[str, Any]
"""JSON of a shape that JSON Schema defines."""


def settings_schema() -> Schema:
    """Return the schema of the whole file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "livery.toml",
        **schema_of(Settings),
    }


def written_schema() -> str:
    """Return the schema as the file has it."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


def shipped_schema() -> str:
    """Return the file that ships."""
    return Path(__file__).with_name(SCHEMA_FILE).read_text(encoding="utf-8")


def schema_of(form: Form) -> Schema:
    """Return the schema of one type."""
    if attrs_class(form):
        return _table(form)
    if nullable(form):
        inner = schema_of(without_none(form))
        return {"anyOf": [inner, {"const": NONE_WORD}]}
    if isinstance(form, type) and issubclass(form, Enum):
        return {"enum": [one.value for one in form]}
    if form is Secret:
        return _secret()
    origin: object = get_origin(form)
    if origin is Annotated:
        inner, *bounds = get_args(form)
        return schema_of(inner) | _bounds(bounds)
    if origin is Literal:
        return {"enum": list(get_args(form))}
    if origin is tuple:
        return {"type": "array", "items": schema_of(get_args(form)[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(get_args(form)[1])}
    return dict(_PLAIN[form])


_PLAIN: Final[dict[type, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    object: {},
}


def _table(kind: type[attrs.AttrsInstance]) -> Schema:
    fields = attrs.fields(kind)
    schema: Schema = {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "properties": {field.name: _field(field) for field in fields},
        "additionalProperties": False,
    }
    if needed := [field.name for field in fields if field.default is attrs.NOTHING]:
        schema["required"] = needed
    return schema


def _field(field: "attrs.Attribute[Any]") -> Schema:
    schema = schema_of(field.type)
    if text := field.metadata.get("doc"):
        schema["description"] = text
    if isinstance(field.default, str | int | float | Enum):
        schema["default"] = (
            field.default.value if isinstance(field.default, Enum) else field.default
        )
    elif field.default is None:
        schema["default"] = NONE_WORD
    return schema


def _bounds(bounds: list[object]) -> Schema:
    schema: Schema = {}
    for bound in bounds:
        if isinstance(bound, NonEmpty):
            schema["minLength"] = 1
        elif isinstance(bound, Length):
            schema["minItems"] = bound.least
        elif isinstance(bound, Shape):
            schema["pattern"] = f"^({bound.pattern})$"
        elif isinstance(bound, Range):
            words = {
                "exclusiveMinimum": bound.above,
                "minimum": bound.least,
                "maximum": bound.most,
            }
            schema |= {
                word: value for word, value in words.items() if value is not None
            }
    return schema


def _secret() -> Schema:
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {word: {"type": "string", "minLength": 1}},
                "required": [word],
                "additionalProperties": False,
            }
            for word in ("env", "file")
        ]
    }
