# SPDX-License-Identifier: Apache-2.0
"""Keep calls: what the gateway saw of a run's calls to its model is an artifact.

One JSON object a line, in the order of their ends. What an earlier process saw of the
same episode stands before it. Calls that were too many to be kept are counted.
"""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs

from ...domain.digests import Json
from ..required.artifact_store import ArtifactMissing, ArtifactStore, Reader, Shelf
from ..required.faults import Fault
from ..required.model_access import ModelCall, ModelRecord

CALLS_ARTIFACT: Final = "model-calls.jsonl"
KEEP_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def calls_kept(
    artifacts: ArtifactStore, shelf: Shelf, seen: Callable[[], ModelRecord]
) -> AsyncGenerator[None]:
    """Keep the calls that are made until the block is left, however it is left."""
    before = _ended(seen())
    try:
        yield
    finally:
        with anyio.move_on_after(KEEP_SECONDS, shield=True) as scope:
            try:
                await _add(artifacts, shelf, _lines(seen(), before))
            except Fault as fault:
                _log.warning("The calls of %s were not kept: %s", shelf, fault)
        if scope.cancelled_caught:
            _log.warning("The calls of %s were not kept in time", shelf)


async def _add(artifacts: ArtifactStore, shelf: Shelf, lines: bytes) -> None:
    if not lines:
        return
    known = b""
    try:
        opened = artifacts.get(shelf, CALLS_ARTIFACT, reader=Reader.OPERATOR)
        async with opened as pieces:
            known = b"".join([piece async for piece in pieces])
    except ArtifactMissing:
        pass
    await artifacts.put(shelf, CALLS_ARTIFACT, _whole(known + lines))


def _lines(record: ModelRecord, before: int) -> bytes:
    """Return the calls that ended after so many others."""
    skipped = before - record.entries_dropped
    told: list[dict[str, Json]] = []
    if skipped < 0:
        told.append({"calls_not_kept": -skipped})
    told += [_told(call) for call in record.entries[max(skipped, 0) :]]
    return b"".join(json.dumps(one).encode() + b"\n" for one in told)


def _ended(record: ModelRecord) -> int:
    return len(record.entries) + record.entries_dropped


def _told(call: ModelCall) -> dict[str, Json]:
    return {**attrs.asdict(call), "end": call.end.value}


async def _whole(text: bytes) -> AsyncIterator[bytes]:
    yield text
