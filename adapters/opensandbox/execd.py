# SPDX-License-Identifier: Apache-2.0
"""Execd: the server's own agent in a sandbox, over HTTP.

It starts what we need in there, and moves a file now and then; commands of users
and their files go through our worker. Every method may raise `ExecdGone` when
nobody answers, and `ApiRefused`.
"""

import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import cast
from urllib.parse import urlencode

import anyio
import anyio.lowlevel
import attrs

from ..http_client import HttpClient, HttpFailed
from .command_events import Began, CommandEnded, Event, StreamBroken, events
from .lifecycle_facts import ApiRefused, to_refused

PING_SECONDS = 2.0
ENDING_SECONDS = 10.0
SILENCE_SECONDS = 30.0
"""Execd says something every 3 s; a stream that says nothing for so long is cut."""
PRINTED_CHARACTERS_MAX = 64 * 1024
TOKEN_HEADER = "X-EXECD-ACCESS-TOKEN"
GATEWAY_STATUSES = frozenset({502, 503, 504})
"""Said by what stands before it, when it is not there, or not yet."""


@attrs.frozen
class ExecdGone(Exception):
    """Nobody answers where execd should be."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Ran:
    """How a command ended, and what it printed, by lines."""

    end: CommandEnded
    stdout: str
    stderr: str


@attrs.define(eq=False)
class _Running:
    """What was heard of a command so far."""

    command_id: str = ""
    end: CommandEnded | None = None
    is_over: bool = False
    is_given_up: bool = False
    hearing: anyio.CancelScope = attrs.field(
        factory=lambda: anyio.CancelScope(shield=True)
    )
    _lines: dict[bool, list[str]] = attrs.field(
        factory=lambda: {False: list[str](), True: list[str]()}
    )
    _characters: int = 0

    def take(self, event: Event) -> None:
        if isinstance(event, Began):
            self.command_id = event.command_id
        elif isinstance(event, CommandEnded):
            self.end = event
        elif self._characters < PRINTED_CHARACTERS_MAX:
            self._characters += len(event.text)
            # An empty line comes as the end that it lost.
            text = "" if event.text == "\n" else event.text
            self._lines[event.is_stderr].append(text)

    def ran(self) -> Ran:
        assert self.end is not None
        stdout, stderr = ("\n".join(self._lines[which]) for which in (False, True))
        return Ran(end=self.end, stdout=stdout, stderr=stderr)


@attrs.frozen(kw_only=True)
class Execd:
    """The execd of one sandbox."""

    http: HttpClient
    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    """The token that it asks for."""

    async def ping(self) -> None:
        """See that it answers."""
        await self._ask("GET", "/ping", seconds=PING_SECONDS)

    async def run(self, script: str, *, seconds: float) -> Ran:
        """Have the shell run `script`, once, and wait for its end.

        A call that is given up ends the command, and hears its stream out: one that
        is cut off while it speaks would end other commands with it.

        Raises:
            StreamBroken: How it ended is unknown.
        """
        running = _Running()
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_when_given_up, running)
            try:
                with running.hearing:
                    await self._hear(script, seconds, running)
            except Exception as raised:
                failure = raised  # Raised below: a task group would wrap it.
            running.is_over = True
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()
        if failure is not None:
            raise failure
        if running.end is None:
            raise StreamBroken("it was given up, and did not end in time")
        return running.ran()

    async def _hear(self, script: str, seconds: float, running: "_Running") -> None:
        body = json.dumps({"command": script, "timeout": round(seconds * 1000)})
        try:
            async with self.http.stream(
                "POST",
                f"{self.url}/command",
                content=body.encode(),
                headers={**self.headers, "Content-Type": "application/json"},
                timeout_seconds=SILENCE_SECONDS,
            ) as answer:
                if not answer.is_success:
                    raise _refusal(answer.status_code, await answer.aread())
                # The library calls an iterator what is a generator to be closed.
                pieces = cast("AsyncGenerator[bytes]", answer.aiter_bytes())
                async with aclosing(pieces), aclosing(events(pieces)) as heard:
                    async for event in heard:
                        running.take(event)
                        if running.is_given_up and isinstance(event, Began):
                            await self._end(running)
        except HttpFailed as failed:
            if running.end is not None:
                return  # What breaks after the last event breaks nothing.
            if running.command_id:
                raise StreamBroken(failed.reason) from failed
            raise ExecdGone(failed.reason) from failed

    async def _end_when_given_up(self, running: "_Running") -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if not running.is_over:
                running.is_given_up = True
                running.hearing.deadline = anyio.current_time() + ENDING_SECONDS
                await self._end(running)

    async def _end(self, running: "_Running") -> None:
        """Ask for the end of a command; a no mostly says that it is over already."""
        if not running.command_id:
            return
        query = urlencode({"id": running.command_id})
        with (
            anyio.move_on_after(ENDING_SECONDS, shield=True),
            suppress(ExecdGone, ApiRefused),
        ):
            await self._ask("DELETE", f"/command?{query}", seconds=ENDING_SECONDS)

    async def upload(self, path: str, content: bytes, *, mode: int) -> None:
        """Write a file of root's; what stood there is written over in place."""
        boundary = secrets.token_hex(16)
        # The mode is a number whose decimal digits are read as octal ones.
        words = json.dumps({"path": path, "mode": int(f"{mode:o}")}).encode()
        parts = (
            _part(boundary, "metadata", "application/json", words),
            _part(boundary, "file", "application/octet-stream", content),
            f"--{boundary}--\r\n".encode(),
        )
        await self._ask(
            "POST",
            "/files/upload",
            content=b"".join(parts),
            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
        )

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = SILENCE_SECONDS,
    ) -> bytes:
        try:
            answer = await self.http.request(
                method,
                f"{self.url}{path}",
                repeatable=False,
                content=content,
                headers={**self.headers, **(headers or {})},
                timeout_seconds=seconds,
            )
        except HttpFailed as failed:
            raise ExecdGone(failed.reason) from failed
        if not answer.is_success:
            raise _refusal(answer.status_code, answer.content)
        return answer.content


def _refusal(status: int, body: bytes) -> Exception:
    refused = to_refused(status, body)
    if status in GATEWAY_STATUSES:
        return ExecdGone(f"it is out of reach ({refused})")
    return refused


def _part(boundary: str, name: str, kind: str, content: bytes) -> bytes:
    # Both parts have a file name: without one, execd does not see them.
    head = (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n"
