# SPDX-License-Identifier: Apache-2.0
"""The runtime server in a sandbox: commands to their end, and whole files.

It runs a command's words without a shell, answers when the command has ended, and
only in text; it cuts a command after a time of its own, and so does a gateway. So
no call of ours lasts long, and none is asked that could not be asked again.
"""

import json
import secrets
import shlex
from collections.abc import Mapping
from typing import cast

import attrs
import httpx

from ..http_client import HttpClient, HttpFailed

CALL_SECONDS = 30.0
MARGIN_SECONDS = 10.0
"""What an answer may take beyond the command that it is for."""
TEXT_CHARACTERS_MAX = 300


@attrs.frozen
class RuntimeFailed(Exception):
    """The runtime server gave no answer that can be used; asking again may help."""

    reason: str
    status: int | None = None

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class RuntimeRefused(Exception):
    """The router or the runtime server does not let us do this at all."""

    status: int
    reason: str

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"


@attrs.frozen(kw_only=True)
class Executed:
    """How a command ended, as the runtime server tells it."""

    exit_code: int
    stdout: str
    stderr: str


@attrs.frozen
class RuntimeApi:
    """Asks one runtime server, perhaps through a router."""

    _http: HttpClient
    _headers: Mapping[str, str] = attrs.field(factory=dict[str, str])

    async def execute(
        self, words: tuple[str, ...], *, seconds: float = CALL_SECONDS
    ) -> Executed:
        """Run words to their end, which is to come within `seconds`.

        They may run twice: a lost answer is asked for again.

        Raises:
            RuntimeFailed, RuntimeRefused: As they say.
        """
        answer = await self._ask(
            "POST",
            "/execute",
            content=json.dumps({"command": shlex.join(words)}).encode(),
            kind="application/json",
            seconds=seconds + MARGIN_SECONDS,
        )
        try:
            told: object = json.loads(answer.content)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise RuntimeFailed("what it answers is no JSON object")
        fields = cast("dict[str, object]", told)
        code = fields.get("exit_code")
        if not isinstance(code, int):
            raise RuntimeFailed("its answer tells no exit code")
        return Executed(
            exit_code=code,
            stdout=str(fields.get("stdout", "")),
            stderr=str(fields.get("stderr", "")),
        )

    async def upload(self, path: str, content: bytes) -> None:
        """Put a whole file below the server's folder; its parents are there.

        Raises:
            RuntimeFailed, RuntimeRefused: As they say.
        """
        word = secrets.token_hex(16)
        head = (
            f"--{word}\r\n"
            f'Content-Disposition: form-data; name="file"; filename="{path}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        await self._ask(
            "POST",
            "/upload",
            content=head.encode() + content + f"\r\n--{word}--\r\n".encode(),
            kind=f"multipart/form-data; boundary={word}",
            seconds=CALL_SECONDS,
        )

    async def _ask(
        self, method: str, path: str, *, content: bytes, kind: str, seconds: float
    ) -> httpx.Response:
        headers = {
            **self._headers,
            "Content-Type": kind,
            "X-Sandbox-Timeout": f"{seconds:g}",
        }
        try:
            answer = await self._http.request(
                method,
                path,
                repeatable=True,
                content=content,
                headers=headers,
                timeout_seconds=seconds,
            )
        except HttpFailed as failed:
            raise RuntimeFailed(failed.reason) from failed
        if answer.status_code == 200:
            return answer
        reason = f"{path} answers {answer.status_code}: {_detail(answer)}"
        if answer.status_code in {401, 403}:
            raise RuntimeRefused(answer.status_code, reason)
        raise RuntimeFailed(reason, answer.status_code)


def _detail(answer: httpx.Response) -> str:
    """Return the router's or the server's own words, on one line and short."""
    try:
        told: object = json.loads(answer.content)
    except ValueError:
        told = answer.text
    if isinstance(told, dict):
        told = cast("dict[str, object]", told).get("detail", "")
    return " ".join(str(told).split())[:TEXT_CHARACTERS_MAX] or "(without a word)"
