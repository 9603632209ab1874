# SPDX-License-Identifier: Apache-2.0
"""Strict reading of JSON values into frozen classes, every mistake told at once.

Nothing is converted that is of another JSON type: no text into a number, no text
into a list of letters, no number into text. A key that nobody knows is a mistake,
and so is a number that is not finite. Each mistake begins with the field's path.
"""

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeGuard, TypeVar

import attrs
from cattrs import (
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from cattrs.gen import make_dict_structure_fn

T = TypeVar("T")

SHOWN_CHARACTERS_MAX: Final = 40


class Mistaken(ValueError):
    """One value holds these mistakes: the path below it, and what is wrong there."""

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(f"{path}: {text}" for path, text in self.found))


def strict_converter() -> Converter:
    """Return a converter that knows text, numbers, booleans and attrs classes."""
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook(str, lambda value, _: to_text(value))
    converter.register_structure_hook(int, lambda value, _: to_int(value))
    converter.register_structure_hook(float, lambda value, _: to_number(value))
    converter.register_structure_hook(bool, lambda value, _: _to_bool(value))
    converter.register_structure_hook_factory(
        attrs.has, partial(_class_hook, converter)
    )
    return converter


def structured(converter: Converter, value: object, cls: type[T], path: str) -> T:
    """Return `value` as a `cls`.

    Raises:
        Mistaken: With every mistake, each path beginning with `path`.
    """
    try:
        return converter.structure(value, cls)
    except Exception as error:
        # The converter wraps whatever a hook raises; a fault of ours stays one.
        found = list(_mistakes(error, path))
        raise Mistaken(found) from error


def to_text(value: object, expected: str = "text") -> str:
    """Return text that UTF-8 can write."""
    if not isinstance(value, str):
        raise ValueError(wrong(value, expected))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no text") from None
    return value


def to_int(value: object, expected: str = "a whole number") -> int:
    """Return a whole number; 1.0 is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(wrong(value, expected))
    return value


def to_number(value: object, expected: str = "a number") -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(wrong(value, expected))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(wrong(value, f"{expected}, finite"))
    return number


def to_object(value: object, expected: str = "an object") -> Mapping[str, object]:
    """Return a JSON object."""
    if not is_object(value):
        raise ValueError(wrong(value, expected))
    return value


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Tell whether it is a JSON object."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Tell whether it is a JSON list."""
    return isinstance(value, list | tuple)


def wrong(value: object, expected: str) -> str:
    """Return the words for a value of the wrong kind."""
    return f"is {shown(value)}, must be {expected}"


def shown(value: object) -> str:
    """Return a value's JSON text, cut when it is long."""
    if is_object(value):
        return "an object"
    if is_list(value):
        return "a list"
    text = json.dumps(value, ensure_ascii=True, default=repr)
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}… ({len(text)} characters)"


def below(path: str, name: str) -> str:
    """Return the path of a key below a path; odd names are quoted."""
    plain = name.isidentifier() or name.replace("-", "_").isidentifier()
    return f"{path}.{name}" if plain else f"{path}[{json.dumps(name)}]"


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the words for a key that nobody knows."""
    near = difflib.get_close_matches(name, list(known), n=1)
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; known are {', '.join(sorted(known))}"


def _to_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(wrong(value, "true or false"))
    return value


# `Any` as cattrs has it: a hook for a class that is known only when it is called.
def _class_hook(converter: Converter, cls: Any) -> Callable[[Any, Any], Any]:
    structure = make_dict_structure_fn(
        cls,
        converter,
        _cattrs_forbid_extra_keys=True,
        _cattrs_detailed_validation=True,
    )

    def hook(value: Any, wanted: Any) -> Any:
        return structure(dict(to_object(value)), wanted)

    return hook


def _mistakes(error: BaseException, path: str) -> Iterable[tuple[str, str]]:
    match error:
        case Mistaken(found=found):
            for below_path, text in found:
                yield path + below_path, text
        case ClassValidationError():
            noted, others = error.group_exceptions()
            for inner, note in noted:
                yield from _mistakes(inner, below(path, note.name))
            for inner in others:
                yield from _mistakes(inner, path)
        case IterableValidationError():
            elements, others = error.group_exceptions()
            for inner, element in elements:
                yield from _mistakes(inner, f"{path}[{element.index}]")
            for inner in others:
                yield from _mistakes(inner, path)
        case ForbiddenExtraKeysError(cl=cls, extra_fields=names):
            known = [field.name for field in attrs.fields(cls)]
            for name in sorted(names):
                yield below(path, name), unknown(name, known)
        case KeyError():
            yield path, "missing; it must be there"
        case ValueError():
            yield path, str(error)
        case _:
            raise error
