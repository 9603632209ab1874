# SPDX-License-Identifier: Apache-2.0
"""The policy `scripted`: turns replayed from a file, so that no model is needed.

A script is a JSON object: task id → turns, in order; `"*"` stands for every other task.
A turn has `calls`, a list of `{"name": …, "arguments": {…}}`, or `text`, or both. When
the turns are over, the model answers with the text `Done.`
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, cast

import attrs

from ....domain.digests import Json
from ....domain.tasks import TaskId
from ....ports.required.faults import Fault
from ..readings import message
from .conversation import CALL, Answer, Item, answers_so_far

ANY_TASK: Final = "*"
LAST_WORDS: Final = "Done."
MODEL: Final = "scripted"
SCRIPT_BYTES_MAX: Final = 64 * 1024 * 1024


@attrs.frozen
class ScriptRefused(Fault):
    """A file is no script."""

    kind: ClassVar[str] = "script_refused"
    message: ClassVar[str] = "{path} is no script: {reason}."

    path: str
    reason: str


@attrs.frozen(kw_only=True)
class ScriptedTurn:
    """One answer of a script."""

    calls: tuple[tuple[str, Mapping[str, Json]], ...] = ()
    """Tools by their names, with their arguments."""
    text: str = ""


Script = Callable[[TaskId], tuple[ScriptedTurn, ...]]
"""Gives the turns of a task."""


@attrs.frozen
class ScriptedPolicy:
    """Says what the script of one task says."""

    turns: tuple[ScriptedTurn, ...]

    async def answer(
        self,
        parameters: Mapping[str, Json],
        items: Sequence[Item],
        tools: Sequence[Item],
    ) -> Answer:
        """Return the turn whose turn it is, by how often the model has spoken."""
        number = answers_so_far(items)
        over = ScriptedTurn(text=LAST_WORDS)
        turn = self.turns[number] if number < len(self.turns) else over
        spoken: list[Item] = [message(turn.text)] if turn.text else []
        for index, (name, arguments) in enumerate(turn.calls):
            spoken.append(
                {
                    "type": CALL,
                    "id": f"fc_{number}_{index}",
                    "call_id": f"call_{number}_{index}",
                    "name": _known(name, tools),
                    "arguments": json.dumps(arguments, ensure_ascii=False),
                    "status": "completed",
                }
            )
        return Answer(items=tuple(spoken), model=MODEL, id=f"resp_{number}")


def read_script(path: Path) -> Script:
    """Return the script of a file.

    Raises:
        ScriptRefused: It cannot be read, or is none.
    """

    def refused(reason: str) -> ScriptRefused:
        return ScriptRefused(str(path), reason)

    try:
        if path.stat().st_size > SCRIPT_BYTES_MAX:
            raise refused(f"it is over {SCRIPT_BYTES_MAX} bytes")
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refused(error.strerror or str(error)) from error
    except ValueError as error:
        raise refused(f"it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise refused("it is no object of task ids")
    turns: dict[str, tuple[ScriptedTurn, ...]] = {}
    for task, listed in cast("Mapping[str, object]", found).items():
        try:
            turns[task] = tuple(map(_turn, _listed(listed)))
        except (TypeError, ValueError, KeyError) as error:
            raise refused(f"the turns of {task!r} are none: {error}") from error
    default = turns.get(ANY_TASK, ())
    return lambda task: turns.get(task.task_id, default)


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("a list is wanted")
    return cast("list[object]", value)


def _turn(value: object) -> ScriptedTurn:
    if not isinstance(value, dict):
        raise TypeError("a turn is an object")
    given = cast("Mapping[str, object]", value)
    if unknown := set(given) - {"calls", "text"}:
        raise ValueError(f"{', '.join(sorted(unknown))} is unknown in a turn")
    text = given.get("text", "")
    if not isinstance(text, str):
        raise TypeError("text is a text")
    return ScriptedTurn(
        calls=tuple(map(_call, _listed(given.get("calls", [])))), text=text
    )


def _call(value: object) -> tuple[str, Mapping[str, Json]]:
    if not isinstance(value, dict):
        raise TypeError("a call is an object")
    given = cast("Mapping[str, Json]", value)
    name, arguments = given["name"], given.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise TypeError("a call has a name and an object of arguments")
    return name, arguments


def _known(name: str, tools: Sequence[Item]) -> str:
    """Return the tool's name as it was granted: a server may put its own before it."""
    names = [str(tool.get("name")) for tool in tools]
    if name in names:
        return name
    longer = [known for known in names if known.endswith(f"__{name}")]
    return longer[0] if len(longer) == 1 else name
