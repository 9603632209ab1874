# SPDX-License-Identifier: Apache-2.0
"""Requests: what a Responses request says, its defaults included, and its digest.

Two bodies that a reader would take for the same request have the same digest: a
default left out or written, a null or nothing, a prompt as a text or as one user
message. Nulls count as absent down to the parts of a message; what lies deeper is
the caller's own data (the schema of a tool, say) and is left as it is.
"""

from collections.abc import Mapping
from typing import Final

from .digests import Json, RequestDigest, digest_of

DEFAULTS: Final[Mapping[str, Json]] = {
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": (),
}
"""What a field stands at when nobody sets it; every other one is null."""

_LEVELS: Final = {"input": 2, "text": 2}
"""How many mappings deep nulls are dropped, where it is not the usual one."""
_LEVELS_USUAL: Final = 1


def with_defaults(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Return the body with its defaults filled in and nothing that is null."""
    body: dict[str, Json] = {}
    for key, value in (*DEFAULTS.items(), *parameters.items()):
        if value is not None:
            body[key] = _without_nulls(value, _LEVELS.get(key, _LEVELS_USUAL))
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if isinstance(given, list):
        body["input"] = [_with_type(item) for item in given]
    return body


def request_digest(parameters: Mapping[str, Json]) -> RequestDigest:
    """Return the digest of the body with its defaults; raises `NotJson`."""
    return digest_of(with_defaults(parameters))


def _without_nulls(value: Json, levels: int) -> Json:
    if isinstance(value, str) or levels == 0:
        return value
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(each, levels - 1)
            for key, each in value.items()
            if each is not None
        }
    if isinstance(value, (list, tuple)):
        return [_without_nulls(each, levels) for each in value]
    return value


def _with_type(item: Json) -> Json:
    if isinstance(item, Mapping) and "role" in item and "type" not in item:
        return {**item, "type": "message"}
    return item
