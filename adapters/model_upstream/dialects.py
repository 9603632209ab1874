# SPDX-License-Identifier: Apache-2.0
"""The dialects in which models are spoken to: their paths, requests and errors.

A request is looked at as little as is needed to record it and to refuse what no
upstream could read; what goes on is the caller's own bytes.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, cast

import attrs

Json = Mapping[str, object]

THREAD_HEX: Final = 12
MODEL_CHARACTERS_MAX: Final = 200


class Dialect(StrEnum):
    """Who defined the requests."""

    ANTHROPIC = "anthropic messages"
    RESPONSES = "openai responses"
    CHAT = "openai chat completions"

    @property
    def keep_alive(self) -> bytes:
        """An event that says nothing, for between two events of a stream."""
        if self is Dialect.ANTHROPIC:
            return b'event: ping\ndata: {"type": "ping"}\n\n'
        return b": keep-alive\n\n"


_PATHS: Final = (
    ("POST", re.compile(rb"/v1/messages"), Dialect.ANTHROPIC),
    ("POST", re.compile(rb"/v1/messages/count_tokens"), Dialect.ANTHROPIC),
    ("POST", re.compile(rb"/v1/responses"), Dialect.RESPONSES),
    ("POST", re.compile(rb"/v1/responses/[^/]+/cancel"), Dialect.RESPONSES),
    ("GET", re.compile(rb"/v1/responses/[^/]+"), Dialect.RESPONSES),
    ("DELETE", re.compile(rb"/v1/responses/[^/]+"), Dialect.RESPONSES),
    ("POST", re.compile(rb"/v1/chat/completions"), Dialect.CHAT),
)
"""All that is passed on; a path is held against them as it was sent, unquoted not."""

_WHOLE: Final = {
    b"/v1/messages": "messages",
    b"/v1/messages/count_tokens": "messages",
    b"/v1/chat/completions": "messages",
    b"/v1/responses": "input",
}
"""The paths whose bodies begin a generation, and where their conversation is."""


@attrs.frozen
class Malformed(Exception):
    """No upstream could read the request."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Asked:
    """What a request says of itself."""

    model: str = ""
    is_streamed: bool = False
    thread: str = ""
    """The conversation, known by its model and how it begins."""
    tools: frozenset[str] = frozenset()
    counts_only: bool = False
    """Whether it generates nothing."""


def dialect_of(method: str, path: bytes) -> Dialect | None:
    """Return the dialect of a model path; None for every other path."""
    for allowed, pattern, dialect in _PATHS:
        if method == allowed and pattern.fullmatch(path) and b".." not in path:
            return dialect
    return None


def spoken_by(headers: Mapping[str, str]) -> Dialect:
    """Return the dialect of a caller who asked for no path that we know."""
    return Dialect.ANTHROPIC if "anthropic-version" in headers else Dialect.CHAT


def read_request(path: bytes, body: bytes) -> Asked:
    """Return what the request says of itself.

    Raises:
        Malformed: It is not what the path wants.
    """
    place = _WHOLE.get(path)
    if place is None:
        return Asked(counts_only=True)  # About an answer that is there already.
    try:
        words: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {str(error)[:200]}") from error
    if not isinstance(words, dict):
        raise Malformed("the body is not a JSON object")
    asked = cast("Json", words)
    model = asked.get("model")
    if not isinstance(model, str) or not model:
        raise Malformed("model: a name that is not empty is wanted")
    _check_conversation(asked, place)
    return Asked(
        model=model[:MODEL_CHARACTERS_MAX],
        is_streamed=asked.get("stream") is True,
        thread=_thread(model, asked, place),
        tools=_tools(asked.get("tools")),
        counts_only=path.endswith(b"/count_tokens"),
    )


def error_body(dialect: Dialect, *, status: int, kind: str, message: str) -> bytes:
    """Return an error of ours in the words of a dialect."""
    if dialect is Dialect.ANTHROPIC:
        word = _ANTHROPIC_ERRORS.get(status, "api_error")
        text = f"{message} ({kind})"
        return _dumped({"type": "error", "error": {"type": word, "message": text}})
    word = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": word, "param": None, "code": kind}
    return _dumped({"error": error})


def error_event(dialect: Dialect, body: bytes, message: str, kind: str) -> bytes:
    """Return an upstream's error as the last event of a stream that has begun."""
    if dialect is Dialect.ANTHROPIC:
        told = body if _is_anthropic_error(body) else b""
        told = told or error_body(dialect, status=502, kind=kind, message=message)
        return b"event: error\ndata: " + _in_one_line(told) + b"\n\n"
    if dialect is Dialect.RESPONSES:
        event = {"type": "error", "code": kind, "message": message, "param": None}
        return b"event: error\ndata: " + _dumped(event) + b"\n\n"
    told = error_body(dialect, status=502, kind=kind, message=message)
    return b"data: " + told + b"\n\n"


_ANTHROPIC_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def _check_conversation(asked: Json, place: str) -> None:
    found = asked.get(place)
    if place == "messages":
        if not isinstance(found, list) or not found:
            raise Malformed("messages: a list that is not empty is wanted")
        if not all(isinstance(one, dict) for one in cast("list[object]", found)):
            raise Malformed("messages: each is an object with a role")
    elif not isinstance(found, str | list | None):
        raise Malformed("input: a text or a list is wanted")
    if not isinstance(asked.get("stream", False), bool | None):
        raise Malformed("stream: true or false is wanted")


def _thread(model: str, asked: Json, place: str) -> str:
    found = asked.get(place)
    first: object = found
    if isinstance(found, list):
        messages = cast("list[object]", found)
        of_user = [one for one in messages if _role(one) == "user"]
        first = (of_user or messages or [""])[0]
    text = json.dumps([model, _texts(first)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:THREAD_HEX]


def _role(message: object) -> object:
    if not isinstance(message, dict):
        return None
    return cast("Json", message).get("role")


def _texts(found: object) -> list[str]:
    """Return the texts of a message: the same with and without marks for a cache."""
    if isinstance(found, str):
        return [found]
    if isinstance(found, list):
        return [text for one in cast("list[object]", found) for text in _texts(one)]
    if isinstance(found, dict):
        words = cast("Json", found)
        return [t for key in ("content", "text") for t in _texts(words.get(key))]
    return []


def _tools(found: object) -> frozenset[str]:
    names: set[str] = set()
    for one in cast("list[object]", found) if isinstance(found, list) else []:
        if not isinstance(one, dict):
            continue
        tool = cast("Json", one)
        inner = tool.get("function")
        named = cast("Json", inner) if isinstance(inner, dict) else tool
        names.add(str(named.get("name", named.get("type", ""))))
    return frozenset(names)


def _is_anthropic_error(body: bytes) -> bool:
    try:
        words: object = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(words, dict) and cast("Json", words).get("type") == "error"


def _in_one_line(body: bytes) -> bytes:
    return _dumped(cast("Json", json.loads(body)))


def _dumped(words: Json) -> bytes:
    return json.dumps(words, ensure_ascii=False).encode("utf-8", "replace")
