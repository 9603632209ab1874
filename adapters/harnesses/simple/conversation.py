# SPDX-License-Identifier: Apache-2.0
"""What is said between a model, its tools and us, in items of the Responses API."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Protocol

import attrs

from ....domain.digests import Json
from ....ports.provided.json_texts import from_json
from ....ports.required.faults import Fault

Item = Mapping[str, Json]

CALL: Final = "function_call"
RESULT: Final = "function_call_output"


@attrs.frozen(kw_only=True)
class Answer:
    """One answer of the model."""

    items: tuple[Item, ...]
    usage: Mapping[str, Json] | None = None
    model: str = ""
    id: str = ""
    complete: bool = True
    """Whether it came to its end, and was not cut at a limit."""

    @property
    def calls(self) -> tuple[Item, ...]:
        """The tool calls that it asks for."""
        return tuple(item for item in self.items if item.get("type") == CALL)


@attrs.frozen
class ModelFailed(Fault):
    """The model's server gave no answer that can be used."""

    kind: ClassVar[str] = "model_failed"
    message: ClassVar[str] = "The model at {where} gave no answer: {reason}."

    where: str
    reason: str
    too_long: bool = False
    """Whether the prompt is longer than the model takes, which is no failure of it."""


@attrs.frozen
class ToolsFailed(Fault):
    """A server of tools cannot be asked."""

    kind: ClassVar[str] = "tools_failed"
    message: ClassVar[str] = "The tools of {name} cannot be called: {reason}."

    name: str
    reason: str


class Policy(Protocol):
    """What says the next thing: a model, or a script."""

    async def answer(
        self,
        parameters: Mapping[str, Json],
        items: Sequence[Item],
        tools: Sequence[Item],
    ) -> Answer:
        """Return the answer to the conversation so far.

        Raises:
            ModelFailed: There is none.
        """
        ...


def given_items(parameters: Mapping[str, Json]) -> list[Item]:
    """Return the input of a request as items."""
    given = parameters.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    assert isinstance(given, Sequence), "it was checked"
    return [item for item in given if isinstance(item, Mapping)]


def result_of(call: Item, text: str) -> Item:
    """Return the item that answers a tool call."""
    return {
        "type": RESULT,
        "call_id": str(call.get("call_id") or ""),
        "output": text,
        "id": None,
        "status": "completed",
    }


def arguments_of(call: Item) -> Mapping[str, Json] | str:
    """Return the arguments of a call, or what is wrong with them."""
    written = call.get("arguments")
    try:
        found = from_json(written) if isinstance(written, str) else written
    except ValueError as error:
        return f"The arguments are no JSON: {error}."
    return found if isinstance(found, Mapping) else "The arguments are no JSON object."


def answers_so_far(items: Sequence[Item]) -> int:
    """Return how often the model has spoken: each time its items follow another's."""
    count, spoke = 0, False
    for item in items:
        speaks = item.get("type") not in (RESULT, None, "message") or (
            item.get("role") == "assistant"
        )
        count += speaks and not spoke
        spoke = speaks
    return count


def summed(usages: Sequence[Mapping[str, Json] | None]) -> Mapping[str, Json] | None:
    """Return the sums of usages, field by field; None when nobody told any."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    total: dict[str, Json] = {}
    for usage in known:
        for name, value in usage.items():
            before = total.get(name)
            if isinstance(value, Mapping):
                inner = before if isinstance(before, Mapping) else None
                total[name] = summed([inner, value])
            elif isinstance(value, int | float) and isinstance(before, int | float):
                total[name] = before + value
            elif before is None:
                total[name] = value
    return total
