# SPDX-License-Identifier: Apache-2.0
"""Request bodies, read strictly: the schemas that OpenAPI shows are the ones checked.

What is wrong is told as NeMo Gym's servers tell it: a list of mistakes, each with a
type, the place, a text and what was found there.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, cast

import attrs

from ...domain.digests import Json
from ...domain.tasks import BadName, EpisodeId
from ...ports.provided.json_texts import no_number, to_number

Schema = Mapping[str, Any]
"""JSON of a shape that JSON Schema defines."""
Place = tuple[str | int, ...]

ID_CHARACTERS_MAX: Final = 512
NUMBER_MAX: Final = 2**31 - 1
ESCAPE: Final = "\\u"
"""How half a character is written: UTF-8 alone has no way to."""

NAME: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": ID_CHARACTERS_MAX,
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$",
}
ID: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": ID_CHARACTERS_MAX,
}
TEXTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}


def object_of(needed: Mapping[str, Schema], **optional: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**needed, **optional},
        "required": list(needed),
        "additionalProperties": False,
    }


EPISODE: Final = object_of(
    {"rollout_id": NAME},
    attempt={"type": "integer", "minimum": 0, "maximum": NUMBER_MAX, "default": 0},
)
TASK: Final = object_of({"taskset": ID, "task_id": ID})
ACCESS: Final = object_of(
    {
        "connection": object_of(
            {
                "provider_config_ref": {"type": "string"},
                "descriptor": {
                    "type": "object",
                    "properties": {"sandbox_id": {"type": "string"}},
                },
            },
            kind={"const": "direct", "default": "direct"},
        ),
        "workdir": {"type": "string", "minLength": 1},
    }
)


@attrs.frozen
class Mistake:
    """One thing that is wrong with a body."""

    type: str
    loc: Place
    msg: str
    input: Json
    ctx: Mapping[str, Json] | None = None

    def told(self) -> dict[str, Json]:
        """Return it as it is written."""
        plain: dict[str, Json] = {
            "type": self.type,
            "loc": ["body", *self.loc],
            "msg": self.msg,
            "input": self.input,
        }
        return plain if self.ctx is None else {**plain, "ctx": self.ctx}


@attrs.frozen
class BodyRefused(Exception):
    """The body is not what the route takes; a border's own, told as status 422."""

    mistakes: tuple[Mistake, ...]


def wrong_value(loc: Place, reason: str, found: Json) -> BodyRefused:
    """Return the refusal of a value that breaks a rule of ours."""
    msg = f"Value error, {reason}"
    return BodyRefused((Mistake("value_error", loc, msg, found, {"error": {}}),))


def read_body(body: bytes, schema: Schema) -> Mapping[str, Json]:
    """Return the object that a body holds.

    Raises:
        BodyRefused: With every mistake.
    """
    if not body:
        raise BodyRefused((Mistake("missing", (), "Field required", None),))
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=no_number, parse_float=to_number)
        if ESCAPE in text:
            # A text that is half a character cannot be written down anywhere.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        told = Mistake(
            "json_invalid", (), "JSON decode error", {}, {"error": _why(error)}
        )
        raise BodyRefused((told,)) from error
    if mistakes := tuple(_mistakes(value, schema, ())):
        raise BodyRefused(mistakes)
    return cast("Mapping[str, Json]", value)


def to_episode(read: Mapping[str, Json]) -> EpisodeId:
    """Return the episode that a body names; raises `BodyRefused`."""
    given = cast("Mapping[str, Json]", read["episode_id"])
    try:
        return EpisodeId(
            cast("str", given["rollout_id"]), int(cast("int", given.get("attempt", 0)))
        )
    except BadName as bad:
        raise wrong_value(("episode_id", bad.field), str(bad), bad.value) from bad


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else "it is nested too deeply"


