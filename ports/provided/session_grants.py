# SPDX-License-Identifier: Apache-2.0
"""What a seed grants its session: the task's name, a lent sandbox, tools.

The journal keeps it, so that another process can go on with the session. Tokens for
tools are not kept there; a process that needs them and never had them is told so.
"""

import json
from collections.abc import Mapping
from typing import Final, cast

import attrs

from ...domain.digests import Json, RequestDigest, digest_of
from ...domain.tasks import EpisodeId, TaskId
from ..required.harness import ToolAccess, ToolTransport
from ..required.sandbox import SandboxAccess, SandboxId
from .json_texts import to_json
from .session_replies import seed_digest

SHARED_WORD: Final = "livery.shared"
"""In a descriptor: this session agrees to share the sandbox with others that do."""
_YES: Final = "true"


@attrs.frozen(kw_only=True)
class SessionGrant:
    """The grant of one session."""

    task: TaskId
    access: SandboxAccess | None = None
    lent_id: SandboxId | None = None
    """Which sandbox `access` leads to, once its provider has told."""
    tools: tuple[ToolAccess, ...] = ()
    tokens_lost: bool = False
    """Whether tokens of `tools` are missing, since it was read from the journal."""

    @property
    def has_tokens(self) -> bool:
        """Whether a tool's headers or cookies are part of it."""
        return any(tool.headers or tool.cookies for tool in self.tools)

    @property
    def lent(self) -> SandboxAccess | None:
        """The access as its provider knows it."""
        if self.access is None:
            return None
        words = {k: v for k, v in self.access.descriptor.items() if k != SHARED_WORD}
        return attrs.evolve(self.access, descriptor=words)

    @property
    def shares(self) -> bool:
        """Whether the lent sandbox may serve other sessions as well."""
        access = self.access
        return access is not None and access.descriptor.get(SHARED_WORD) == _YES

    @property
    def sandbox_digest(self) -> RequestDigest | None:
        """What makes two lent sandboxes the same one."""
        lent = self.lent
        if lent is None:
            return None
        named = self.lent_id or lent.descriptor.get("sandbox_id")
        same: Json = dict(lent.descriptor) if named is None else named
        return digest_of([lent.provider, same])


def grant_digest(episode: EpisodeId, grant: SessionGrant) -> RequestDigest:
    """Return what makes two seeds the same request, tokens included."""
    plain = seed_digest(episode, grant.task, grant.access)
    if not grant.tools:
        return plain
    tools = [
        {
            **_tool(tool),
            "headers": dict(tool.headers),
            "cookies": dict(tool.cookies),
        }
        for tool in grant.tools
    ]
    return digest_of([plain, tools])


def to_text(grant: SessionGrant) -> str:
    """Return the grant as the journal keeps it, without tokens."""
    access = grant.access
    return to_json(
        {
            "task": [grant.task.taskset, grant.task.task_id],
            "access": None
            if access is None
            else [access.provider, dict(access.descriptor), access.workdir],
            "lent_id": grant.lent_id,
            "tools": [_tool(tool) for tool in grant.tools],
            "tokens": grant.has_tokens,
        }
    )


def from_text(text: str) -> SessionGrant | None:
    """Return the grant that the journal keeps; None for a session without one."""
    if not text:
        return None
    kept = json.loads(text)
    taskset, task_id = kept["task"]
    return SessionGrant(
        task=TaskId(taskset, task_id),
        access=None if kept["access"] is None else _access(kept["access"]),
        # One that was written before providers told it has none.
        lent_id=kept.get("lent_id"),
        tools=tuple(map(_from_tool, kept["tools"])),
        tokens_lost=kept["tokens"],
    )


def _tool(tool: ToolAccess) -> dict[str, Json]:
    return {
        "transport": tool.transport.value,
        "name": tool.name,
        "url": tool.url,
        "required": tool.required,
    }


def _from_tool(kept: Mapping[str, Json]) -> ToolAccess:
    return ToolAccess(
        transport=ToolTransport(str(kept["transport"])),
        name=str(kept["name"]),
        url=str(kept["url"]),
        required=kept["required"] is True,
    )


def _access(kept: list[Json]) -> SandboxAccess:
    provider, descriptor, workdir = kept
    return SandboxAccess(
        provider=str(provider),
        descriptor=cast("Mapping[str, str]", descriptor),
        workdir=str(workdir),
    )
