# SPDX-License-Identifier: Apache-2.0
"""The real credential reaches the upstream, and nobody and nothing else."""

import json
import logging

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.artifacts.memory import MemoryArtifactStore
from livery.adapters.model_upstream import Cover
from livery.ports.required.artifact_store import Reader, Shelf

from .gateways import REAL, SESSION, asking, gateway
from .upstream import (
    LAST_CHUNK,
    STREAM_HEAD,
    Script,
    answer,
    chunk,
    event,
    says,
    says_and_closes,
)

SPLIT = len(REAL) // 2
REPEATED = json.dumps(
    {"error": {"message": f"bad key {REAL}", "type": REAL, "code": REAL}}
).encode()
TOLD = event("error", json.dumps({"type": "error", "error": {"message": REAL}}))

SCRIPTS: dict[str, Script] = {
    "an error": says(
        answer(401, REPEATED, f"x-echo: {REAL}", f"www-authenticate: {REAL}")
    ),
    "an answer": says(answer(200, REPEATED)),
    "a stream": says(STREAM_HEAD, chunk(TOLD), LAST_CHUNK),
    "a split stream": says(
        STREAM_HEAD,
        chunk(b"data: " + REAL[:SPLIT].encode()),
        chunk(REAL[SPLIT:].encode() + b"\n\n"),
        LAST_CHUNK,
    ),
    "a cut stream": says_and_closes(STREAM_HEAD, chunk(TOLD)),
    "no HTTP": says_and_closes(f"{REAL}\r\n\r\n".encode()),
    "a cookie": says(answer(200, b"{}", f"set-cookie: key={REAL}")),
}


@pytest.mark.anyio
@pytest.mark.case("FC-174")
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_no_answer_record_artifact_or_log_line_has_the_credential(
    name: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The lines of libraries are covered where all lines are: by the log handler.
    caplog.set_level(logging.DEBUG, logger="livery")
    store = MemoryArtifactStore()
    heard: list[object] = []
    async with gateway(SCRIPTS[name], bodies=store) as gate:
        try:
            reply = await gate.post(asking(f"my {REAL}", stream=True, input="x"), path)
            heard += [reply.headers.raw, reply.content]
        except httpx.RemoteProtocolError as fault:
            heard.append(fault)
        await gate.call()
        record = await gate.sessions.revoke(SESSION)

    (asked,) = gate.upstream.asked
    kept: list[object] = []
    for artifact in await store.list(Shelf("e-1")):
        async with store.get(
            artifact.shelf, artifact.name, reader=Reader.OPERATOR
        ) as pieces:
            kept += [artifact, [piece async for piece in pieces]]
    assert REAL.encode() in asked.head
    assert gate.grant.placeholder.encode() not in asked.head + asked.body
    assert len(kept) == 4
    for shown in (heard, record, kept, caplog.text, repr(gate.sessions)):
        assert REAL not in str(shown)
        assert gate.grant.placeholder not in str(shown)


@given(data=st.data())
def test_a_covered_stream_is_as_long_as_it_was_and_holds_no_secret(
    data: st.DataObject,
) -> None:
    secret = data.draw(st.text(st.sampled_from('ab"\\é'), min_size=1, max_size=6))
    spelled = st.sampled_from([secret.encode(), json.dumps(secret)[1:-1].encode()])
    noise = st.binary(max_size=4) | st.sampled_from([b"a", b"ab", b"\\"])
    pieces = data.draw(st.lists(noise | spelled, max_size=12))
    whole = b"".join(pieces)
    cover = Cover(secret)

    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    out = b"".join([*(cover.feed(part) for part in parts), cover.end()])

    assert len(out) == len(whole)
    assert secret.encode() not in out
    assert out == Cover(secret).covered(whole)


def test_without_a_secret_nothing_is_covered_or_held() -> None:
    cover = Cover("")

    assert cover.feed(b"abc") == b"abc"
    assert cover.end() == b""


def test_a_short_spelling_that_may_become_the_long_one_waits_for_it() -> None:
    secret = "a\\\\"
    spelled = json.dumps(secret)[1:-1].encode()
    assert spelled.startswith(secret.encode())
    cover = Cover(secret)

    out = [cover.feed(spelled[:3]), cover.feed(spelled[3:]), cover.end()]

    assert b"".join(out) == b"*" * len(spelled)
