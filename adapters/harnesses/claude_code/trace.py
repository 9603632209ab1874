# SPDX-License-Identifier: Apache-2.0
"""What happened in a run, put together from its events.

The conversation of the program itself is the root invocation; each subagent that it
starts is one more, told apart by the tool call that started it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from ....domain.digests import Json
from ..readings import INVOCATION_ID
from .events import (
    blocks_of,
    list_at,
    number_at,
    object_at,
    text_at,
    text_of_result,
    time_of,
    whole_at,
    written,
)
from .stream import Event

SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the program itself made up."""

_TIMED_OUT: Final = "Command timed out"


@attrs.define(kw_only=True)
class ToolCall:
    """One call of a tool, finished when it has an answer."""

    id: str
    name: str
    invocation: str
    started_at: float | None = None
    completed_at: float | None = None
    status: str = "incomplete"
    error_type: str | None = None
    is_answered: bool = False


@attrs.define(kw_only=True)
class Invocation:
    """One conversation with the model."""

    id: str
    parent: str | None = None
    spawned_by: str | None = None
    status: str = "incomplete"
    duration_ms: float | None = None
    items: list[Mapping[str, Json]] = attrs.field(factory=list[Mapping[str, Json]])
    calls: dict[str, None] = attrs.field(factory=dict[str, None])
    """Ids of the model's messages, in their order."""
    thoughts: list[str] = attrs.field(factory=list[str])
    """Thinking that no message has taken up yet."""
    last_told: str = ""
    """Who spoke last: `model`, `tool` or `user`."""


@attrs.define(kw_only=True)
class Compaction:
    """The conversation was made shorter."""

    invocation: str
    at: float | None
    trigger: str | None
    tokens_before: int | None
    tokens_after: int | None


@attrs.define(kw_only=True)
class Trace:
    """Everything that was seen."""

    invocations: dict[str, Invocation] = attrs.field(factory=dict[str, Invocation])
    tool_calls: dict[str, ToolCall] = attrs.field(factory=dict[str, ToolCall])
    results: list[Event] = attrs.field(factory=list[Event])
    compactions: list[Compaction] = attrs.field(factory=list[Compaction])
    servers: dict[str, str] = attrs.field(factory=dict[str, str])
    """Tool servers and how they were at the start, by the program's own words."""
    failures: list[Event] = attrs.field(factory=list[Event])
    """Messages made up to tell that the model's side failed."""
    model: str = ""
    session: str = ""
    """The program's own id of the conversation; nothing of ours hangs on it."""
    has_begun: bool = False
    is_retrying: bool = False
    """Whether the last event tells that a call to the model failed and is repeated."""
    usages: dict[str, Mapping[str, Json]] = attrs.field(
        factory=dict[str, Mapping[str, Json]]
    )
    """The model's usage of each message of the root, as far as it was told."""

    @property
    def root(self) -> Invocation:
        """The program's own conversation."""
        return self.invocations[INVOCATION_ID]


def trace_of(events: Iterable[Event], prompt: str) -> Trace:
    """Return what the events tell; whatever they hold, they never raise."""
    trace = Trace()
    root = Invocation(id=INVOCATION_ID, items=[_said("user", prompt)])
    trace.invocations[INVOCATION_ID] = root
    for event in events:
        match event.get("type"):
            case "system":
                _take_system(trace, event)
            case "assistant":
                _take_assistant(trace, event)
            case "user":
                _take_user(trace, event)
            case "result":
                trace.results.append(event)
                trace.is_retrying = False
            case _:
                pass
    for invocation in trace.invocations.values():
        _flush_thoughts(invocation)
    return trace


def _take_system(trace: Trace, event: Event) -> None:
    trace.is_retrying = False
    match event.get("subtype"):
        case "init":
            trace.has_begun = True
            trace.session = text_at(event, "session_id") or trace.session
            trace.model = trace.model or text_at(event, "model")
            for server in list_at(event, "mcp_servers"):
                if isinstance(server, Mapping):
                    trace.servers[text_at(server, "name")] = text_at(server, "status")
        case "api_retry":
            trace.is_retrying = True
        case "compact_boundary":
            told = object_at(event, "compact_metadata")
            told = told or object_at(event, "compactMetadata")
            before = whole_at(told, "pre_tokens")
            after = whole_at(told, "post_tokens")
            trace.compactions.append(
                Compaction(
                    invocation=_invocation(trace, event).id,
                    at=time_of(event),
                    trigger=text_at(told, "trigger") or None,
                    tokens_before=whole_at(told, "preTokens")
                    if before is None
                    else before,
                    tokens_after=whole_at(told, "postTokens")
                    if after is None
                    else after,
                )
            )
        case "task_notification":
            call = text_at(event, "tool_use_id")
            for invocation in trace.invocations.values():
                if invocation.spawned_by == call and call:
                    invocation.status = _status_of_task(text_at(event, "status"))
        case _:
            pass


