# SPDX-License-Identifier: Apache-2.0
"""The policy of a real model: one call to its server for each answer.

What can be asked again, and may end otherwise, is: a lost connection, 429 and 5xx. A
prompt that is too long for the model is told apart from a server that fails.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp
import anyio
import attrs

from ....domain.digests import Json
from ....ports.provided.cookies import cookie_header
from ....ports.provided.json_texts import from_json
from ....ports.provided.secret_values import MASK
from ....ports.required.harness import HarnessRequest
from .chat import from_chat, to_chat
from .config import ModelApi, SimpleConfig
from .conversation import Answer, Item, ModelFailed

ATTEMPTS_MAX: Final = 4
PAUSE_SECONDS: Final = 0.5
"""Before the second attempt; doubled each time."""
RETRY_AFTER_SECONDS_MAX: Final = 120.0
"""A server that asks for a longer pause is asked again after so long."""
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
DETAIL_CHARACTERS_MAX: Final = 500
_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_TOO_LONG: Final = (
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
)


@attrs.frozen
class ModelPolicy:
    """Asks the model of one activation."""

    config: SimpleConfig
    request: HarnessRequest
    http: aiohttp.ClientSession
    _cookies: dict[str, str] = attrs.field(
        factory=dict[str, str], init=False, repr=False
    )
    """The server's own: by them it may keep an activation on one engine."""

    async def answer(
        self,
        parameters: Mapping[str, Json],
        items: Sequence[Item],
        tools: Sequence[Item],
    ) -> Answer:
        """Return the model's answer to the conversation so far.

        Raises:
            ModelFailed: There is none, also when asked again.
        """
        asked: dict[str, Json] = {
            **{name: value for name, value in parameters.items() if value is not None},
            "input": [_without_nulls(item) for item in items],
        }
        asked.setdefault("model", self.config.model)
        if tools:
            asked["tools"] = list(tools)
        if self.config.api is ModelApi.RESPONSES:
            return self._read(await self._asked("responses", asked))
        told = await self._asked("chat/completions", to_chat(asked))
        try:
            return from_chat(told)
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed(f"it is no chat completion: {error!r}") from error

    def _read(self, told: Mapping[str, Json]) -> Answer:
        output, usage = told.get("output"), told.get("usage")
        if not isinstance(output, list):
            raise self._failed("it is no Responses object")
        if told.get("status") == "failed":
            raise self._failed(json.dumps(told.get("error"))[:DETAIL_CHARACTERS_MAX])
        return Answer(
            items=tuple(item for item in output if isinstance(item, Mapping)),
            usage=usage if isinstance(usage, Mapping) else None,
            model=str(told.get("model") or ""),
            id=str(told.get("id") or ""),
            complete=told.get("status") != "incomplete",
        )

    async def _asked(self, path: str, body: Mapping[str, Json]) -> Mapping[str, Json]:
        prefix = ""
        if self.config.rollout_prefix:
            prefix = f"/ng-rollout/{self.request.episode.key}"
        url = f"{self.config.model_url}{prefix}/v1/{path}"
        content = json.dumps(body, ensure_ascii=False).encode()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            last = attempt == ATTEMPTS_MAX
            pause = PAUSE_SECONDS * 2 ** (attempt - 1)
            try:
                status, text, asked_for = await self._once(url, content)
            except (aiohttp.ClientError, TimeoutError) as fault:
                if last:
                    reason = f"{type(fault).__name__}: {fault}".rstrip(": ")
                    raise self._failed(reason) from fault
            else:
                if status == 200:
                    return self._object(text)
                if last or not (status == 429 or status >= 500):
                    raise self._refused(status, text)
                pause = max(pause, asked_for)
            await anyio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, url: str, content: bytes) -> tuple[int, bytes, float]:
        """Return status, body and for how many seconds the server wants to be let be."""
        headers = {"content-type": "application/json"}
        if self.config.credential is not None:
            headers["authorization"] = f"Bearer {self.config.credential}"
        if self._cookies:
            headers["cookie"] = cookie_header(self._cookies)
        async with self.http.post(
            url,
            data=content,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=self.config.call_seconds),
        ) as answer:
            self._cookies.update({k: m.value for k, m in answer.cookies.items()})
            found = bytearray()
            async for chunk in answer.content.iter_any():
                found += chunk
                if len(found) > ANSWER_BYTES_MAX:
                    raise self._failed(f"it is over {ANSWER_BYTES_MAX} bytes")
            pause = pause_asked_for(answer.headers.get("retry-after", ""))
            return answer.status, self._covered(bytes(found)), pause

    def _object(self, text: bytes) -> Mapping[str, Json]:
        try:
            found = from_json(text)
        except ValueError as error:
            raise self._failed(f"it is no JSON: {error}") from error
        if not isinstance(found, Mapping):
            raise self._failed("it is no JSON object")
        return found

    def _covered(self, text: bytes) -> bytes:
        """Cover the credential, which some servers repeat when they refuse it."""
        secret = self.config.credential or ""
        for spelling in {secret, json.dumps(secret)[1:-1]} - {""}:
            text = text.replace(spelling.encode(), MASK.encode())
        return text

    def _refused(self, status: int, text: bytes) -> ModelFailed:
        detail = text.decode(errors="replace")[:DETAIL_CHARACTERS_MAX]
        too_long = 400 <= status < 500 and any(
            word in detail.lower() for word in _TOO_LONG
        )
        return self._failed(f"status {status}: {detail}", too_long=too_long)

    def _failed(self, reason: str, *, too_long: bool = False) -> ModelFailed:
        return ModelFailed(str(self.config.model_url), reason, too_long)


def pause_asked_for(told: str) -> float:
    """Return the seconds of a `Retry-After`, bounded; 0 where it tells none."""
    return min(
        float(told) if _SECONDS.fullmatch(told) else 0.0, RETRY_AFTER_SECONDS_MAX
    )


def _without_nulls(item: Item) -> Item:
    """Drop what an item does not say: servers are strict about nulls in requests."""
    return {name: value for name, value in item.items() if value is not None}
