# SPDX-License-Identifier: Apache-2.0
"""Reading a Responses request for harnesses that take one text and give one back.

What such a harness cannot honour is refused with the field's path; nothing is
ignored. A field that is null, or says what is the case anyway, is as good as unset.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.digests import Json
from ...ports.required.harness import HarnessRequest, RequestRefused

AGENT_TIMEOUT_SECONDS_MAX: Final = 604_800.0
"""Seven days; more is taken for a mistake."""

ROOT: Final = "responses_create_params"

_READ: Final = frozenset({"input", "instructions", "metadata", "model"})
_IDLE: Final[Mapping[str, tuple[Json, ...]]] = {
    "background": (False,),
    "parallel_tool_calls": (True, False),
    "store": (True, False),
    "stream": (False,),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
}
"""Fields with the values that ask for nothing."""
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text"})
_ROLES: Final = ("system", "developer", "user")
_MESSAGE_FIELDS: Final = frozenset({"content", "role", "type"})
_MESSAGE_IDLE_FIELDS: Final = frozenset({"id", "status"})
_NUMBER: Final = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@attrs.frozen(kw_only=True)
class TextRequest:
    """What a request comes to when text is all that is understood."""

    prompt: str
    """The instructions and the messages, in order, a blank line between them."""
    model: str | None = None
    timeout_seconds: float | None = None
    """From `metadata.agent_timeout_sec`."""


@attrs.frozen(kw_only=True)
class PromptRequest:
    """What a request comes to for a harness with a system prompt of its own."""

    prompt: str
    system: str | None = None
    model: str | None = None
    timeout_seconds: float | None = None
    """From `metadata.agent_timeout_sec`."""


def to_prompt_request(
    harness: str, request: HarnessRequest, *, also: frozenset[str] = frozenset()
) -> PromptRequest:
    """Return what is asked for: one user prompt, perhaps after one system message.

    The fields `also` are the harness's own to read.

    Raises:
        RequestRefused: A field asks for anything else.
    """
    return _Reading(harness=harness).prompt_request(request.parameters, also)


def to_text_request(harness: str, request: HarnessRequest) -> TextRequest:
    """Return what is asked for.

    Raises:
        RequestRefused: A field asks for what text in and text out cannot do.
    """
    return _Reading(harness=harness).text_request(request.parameters)


@attrs.frozen(kw_only=True)
class _Reading:
    harness: str

    def text_request(self, parameters: Mapping[str, Json]) -> TextRequest:
        self.check_fields(parameters, _READ)
        texts = [*self.instructions(parameters), *self.texts(parameters.get("input"))]
        return TextRequest(
            prompt="\n\n".join(texts),
            model=self.text(parameters.get("model"), "model") or None,
            timeout_seconds=self.timeout(parameters.get("metadata")),
        )

    def prompt_request(
        self, parameters: Mapping[str, Json], also: frozenset[str]
    ) -> PromptRequest:
        self.check_fields(parameters, (_READ - {"instructions"}) | also)
        system, prompt = self.prompts(parameters.get("input"))
        return PromptRequest(
            prompt=prompt,
            system=system,
            model=self.text(parameters.get("model"), "model") or None,
            timeout_seconds=self.timeout(parameters.get("metadata")),
        )

    def prompts(self, given: Json) -> tuple[str | None, str]:
        if isinstance(given, str) or not isinstance(given, list | tuple):
            (prompt,) = self.texts(given)
            return None, self.filled(prompt, "input")
        texts = self.texts(given)
        roles = [item["role"] for item in given if isinstance(item, Mapping)]
        last = len(roles) - 1
        for index, role in enumerate(roles):
            wanted = "user" if index == last else "system"
            if role != wanted:
                reason = f"it must be {wanted}: one user message, or one after a system"
                raise self.refused(f"input[{index}].role", reason)
        if last > 1:
            reason = "there must be one user message, or one after a system message"
            raise self.refused("input", reason)
        prompt = self.filled(texts[last], f"input[{last}].content")
        return (texts[0] if last else None), prompt

    def filled(self, text: str, path: str) -> str:
        if not text.strip():
            raise self.refused(path, "it must not be empty")
        return text

    def check_fields(
        self, parameters: Mapping[str, Json], known: frozenset[str]
    ) -> None:
        for name, value in parameters.items():
            if name in known or value is None or value in _IDLE.get(name, ()):
                continue
            raise self.refused(name, _not_honoured(name))

    def instructions(self, parameters: Mapping[str, Json]) -> list[str]:
        text = self.text(parameters.get("instructions"), "instructions")
        return [text] if text else []

    def texts(self, given: Json) -> list[str]:
        if isinstance(given, str):
            return [self.text(given, "input")]
        if not isinstance(given, list | tuple) or not given:
            raise self.refused("input", "it must be text or a list of messages")
        return [
            self.message(item, f"input[{index}]") for index, item in enumerate(given)
        ]

    def message(self, item: Json, path: str) -> str:
        if not isinstance(item, Mapping):
            raise self.refused(path, "it must be a message, an object")
        if item.get("type") not in (None, "message"):
            raise self.refused(f"{path}.type", "only messages are understood")
        if item.get("role") not in _ROLES:
            known = ", ".join(_ROLES)
            raise self.refused(f"{path}.role", f"it must be one of {known}")
        for name, value in item.items():
            if name not in _MESSAGE_FIELDS | _MESSAGE_IDLE_FIELDS and value is not None:
                raise self.refused(f"{path}.{name}", "it is not understood")
        return self.content(item.get("content"), f"{path}.content")

    def content(self, content: Json, path: str) -> str:
        if isinstance(content, str):
            return self.text(content, path)
        if not isinstance(content, list | tuple):
            raise self.refused(path, "it must be text or a list of texts")
        texts: list[str] = []
        for index, part in enumerate(content):
            at = f"{path}[{index}]"
            if not isinstance(part, Mapping) or part.get("type") not in _TEXT_PARTS:
                raise self.refused(f"{at}.type", "only text is understood")
            if not isinstance(part.get("text"), str):
                raise self.refused(f"{at}.text", "it must be text")
            texts.append(self.text(part["text"], f"{at}.text"))
        return "\n\n".join(texts)

    def timeout(self, metadata: Json) -> float | None:
        if metadata is None:
            return None
        if not isinstance(metadata, Mapping):
            raise self.refused("metadata", "it must be an object")
        for name, value in metadata.items():
            if name != "agent_timeout_sec" and value is not None:
                reason = "it is not understood; agent_timeout_sec is"
                raise self.refused(f"metadata.{name}", reason)
        asked = metadata.get("agent_timeout_sec")
        return None if asked is None else self.seconds(asked)

    def seconds(self, asked: Json) -> float:
        seconds = _to_number(asked)
        if not 0 < seconds <= AGENT_TIMEOUT_SECONDS_MAX:
            raise self.refused(
                "metadata.agent_timeout_sec",
                "it must be seconds as a number, more than 0,"
                f" at most {AGENT_TIMEOUT_SECONDS_MAX:g}",
            )
        return seconds

    def text(self, text: Json, path: str) -> str:
        if text is None:
            return ""
        if not isinstance(text, str):
            raise self.refused(path, "it must be text")
        try:
            text.encode()
        except UnicodeEncodeError:
            reason = "it holds half of a surrogate pair, which is no text"
            raise self.refused(path, reason) from None
        return text

    def refused(self, field: str, reason: str) -> RequestRefused:
        return RequestRefused(
            harness=self.harness, field=f"{ROOT}.{field}", reason=reason
        )


def _to_number(asked: Json) -> float:
    """Return the number that it is or writes; NaN for anything else."""
    if isinstance(asked, str):
        return float(asked) if _NUMBER.fullmatch(asked) else math.nan
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return math.nan
    try:
        return float(asked)
    except OverflowError:
        return math.inf


def _not_honoured(name: str) -> str:
    if name not in _IDLE:
        return "it has no way to honour it; leave it out"
    # Written as JSON writes them, since that is where the reader will change it.
    words = {True: "true", False: "false"}
    values = [words[v] if isinstance(v, bool) else repr(v) for v in _IDLE[name]]
    return f"it can only be {' or '.join(values)} here, or left out"
