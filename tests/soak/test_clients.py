# SPDX-License-Identifier: Apache-2.0
"""What a client takes for a broken promise, and what it asks again for."""

import json
import random

import aiohttp
import anyio
import anyio.abc
import pytest

from ..model_gateway.upstream import Request, answer, upstream
from .clients import GRADED, Answers, Client
from .workload import Episode

pytestmark = pytest.mark.anyio

EPISODE = Episode(1)
AT_ONCE = (0.0, 0.0)
FAILED = {
    "stage": "agent",
    "failure_kind": "session_lost",
    "failure_reason": "it is gone",
    "terminal": False,
}


def row(**result: object) -> bytes:
    """Return an answer with a result."""
    told: dict[str, object] = {
        "reward": 1.0,
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
        "livery": {"seconds": {}},
        **result,
    }
    return answer(200, json.dumps({"result": told, "failure": None}).encode())


def failed(**more: object) -> bytes:
    """Return an answer with a failure."""
    told = {"result": None, "failure": {**FAILED, **more}}
    return answer(200, json.dumps(told).encode())


async def asked(*answers: bytes, seed: int = 1, calm: bool = False) -> Answers:
    """Let a client be answered so, the last time over and over."""
    left = list(answers)

    async def script(_: Request, stream: anyio.abc.SocketStream) -> None:
        await stream.send(left.pop(0) if len(left) > 1 else left[0])

    found = Answers()
    async with upstream(script) as server, aiohttp.ClientSession() as http:
        dice = random.Random(seed)
        await Client(EPISODE, server.url, http, found, dice, calm, AT_ONCE).run()
    return found


async def test_a_failure_is_asked_for_again_until_it_is_graded() -> None:
    found = await asked(failed(), answer(503, b"{}"), row())

    assert found.broken == []
    assert found.outcomes == {GRADED: 1}
    assert found.failures == {"failed at agent: session_lost": 1}
    assert found.retries["failed"] == found.retries["status 503"] == 1
    assert found.graded == {EPISODE.name}


async def test_a_masked_sample_is_no_grade() -> None:
    found = await asked(row(mask_sample=True, failure_kind="verifier_error", reward=0))

    assert found.broken == []
    assert found.outcomes == {"masked as verifier_error": 1}
    assert found.graded == set()


@pytest.mark.parametrize(
    ("answers", "calm", "words"),
    [
        ([row(reward=0.0)], False, "has the reward 0.0, not 1.0"),
        ([row(reward=0.25)], False, "has the reward 0.25, not 1.0"),
        ([row(mask_sample=True)], False, "masked without a kind"),
        ([failed(terminal=True)], False, "blames its request"),
        ([failed()], True, "failed, and nothing went wrong"),
        ([row(mask_sample=True, failure_kind="x")], True, "masked, and nothing"),
        ([answer(422, b"no"), row()], False, "was answered 422"),
    ],
)
async def test_a_broken_promise_is_noted(
    answers: list[bytes], calm: bool, words: str
) -> None:
    found = await asked(*answers, calm=calm)

    assert any(words in one for one in found.broken), found.broken


async def test_asked_once_more_it_must_be_told_the_same() -> None:
    seed = next(n for n in range(1000) if _asks_once_more(n))
    times = {"seconds": {"clean": 1.0}}

    same = await asked(row(), row(livery=times), seed=seed)
    other = await asked(row(), row(failure_reason="another"), seed=seed)

    assert same.broken == []
    assert same.retries == {"asked once more": 1}
    assert len(other.broken) == 1
    assert "answered otherwise" in other.broken[0]


def _asks_once_more(seed: int) -> bool:
    dice = random.Random(seed)
    return dice.random() > 0.5 and dice.random() < 0.01
