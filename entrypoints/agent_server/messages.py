# SPDX-License-Identifier: Apache-2.0
"""What the bodies of the agent server's routes mean to the core."""

from collections.abc import Mapping
from typing import Final, cast

import attrs

from ...adapters.gym_servers.wire_names import to_access
from ...domain.agent_sessions import AgentSessionId
from ...domain.digests import Json
from ...domain.tasks import EpisodeId, TaskId
from ...ports.provided.session_grants import SHARED_WORD, SessionGrant
from ...ports.required.harness import ToolAccess, ToolTransport
from ...ports.required.sandbox import SandboxAccess
from ..http_serving.bodies import read_body, to_episode, wrong_value
from .bodies import ACTIVATE, CLOSE, SEED

RESERVED: Final = "livery."
"""What words of a descriptor may not begin with, but for `SHARED_WORD`."""


@attrs.frozen(kw_only=True)
class SeedMessage:
    """What a seed asks for."""

    session: AgentSessionId
    episode: EpisodeId
    grant: SessionGrant


@attrs.frozen(kw_only=True)
class CloseMessage:
    """What a close asks for."""

    session: AgentSessionId
    episode: EpisodeId


def to_seed(body: bytes) -> SeedMessage:
    """Read the body of a seed; raises `BodyRefused`."""
    read = read_body(body, SEED)
    task = cast("Mapping[str, str]", read["task_id"])
    tools = cast("list[Mapping[str, Json]]", read.get("tool_accesses", []))
    access = cast("Mapping[str, Json] | None", read.get("sandbox_access"))
    names = [tool["name"] for tool in tools]
    if len({*map(str, names)}) < len(names):
        reason = "tool access names must be unique within an agent session"
        raise wrong_value(("tool_accesses",), reason, cast("Json", tools))
    return SeedMessage(
        session=AgentSessionId(cast("str", read["agent_session_id"])),
        episode=to_episode(read),
        grant=SessionGrant(
            task=TaskId(task["taskset"], task["task_id"]),
            access=None if access is None else _access(access),
            tools=tuple(map(_tool, tools)),
        ),
    )


def to_close(body: bytes) -> CloseMessage:
    """Read the body of a close; raises `BodyRefused`."""
    read = read_body(body, CLOSE)
    return CloseMessage(
        session=AgentSessionId(cast("str", read["agent_session_id"])),
        episode=to_episode(read),
    )


def to_parameters(body: bytes) -> Mapping[str, Json]:
    """Read the body of an activation; raises `BodyRefused`."""
    return read_body(body, ACTIVATE)


def _access(given: Mapping[str, Json]) -> SandboxAccess:
    connection = cast("Mapping[str, Json]", given["connection"])
    for word, value in cast("Mapping[str, Json]", connection["descriptor"]).items():
        if word.startswith(RESERVED) and word != SHARED_WORD:
            place = ("sandbox_access", "connection", "descriptor", word)
            reason = f"words that begin with {RESERVED!r} are Livery's own"
            raise wrong_value(place, reason, value)
    return to_access(given)


def _tool(given: Mapping[str, Json]) -> ToolAccess:
    if given["kind"] == ToolTransport.DIRECT_HTTP:
        url, headers = given["base_url"], _texts(given.get("headers"))
    else:
        connection = cast("Mapping[str, Json]", given["connection"])
        url, headers = connection["url"], _texts(connection.get("headers"))
    return ToolAccess(
        transport=ToolTransport(cast("str", given["kind"])),
        name=cast("str", given["name"]),
        url=cast("str", url),
        headers=headers,
        cookies=_texts(given.get("cookies")),
        required=given["required"] is True,
    )


def _texts(given: Json) -> dict[str, str]:
    return dict(cast("Mapping[str, str]", given or {}))
