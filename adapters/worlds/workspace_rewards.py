# SPDX-License-Identifier: Apache-2.0
"""Reading what a grader left: its mark at the end of its output, and its reward.

A reward is any finite number. What cannot be read as one is told with its reason,
and is then the grader's fault, not the agent's.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, assert_never

import attrs

from ...domain.digests import Json
from ...ports.required.sandbox import Ended, Exited, Output
from .strict import shown
from .workspace_task import ExitCode, JsonFile, NumberFile, Reward

_NUMBER: Final = re.compile(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_BLANKS: Final = b" \t\r\f\v"


@attrs.frozen(kw_only=True)
class ReadReward:
    """What was read: the reward, or why there is none."""

    reward: float | None = None
    reason: str = ""
    details: Mapping[str, Json] = attrs.field(factory=dict[str, Json])


def ends_with(output: Output, mark: str) -> bool:
    """Tell whether the last line that is not blank is the mark, whole and alone."""
    kept = output.tail if output.dropped else output.head + output.tail
    before, _, last = kept.rstrip(_BLANKS + b"\n").rpartition(b"\n")
    if output.dropped and not before:
        # The line may have begun in what was dropped.
        return False
    return last.strip(_BLANKS) == mark.encode()


def read_reward(reward: Reward, ended: Ended, file: bytes | None) -> ReadReward:
    """Return the reward of a grader that ended by itself; `file` is what it wrote."""
    match reward:
        case ExitCode():
            return ReadReward(reward=1.0 if ended.how == Exited(0) else 0.0)
        case NumberFile(path=path):
            return _of_file(path, file) or _of_number(path, file or b"")
        case JsonFile(path=path):
            return _of_file(path, file) or _of_json(path, file or b"")
        case _:
            assert_never(reward)


def _of_file(path: str, file: bytes | None) -> ReadReward | None:
    if file is None:
        return _unreadable(path, "is no file, or too large")
    if not file.strip():
        return _unreadable(path, "is empty: the grader wrote no reward")
    return None


def _of_number(path: str, file: bytes) -> ReadReward:
    text = file.strip()
    if not _NUMBER.fullmatch(text):
        found = shown(text.decode(errors="replace"))
        return _unreadable(path, f"holds {found}, must hold a finite number alone")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        return _unreadable(path, "holds a number that is too large")
    return ReadReward(reward=number)


def _of_json(path: str, file: bytes) -> ReadReward:
    try:
        found: Json = json.loads(file)
        # What is kept must be written again: no NaN, no half of a surrogate pair.
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return _unreadable(path, f"is not JSON in UTF-8: {error}")
    if not isinstance(found, dict):
        return _unreadable(path, 'must hold an object, {"reward": 1.0} say')
    reward = found.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return _unreadable(path, f"has reward {shown(reward)}, must be a number")
    details = {key: value for key, value in found.items() if key != "reward"}
    try:
        return ReadReward(reward=float(reward), details=details)
    except OverflowError:
        return _unreadable(path, "has a reward that is too large")


def _unreadable(path: str, reason: str) -> ReadReward:
    return ReadReward(reason=f"the reward file {path} {reason}")
