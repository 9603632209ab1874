# SPDX-License-Identifier: Apache-2.0
"""A model server on loopback that answers what a script says, one turn a call."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

HEAD_BYTES_MAX = 64 * 1024
TURN_OF_NO_SCRIPT = "Done."

Tool = tuple[str, dict[str, Any]]
Turn = Tool | str | int
"""A tool call, a text, or the status of a failure."""
Choice = Callable[[dict[str, Any]], Turn]
"""Gives the turn that answers a request's body."""


@attrs.define
class ScriptedModel:
    """What it was asked, and where it listens."""

    turns: Sequence[Turn] | Choice
    url: str = ""
    asked: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    heads: list[str] = attrs.field(factory=list[str])
    connections: int = 0

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request and close."""
        self.connections += 1
        async with stream:
            buffered = BufferedByteReceiveStream(stream)
            try:
                head = await buffered.receive_until(b"\r\n\r\n", HEAD_BYTES_MAX)
                text = head.decode("latin-1")
                size = _length(text)
                body = await buffered.receive_exactly(size) if size else b"{}"
                await stream.send(self.answer(text, json.loads(body)))
            except (anyio.IncompleteRead, anyio.BrokenResourceError):
                return

    def answer(self, head: str, body: dict[str, Any]) -> bytes:
        """Return what the next turn of the script says."""
        if "messages" not in body:
            return _reply(200, "application/json", b"{}")
        self.heads.append(head)
        number = len(self.asked)
        self.asked.append(body)
        turn = self._turn(number, body)
        if isinstance(turn, int):
            error = {"type": "error", "error": {"type": "api_error", "message": "no"}}
            return _reply(turn, "application/json", json.dumps(error).encode())
        return _reply(200, "text/event-stream", _events(turn, number, body["model"]))

    def _turn(self, number: int, body: dict[str, Any]) -> Turn:
        if callable(self.turns):
            return self.turns(body)
        return self.turns[number] if number < len(self.turns) else TURN_OF_NO_SCRIPT


@asynccontextmanager
async def scripted_model(
    *turns: Turn, choice: Choice | None = None
) -> AsyncGenerator[ScriptedModel]:
    """Listen for as long as this is entered."""
    model = ScriptedModel(choice or turns)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        model.url = f"http://127.0.0.1:{port}"
        group.start_soon(listener.serve, model.serve)
        yield model
        group.cancel_scope.cancel()


def _length(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0


def _reply(status: int, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def _events(turn: Tool | str, number: int, model: str) -> bytes:
    if isinstance(turn, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": turn}
        stop = "end_turn"
    else:
        name, given = turn
        id = f"toolu_{number}"
        block = {"type": "tool_use", "id": id, "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        stop = "tool_use"
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": block}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {
                "delta": {"stop_reason": stop, "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
        ),
        ("message_stop", {}),
    ]
    return b"".join(
        f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()
        for kind, data in events
    )
