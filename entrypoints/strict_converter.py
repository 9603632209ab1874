# SPDX-License-Identifier: Apache-2.0
"""The strict converter of settings: from what TOML reads to attrs classes.

Nothing is converted on the way: text is no number, a number no text, text no list
of letters. Every mistake is collected with the path of its field, and a key that
nobody knows is told with the nearest one that somebody does.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import attrs
import cattrs

from .secret_references import Secret
from .setting_words import NONE_WORD, Length, NonEmpty, Range, Shape

SHOWN_CHARACTERS_MAX = 60

K = TypeVar("K", str, int)
KeyPath = tuple[str | int, ...]
Form = Any
"""A type as it is written in a class (`tuple[str, ...]`), for which typing has no
name."""


TABLES: tuple[object, ...] = (dict, Mapping)
UNIONS: tuple[object, ...] = (Union, UnionType)


@attrs.frozen(kw_only=True)
class Mistake:
    """One thing that is wrong, and where."""

    told: str
    path: KeyPath = ()
    unset: bool = False
    """Whether the text is right, and the environment lacks what it refers to."""


@attrs.frozen
class Refused(Exception):
    """What was read does not fit; all that is wrong with it."""

    mistakes: tuple[Mistake, ...]

    def under(self, *path: str | int) -> "Refused":
        """Return the same for what stands under `path`."""
        return Refused(
            tuple(attrs.evolve(one, path=(*path, *one.path)) for one in self.mistakes)
        )


def wants(wanted: str, found: object) -> Refused:
    """Return the refusal of one value."""
    return Refused((Mistake(told=f"wants {wanted}, found {shown(found)}"),))


def shown(value: object) -> str:
    """Return a value as a message shows it, shortened."""
    match value:
        case bool():
            text = str(value).lower()
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            text = repr(value)
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:SHOWN_CHARACTERS_MAX]}… ({len(text)} characters)"


def converter(environ: Mapping[str, str]) -> cattrs.Converter:
    """Return the converter; its `structure` raises `Refused`.

    References into the environment are looked at in `environ`, not read.
    """
    made = cattrs.Converter()
    hooks: list[tuple[Callable[[Form], bool], Callable[[Any, Form], object]]] = [
        (lambda t: t is object, lambda value, _: value),
        (lambda t: isinstance(t, type) and issubclass(t, Enum), _word_of_enum),
        (lambda t: _origin(t) is Literal, _word),
        (lambda t: t is Secret, lambda value, _: _secret(value, environ)),
        (attrs_class, lambda value, t: _fields(made, value, t)),
        (lambda t: _origin(t) is tuple, lambda value, t: _list(made, value, t)),
        (
            lambda t: _origin(t) in TABLES,
            lambda value, t: _table(made, value, t),
        ),
        (
            lambda t: _origin(t) is Annotated,
            lambda value, t: _bounded(made, value, t),
        ),
        (nullable, lambda value, t: _or_none(made, value, t)),
    ]
    for kind in _PLAIN:
        made.register_structure_hook(kind, _plain)
    for predicate, hook in hooks:
        made.register_structure_hook_func(predicate, hook)
    return made


def attrs_class(form: Form) -> bool:
    """Return whether `form` is a class whose fields are keys."""
    return isinstance(form, type) and attrs.has(form) and form is not Secret


def nullable(form: Form) -> bool:
    """Return whether `form` is something or None."""
    arguments = get_args(form)
    return _origin(form) in UNIONS and NoneType in arguments and len(arguments) == 2


def _origin(form: Form) -> object:
    return get_origin(form)


def without_none(form: Form) -> Form:
    """Return what a nullable form is when it is there."""
    (inner,) = (one for one in get_args(form) if one is not NoneType)
    return inner


_PLAIN: dict[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}


def _plain(value: object, kind: type) -> object:
    if issubclass(kind, Enum):  # One of words, which are text as well.
        return _word_of_enum(value, kind)
    kinds, words = _PLAIN[kind]
    # Python's True is an int; a file's true is no number.
    if not isinstance(value, kinds) or (kind is not bool and isinstance(value, bool)):
        raise wants(words, value)
    return float(value) if kind is float and isinstance(value, int) else value


def _word_of_enum(value: object, kind: type[Enum]) -> object:
    words = {one.value: one for one in kind}
    if not isinstance(value, str) or value not in words:
        raise wants(_choices([*words]), value)
    return words[value]


def _word(value: object, form: Form) -> object:
    if value not in get_args(form) or not isinstance(value, str):
        raise wants(_choices(get_args(form)), value)
    return value


def _choices(words: object) -> str:
    return " or ".join(f'"{word}"' for word in cast("list[str]", words))


def _secret(value: object, environ: Mapping[str, str]) -> Secret:
    reference = '{env = "NAME"} or {file = "PATH"}'
    if not isinstance(value, dict):
        # What stands there may be the secret itself, so it is not shown.
        told = f"wants a reference, {reference}; a secret does not stand in a file"
        raise Refused((Mistake(told=told),))
    table = cast("dict[str, object]", value)
    (key, place), *more = [*table.items()] or [("", "")]
    if more or key not in ("env", "file") or not (isinstance(place, str) and place):
        raise Refused((Mistake(told=f"wants {reference}, one of the two"),))
    found = Secret(env=place) if key == "env" else Secret(file=place)
    if reason := found.missing(environ):
        raise Refused((Mistake(told=reason, unset=True),))
    return found


def _bounded(made: cattrs.Converter, value: object, form: Form) -> object:
    inner, *bounds = get_args(form)
    found = made.structure(value, inner)
    for bound in bounds:
        if isinstance(bound, Range) and (wanted := bound.mistake(found)):
            raise wants(wanted, value)
        if isinstance(bound, NonEmpty) and not found:
            raise wants("text that is not empty", value)
        if isinstance(bound, Length) and len(found) < bound.least:
            raise wants(f"a list of at least {bound.least}", value)
        if isinstance(bound, Shape) and not re.fullmatch(bound.pattern, found):
            if bound.may_hold_secret:
                raise Refused((Mistake(told=f"wants {bound.told}"),))
            raise wants(bound.told, value)
    return found


def _or_none(made: cattrs.Converter, value: object, form: Form) -> object:
    if value == NONE_WORD:
        return None
    try:
        return made.structure(value, without_none(form))
    except Refused as refused:
        hint = f' (or "{NONE_WORD}")'
        raise Refused(
            tuple(
                one if one.unset else attrs.evolve(one, told=one.told + hint)
                for one in refused.mistakes
            )
        ) from None


def _list(made: cattrs.Converter, value: object, form: Form) -> object:
    if not isinstance(value, list):
        raise wants("a list", value)
    inner = get_args(form)[0]
    items = enumerate(cast("list[object]", value))
    return tuple(_each(made, {i: (one, inner) for i, one in items}).values())


def _table(made: cattrs.Converter, value: object, form: Form) -> object:
    if not isinstance(value, dict):
        raise wants("a table", value)
    _, inner = get_args(form)
    table = cast("dict[str, object]", value)
    return _each(made, {key: (one, inner) for key, one in table.items()})


def _fields(
    made: cattrs.Converter, value: object, kind: type[attrs.AttrsInstance]
) -> object:
    if not isinstance(value, dict):
        raise wants("a table", value)
    table = cast("dict[str, object]", value)
    known = {field.name: field for field in attrs.fields(kind)}
    mistakes = [
        Mistake(path=(key,), told=_unknown(key, list(known)))
        for key in table
        if key not in known
    ]
    mistakes += [
        Mistake(path=(name,), told="is needed and missing")
        for name, field in known.items()
        if field.default is attrs.NOTHING and name not in table
    ]
    given = {key: (one, known[key].type) for key, one in table.items() if key in known}
    try:
        found = _each(made, given)
    except Refused as refused:
        raise Refused((*mistakes, *refused.mistakes)) from None
    if mistakes:
        raise Refused(tuple(mistakes))
    try:
        return cast("Callable[..., object]", kind)(**found)
    except ValueError as error:
        raise Refused((Mistake(told=str(error)),)) from error


def _each(
    made: cattrs.Converter, items: Mapping[K, tuple[object, Form]]
) -> dict[K, object]:
    """Convert them all, and tell the mistakes of all."""
    found: dict[K, object] = {}
    mistakes: list[Mistake] = []
    for key, (value, form) in items.items():
        try:
            found[key] = made.structure(value, form)
        except Refused as refused:
            mistakes += refused.under(key).mistakes
    if mistakes:
        raise Refused(tuple(mistakes))
    return found


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
    return f"is unknown{hint if known else ''}"