def _take_assistant(trace: Trace, event: Event) -> None:
    trace.is_retrying = False
    message = object_at(event, "message")
    invocation = _invocation(trace, event)
    if text_at(message, "model") == SYNTHETIC:
        if text_at(event, "error") or event.get("is_api_error_message") is True:
            trace.failures.append(event)
        return
    trace.has_begun = True
    invocation.last_told = "model"
    call = text_at(message, "id")
    if call:
        invocation.calls[call] = None
    if invocation.id == INVOCATION_ID:
        trace.model = text_at(message, "model") or trace.model
        if call:
            trace.usages[call] = object_at(message, "usage")
    for block in blocks_of(event):
        match block.get("type"):
            case "thinking":
                invocation.thoughts.append(text_at(block, "thinking"))
            case "text":
                _say(invocation, text_at(block, "text"))
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                _call(trace, invocation, block, event)
            case _:
                pass


def _take_user(trace: Trace, event: Event) -> None:
    trace.is_retrying = False
    invocation = _invocation(trace, event)
    for block in blocks_of(event):
        if block.get("type") == "tool_result":
            invocation.last_told = "tool"
            _answer(trace, invocation, block, event)
        elif block.get("type") == "text" and text_at(block, "text"):
            invocation.last_told = "user"
            invocation.items.append(_said("user", text_at(block, "text")))


def _call(
    trace: Trace, invocation: Invocation, block: Mapping[str, Json], event: Event
) -> None:
    id = text_at(block, "id")
    if not id or id in trace.tool_calls:
        return
    name = text_at(block, "name")
    trace.tool_calls[id] = ToolCall(
        id=id, name=name, invocation=invocation.id, started_at=time_of(event)
    )
    invocation.items.append(
        {
            "type": "function_call",
            "id": f"fc_{id}",
            "call_id": id,
            "name": name,
            "arguments": written(object_at(block, "input")),
            "status": "completed",
        }
    )


def _answer(
    trace: Trace, invocation: Invocation, block: Mapping[str, Json], event: Event
) -> None:
    id = text_at(block, "tool_use_id")
    call = trace.tool_calls.get(id)
    text = text_of_result(block)
    if call is not None and call.is_answered:
        return
    if call is not None:
        call.is_answered = True
        ended = time_of(event)
        if ended is not None and (call.started_at is None or ended >= call.started_at):
            call.completed_at = ended
        call.status, call.error_type = _how_a_tool_ended(block, event, text)
    invocation.items.append(
        {
            "type": "function_call_output",
            "id": f"fco_{id}",
            "call_id": id,
            "output": text,
            "status": "completed",
        }
    )
    _end_subagent(trace, id, block, event)


def _how_a_tool_ended(
    block: Mapping[str, Json], event: Event, text: str
) -> tuple[str, str | None]:
    told = object_at(event, "tool_use_result")
    for meta in list_at(event, "tool_result_meta"):
        if isinstance(meta, Mapping) and meta.get("non_execution_kind"):
            return "cancelled", text_at(meta, "non_execution_kind")
    if told.get("interrupted") is True:
        return "cancelled", "interrupted"
    if block.get("is_error") is not True:
        return "completed", None
    if _TIMED_OUT in text:
        return "timeout", "timeout"
    if text.startswith("<tool_use_error>"):
        return "failed", "tool_use_error"
    return "failed", "exit_code" if text.startswith("Exit code ") else "error"


def _end_subagent(
    trace: Trace, call: str, block: Mapping[str, Json], event: Event
) -> None:
    invocation = trace.invocations.get(_subagent(call))
    if invocation is None:
        return
    told = object_at(event, "tool_use_result") or object_at(event, "toolUseResult")
    failed = block.get("is_error") is True
    invocation.status = "failed" if failed else _status_of_task(text_at(told, "status"))
    invocation.duration_ms = number_at(told, "totalDurationMs")
    if invocation.last_told != "model" or not _is_message(invocation.items[-1:]):
        texts = [
            text_at(part, "text")
            for part in list_at(told, "content")
            if isinstance(part, Mapping)
        ]
        if texts and texts[-1]:
            # Its last words are told here alone.
            _say(invocation, texts[-1])
            invocation.last_told = "model"


def _status_of_task(status: str) -> str:
    return {"completed": "completed", "failed": "failed"}.get(status, "incomplete")


def _is_message(items: list[Mapping[str, Json]]) -> bool:
    return any(item.get("type") == "message" for item in items)


def _invocation(trace: Trace, event: Event) -> Invocation:
    """Return the conversation that an event belongs to."""
    call = text_at(event, "parent_tool_use_id")
    if not call:
        return trace.root
    id = _subagent(call)
    found = trace.invocations.get(id)
    if found is None:
        spawner = trace.tool_calls.get(call)
        parent = spawner.invocation if spawner is not None else INVOCATION_ID
        found = Invocation(id=id, parent=parent, spawned_by=call)
        trace.invocations[id] = found
    return found


def _subagent(call: str) -> str:
    return f"subagent-{call}"


def _say(invocation: Invocation, text: str) -> None:
    thoughts = _taken_thoughts(invocation)
    number = len(invocation.items)
    invocation.items.append(_message(f"msg_{number}", f"{thoughts}{text}"))


def _flush_thoughts(invocation: Invocation) -> None:
    if any(invocation.thoughts):
        _say(invocation, "")


def _taken_thoughts(invocation: Invocation) -> str:
    texts = [text for text in invocation.thoughts if text]
    invocation.thoughts.clear()
    return "".join(f"<think>{text}</think>\n" for text in texts)


def _message(id: str, text: str) -> Mapping[str, Json]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _said(role: str, text: str) -> Mapping[str, Json]:
    return {"type": "message", "role": role, "content": text}
