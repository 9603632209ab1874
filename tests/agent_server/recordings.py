# SPDX-License-Identifier: Apache-2.0
"""What was asked of agent servers of NeMo Gym 0.7.0, and what they answered.

`recordings.json` holds what is compared: each request whole, of each reply its status,
its cookie's attributes and its shape. `python -m tests.agent_server.recordings` writes
it anew from the recorded transcripts, where they are at hand.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

FOLDER: Final = Path(__file__).parents[3] / "shared" / "gym-transcripts"
KEPT: Final = Path(__file__).with_name("recordings.json")
AGENT_HOP: Final = "->agent"
OBSERVABILITY: Final = "_ng_"
"""Fields that NeMo Gym adds for itself when its observability is on."""


@attrs.frozen(kw_only=True)
class Exchange:
    """One request, and what came of it."""

    seq: int
    path: str
    body: Mapping[str, Any]
    cookie: str | None
    """The session that the request's cookie names; "" for a cookie without one."""
    status: int | None
    """None: the client left before it was answered."""
    shape: Any = None
    cookie_attributes: str | None = None


@attrs.frozen(kw_only=True)
class Scenario:
    """One recording; without exchanges when no agent server was asked."""

    name: str
    exchanges: tuple[Exchange, ...]


def scenarios() -> tuple[Scenario, ...]:
    """Return every recording."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return tuple(
        Scenario(name=name, exchanges=tuple(Exchange(**one) for one in exchanges))
        for name, exchanges in kept.items()
    )


def shape(body: Any) -> Any:
    """Return what is the same in two replies that mean the same."""
    if not isinstance(body, Mapping):
        return type(body).__name__
    detail = body.get("detail")
    if isinstance(detail, list):
        return [
            [one["type"], one["loc"], one["msg"], one["input"], "ctx" in one]
            for one in detail
        ]
    if isinstance(detail, str):
        return detail
    return {
        name: type(value).__name__
        for name, value in sorted(body.items())
        if not name.startswith(OBSERVABILITY)
    }


def distilled(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what `recordings.json` holds, from the transcripts themselves."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("[0-9]*.json")):
        exchanges = json.loads(file.read_text(encoding="utf-8"))["exchanges"]
        found[file.stem] = [
            attrs.asdict(_exchange(one))
            for one in exchanges
            if one["hop"].endswith(AGENT_HOP)
        ]
    return found


def _exchange(recorded: Mapping[str, Any]) -> Exchange:
    request, response = recorded["request"], recorded["response"]
    headers = dict(response["headers"]) if response else {}
    set_cookie = headers.get("set-cookie")
    return Exchange(
        seq=recorded["seq"],
        path=recorded["path"],
        body=request["body"],
        cookie=_session(request),
        status=response["status"] if response else None,
        shape=shape(response["body"]) if response else None,
        cookie_attributes=set_cookie and set_cookie.partition(";")[2],
    )


def _session(request: Mapping[str, Any]) -> str | None:
    for cookie in request.get("cookies_decoded", ()):
        session = cookie["session"]
        return "" if session is None else session["agent_session_id"]
    return None


if __name__ == "__main__":
    text = json.dumps(distilled(FOLDER), indent=1, ensure_ascii=False)
    KEPT.write_text(f"{text}\n", encoding="utf-8")