def _mistakes(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if "anyOf" in schema:
        yield from _any_of(value, schema["anyOf"], at)
    elif "oneOf" in schema:
        yield from _one_of(value, schema, at)
    elif "const" in schema:
        if value != schema["const"]:
            expected = f"'{schema['const']}'"
            msg = f"Input should be {expected}"
            yield Mistake("literal_error", at, msg, value, {"expected": expected})
    elif "type" in schema:
        yield from _TYPES[schema["type"]](value, schema, at)


def _any_of(value: Json, schemas: list[Schema], at: Place) -> Iterator[Mistake]:
    if all(any(_mistakes(value, schema, at)) for schema in schemas):
        yield from _mistakes(value, schemas[0], at)


def _one_of(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    word = schema["discriminator"]["propertyName"]
    if not isinstance(value, Mapping):
        yield _not_an_object(value, at)
        return
    known = {one["properties"][word]["const"]: one for one in schema["oneOf"]}
    tag = value.get(word)
    if tag is None:
        msg = f"Unable to extract tag using discriminator '{word}'"
        found = {"discriminator": f"'{word}'"}
        yield Mistake("union_tag_not_found", at, msg, value, found)
    elif not isinstance(tag, str) or tag not in known:
        expected = ", ".join(f"'{one}'" for one in known)
        msg = (
            f"Input tag '{tag}' found using '{word}' does not match any of the"
            f" expected tags: {expected}"
        )
        ctx = {"discriminator": f"'{word}'", "tag": str(tag), "expected_tags": expected}
        yield Mistake("union_tag_invalid", at, msg, value, ctx)
    else:
        yield from _mistakes(value, known[tag], (*at, tag))


def _an_object(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if not isinstance(value, Mapping):
        yield _not_an_object(value, at)
        return
    known: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield Mistake("missing", (*at, name), "Field required", dict(value))
    others = schema.get("additionalProperties")
    for name, found in value.items():
        if name in known:
            yield from _mistakes(found, known[name], (*at, name))
        elif others is False:
            msg = "Extra inputs are not permitted"
            yield Mistake("extra_forbidden", (*at, name), msg, found)
        elif others is not None:
            yield from _mistakes(found, others, (*at, name))


def _not_an_object(value: Json, at: Place) -> Mistake:
    msg = "Input should be a valid dictionary or object to extract fields from"
    return Mistake("model_attributes_type", at, msg, value)


def _an_array(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if not isinstance(value, list):
        yield Mistake("list_type", at, "Input should be a valid list", value)
        return
    for number, found in enumerate(value):
        yield from _mistakes(found, schema.get("items", {}), (*at, number))


def _a_text(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if not isinstance(value, str):
        yield Mistake("string_type", at, "Input should be a valid string", value)
        return
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    pattern = schema.get("pattern")
    if len(value) < least:
        msg = f"String should have at least {least} character{'s'[: least != 1]}"
        yield Mistake("string_too_short", at, msg, value, {"min_length": least})
    elif most is not None and len(value) > most:
        msg = f"String should have at most {most} characters"
        yield Mistake("string_too_long", at, msg, value, {"max_length": most})
    elif pattern and not _compiled(pattern).search(value):
        msg = f"String should match pattern '{pattern}'"
        yield Mistake("string_pattern_mismatch", at, msg, value, {"pattern": pattern})


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return one of the schemas' patterns; in JSON Schema `$` is the very end."""
    return re.compile(pattern.replace("$", r"\Z"))


def _a_whole_number(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        yield Mistake("int_type", at, "Input should be a valid integer", value)
    elif value < schema["minimum"]:
        msg = f"Input should be greater than or equal to {schema['minimum']}"
        ctx = {"ge": schema["minimum"]}
        yield Mistake("greater_than_equal", at, msg, value, ctx)
    elif value > schema["maximum"]:
        msg = f"Input should be less than or equal to {schema['maximum']}"
        yield Mistake("less_than_equal", at, msg, value, {"le": schema["maximum"]})


def _a_truth(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if not isinstance(value, bool):
        yield Mistake("bool_type", at, "Input should be a valid boolean", value)


def _nothing(value: Json, schema: Schema, at: Place) -> Iterator[Mistake]:
    if value is not None:
        yield Mistake("none_required", at, "Input should be None", value)


_TYPES: Final[Mapping[str, Callable[[Json, Schema, Place], Iterator[Mistake]]]] = {
    "array": _an_array,
    "boolean": _a_truth,
    "integer": _a_whole_number,
    "null": _nothing,
    "object": _an_object,
    "string": _a_text,
}
