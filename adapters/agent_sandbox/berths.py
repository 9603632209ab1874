# SPDX-License-Identifier: Apache-2.0
"""Which sandbox is used, how, and the variables that were put down in it.

They are no part of the claim: each that stands there keeps a warm pool from serving
it. They lie in a file of the scratch folder instead, for who finds the sandbox again.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import cast

import attrs

from ...ports.provided.worker_channel import WorkerFailed
from ...ports.required.sandbox import FileMissing
from .hands import Hands
from .standing import Bound

ENV_FILE = "env.json"
ENV_BYTES_MAX = 4 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Berth:
    """Which sandbox it is, and how it is used."""

    provider: str
    bound: Bound
    workdir: str
    key: str
    """Tells the folders of this claim or borrower from another's."""
    env: Mapping[str, str] | None
    """Laid under every command's own; None when it was put down inside before."""
    ports: frozenset[int] = frozenset()
    expires_at: float | None = None
    is_borrowed: bool = False

    @property
    def name(self) -> str:
        """Namespace and name of the claim."""
        return f"{self.bound.claim.namespace}/{self.bound.claim.name}"


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def read_env(hands: Hands, path: str) -> dict[str, str]:
    """Return the variables that the maker of the sandbox put down, if it did."""
    content = b""
    try:
        async with hands.channel.get(path, user=None) as pieces:
            async for piece in pieces:
                content += piece
                if len(content) > ENV_BYTES_MAX:
                    raise WorkerFailed("read the environment", "it is too large")
        words = json.loads(content.decode("utf-8", "surrogatepass"))
    except FileMissing:
        return {}
    except ValueError as fault:
        raise WorkerFailed("read the environment", str(fault)) from fault
    return {str(k): str(v) for k, v in cast("dict[object, object]", words).items()}


async def write_env(hands: Hands, path: str, env: Mapping[str, str]) -> None:
    """Put the variables down, for the sandbox's user alone."""
    content = json.dumps(dict(env)).encode("utf-8", "surrogatepass")
    await hands.channel.put(
        path, _once(content), size=len(content), mode=0o600, user=None
    )
