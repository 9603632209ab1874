# SPDX-License-Identifier: Apache-2.0
"""Responses items as Chat Completions messages, and the answer back as items."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from ....domain.digests import Json
from ..readings import message
from .conversation import CALL, RESULT, Answer, Item

RENAMED: Final[Mapping[str, str]] = {
    "max_output_tokens": "max_completion_tokens",
    "metadata": "metadata",
    "model": "model",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
    "store": "store",
    "temperature": "temperature",
    "top_logprobs": "top_logprobs",
    "top_p": "top_p",
    "user": "user",
}
"""Fields that both have, by the names in requests and in chats."""
TRANSLATED: Final = frozenset(
    {*RENAMED, "input", "instructions", "reasoning", "tool_choice", "tools"}
)
"""All that a request may set when it is asked as a chat."""


def to_chat(asked: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the request as a chat."""
    messages: list[Json] = []
    if asked.get("instructions"):
        messages.append({"role": "system", "content": asked["instructions"]})
    items = asked["input"]
    assert isinstance(items, Sequence), "a conversation is a list"
    for item in items:
        if isinstance(item, Mapping):
            _add(messages, item)
    chat: dict[str, Json] = {
        RENAMED[name]: value for name, value in asked.items() if name in RENAMED
    }
    chat["messages"] = messages
    tools = asked.get("tools")
    if isinstance(tools, Sequence) and tools:
        chat["tools"] = [_tool(tool) for tool in tools if isinstance(tool, Mapping)]
        choice = asked.get("tool_choice")
        if isinstance(choice, Mapping) and "name" in choice:
            choice = {"type": "function", "function": {"name": choice["name"]}}
        if choice is not None:
            chat["tool_choice"] = choice
    else:
        chat.pop("parallel_tool_calls", None)
    reasoning = asked.get("reasoning")
    if isinstance(reasoning, Mapping) and reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    return chat


def from_chat(told: Mapping[str, Json]) -> Answer:
    """Return the answer of a chat; `KeyError` and the like for what is none."""
    choices = told["choices"]
    if not isinstance(choices, list) or not choices:
        raise TypeError("choices is a list with one in it")
    choice = choices[0]
    if not isinstance(choice, Mapping):
        raise TypeError("a choice is an object")
    said = choice["message"]
    if not isinstance(said, Mapping):
        raise TypeError("a message is an object")
    items: list[Item] = []
    if said.get("content"):
        items.append(message(str(said["content"])))
    for call in _listed(said.get("tool_calls")):
        function = call["function"]
        if not isinstance(function, Mapping):
            raise TypeError("a function is an object")
        items.append(
            {
                "type": CALL,
                "id": call.get("id"),
                "call_id": call["id"],
                "name": function["name"],
                "arguments": function.get("arguments") or "{}",
                "status": "completed",
            }
        )
    return Answer(
        items=tuple(items),
        usage=_usage(told.get("usage")),
        model=str(told.get("model") or ""),
        id=str(told.get("id") or ""),
        complete=choice.get("finish_reason") != "length",
    )


def _add(messages: list[Json], item: Item) -> None:
    kind = item.get("type")
    if kind == CALL:
        call: Json = {
            "id": item.get("call_id"),
            "type": "function",
            "function": {
                "name": item.get("name"),
                "arguments": item.get("arguments"),
            },
        }
        last = messages[-1] if messages else None
        if isinstance(last, Mapping) and last.get("role") == "assistant":
            calls = last.get("tool_calls")
            before = list(calls) if isinstance(calls, list) else []
            messages[-1] = {**last, "tool_calls": [*before, call]}
        else:
            messages.append(
                {"role": "assistant", "content": None, "tool_calls": [call]}
            )
    elif kind == RESULT:
        told = item.get("output")
        text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
        messages.append(
            {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
        )
    elif "role" in item:
        messages.append({"role": item["role"], "content": _text(item.get("content"))})


def _text(content: Json) -> Json:
    if isinstance(content, str) or not isinstance(content, Sequence):
        return content
    parts = [str(part.get("text", "")) for part in content if isinstance(part, Mapping)]
    return "\n\n".join(parts)


def _tool(tool: Item) -> Json:
    words = ("name", "description", "parameters", "strict")
    known = {word: tool[word] for word in words if tool.get(word) is not None}
    return {"type": "function", "function": known}


def _listed(value: Json) -> list[Item]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("tool_calls is a list")
    return [each for each in value if isinstance(each, Mapping)]


def _usage(told: Json) -> Mapping[str, Json] | None:
    if not isinstance(told, Mapping):
        return None
    read, written = told.get("prompt_tokens"), told.get("completion_tokens")
    cached, thought = (
        details.get(word, 0) if isinstance(details, Mapping) else 0
        for details, word in (
            (told.get("prompt_tokens_details"), "cached_tokens"),
            (told.get("completion_tokens_details"), "reasoning_tokens"),
        )
    )
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached or 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought or 0},
        "total_tokens": told.get("total_tokens"),
    }
