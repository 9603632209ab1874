# SPDX-License-Identifier: Apache-2.0
"""The harness `simple`: ask the model, call its tools, until it asks for none.

It runs on this host and needs no sandbox. Told to be stepwise, an activation is one
call to the model and the tool calls of its answer; the conversation so far comes with
the request. What a model's or a tools' server could not do is no fault of the agent's.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp
import anyio
import attrs

from ....domain.activations import Outcome
from ....domain.digests import Json
from ....ports.required.harness import (
    Capture,
    HarnessRequest,
    Launch,
    Observations,
    Place,
    Reading,
    RequestRefused,
    ToolTransport,
)
from ....ports.required.sandbox_provider import Capabilities
from ..readings import message, observed, outcome_without_run, reason_of
from .chat import TRANSLATED
from .config import ModelApi, SimpleConfig
from .conversation import (
    Answer,
    Item,
    ModelFailed,
    Policy,
    ToolsFailed,
    arguments_of,
    given_items,
    result_of,
    summed,
)
from .models import ModelPolicy
from .observing import Seen
from .scripts import Script, ScriptedPolicy
from .tools import GrantedTools

NAME: Final = "simple"
ROOT: Final = "responses_create_params"

_IMPOSSIBLE: Final[Mapping[str, tuple[Json, ...]]] = {
    "background": (None, False),
    "conversation": (None,),
    "previous_response_id": (None,),
    "prompt": (None,),
    "stream": (None, False),
}
"""Fields that can only be these: there is one conversation, and it comes whole."""


@attrs.frozen(kw_only=True)
class SimpleHarness:
    """The `HostHarness` of a model, or of a script."""

    config: SimpleConfig
    script: Script | None = None
    """What stands in for a model."""

    @property
    def name(self) -> str:
        """The short word in configuration, results and messages."""
        return NAME

    @property
    def stepwise(self) -> bool:
        """Whether one activation is one step of a longer conversation."""
        return self.config.stepwise

    @property
    def needs(self) -> Capabilities:
        """It needs nothing of a sandbox."""
        return frozenset()

    @property
    def tool_transports(self) -> frozenset[ToolTransport]:
        """It calls tools either way."""
        return frozenset(ToolTransport)

    @property
    def calls_tools_inside(self) -> bool:
        """It calls them from this host."""
        return False

    def check(self, request: HarnessRequest) -> None:
        """Raise `RequestRefused` with the field for what cannot be honoured."""
        for name, value in request.parameters.items():
            if value not in _IMPOSSIBLE.get(name, (value,)):
                raise _refused(name, "it is not honoured; leave it out")
            chat = self.config.api is ModelApi.CHAT_COMPLETIONS and self.script is None
            if chat and value is not None and name not in TRANSLATED:
                raise _refused(name, "a chat completion has no way to honour it")
        self._check_input(request.parameters.get("input"))
        tools = request.parameters.get("tools")
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if not isinstance(tool, Mapping) or tool.get("type") != "function":
                raise _refused(f"tools[{index}].type", "only functions can be called")

    def begin(self, request: HarnessRequest, place: Place) -> "SimpleRun":
        """Return the run of one request."""
        return SimpleRun(harness=self, request=request)

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Put nothing down: nothing runs in a sandbox."""
        return Launch()

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Read a run that this process knows nothing of."""
        outcome = outcome_without_run(capture)
        return Reading(
            outcome=outcome,
            reason=reason_of(capture, outcome),
            observations=observed(NAME, capture, outcome, conversation=(), gaps=()),
        )

    def _check_input(self, given: Json) -> None:
        if isinstance(given, str):
            return
        if not isinstance(given, list) or not given:
            raise _refused("input", "it must be text or a list of items")
        for index, item in enumerate(given):
            if not isinstance(item, Mapping):
                raise _refused(f"input[{index}]", "it must be an item, an object")


@attrs.define(kw_only=True)
class SimpleRun:
    """One activation under way, or over."""

    harness: SimpleHarness
    request: HarnessRequest
    said: list[Item] = attrs.field(factory=list[Item], init=False)
    """What was added to the conversation."""
    seen: Seen = attrs.field(factory=Seen, init=False)
    outcome: Outcome = attrs.field(default=Outcome.INCOMPLETE, init=False)
    reason: str = attrs.field(default="", init=False)
    upstream_failed: bool = attrs.field(default=False, init=False)
    _answers: list[Answer] = attrs.field(factory=list[Answer], init=False)

    async def carry_out(self) -> None:
        """Run to the end; cancelling ends it, and what was done until then is kept."""
        config = self.harness.config
        with anyio.move_on_after(config.timeout_seconds):
            try:
                async with aiohttp.ClientSession(
                    cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
                ) as http:
                    await self._loop(http)
            except ModelFailed as failed:
                self._end_without_model(failed)
            except ToolsFailed as failed:
                self._end(Outcome.FAILED, str(failed), upstream_failed=True)
            return
        self._end(
            Outcome.TIMEOUT, f"the turn took longer than {config.timeout_seconds:g} s"
        )

    def reading(self, *, stopped: bool) -> Reading:
        """Read what was done so far."""
        outcome = Outcome.CANCELLED if stopped else self.outcome
        reason = "the activation was stopped" if stopped else self.reason
        records = self.seen.records(outcome, self.request.parameters, self.said)
        return Reading(
            outcome=outcome,
            output=tuple(self.said),
            usage=summed([answer.usage for answer in self._answers]),
            model=next((a.model for a in reversed(self._answers) if a.model), ""),
            upstream_failed=self.upstream_failed,
            reason="" if outcome is Outcome.COMPLETED else reason,
            observations=Observations(
                source=NAME, records=records, gaps=self.seen.gaps()
            ),
        )

    async def _loop(self, http: aiohttp.ClientSession) -> None:
        config, parameters = self.harness.config, self.request.parameters
        tools = GrantedTools(
            accesses=self.request.tool_accesses,
            http=http,
            call_seconds=config.call_seconds,
            described=_described(parameters.get("tools")),
        )
        await tools.open()
        self.seen.missing = tools.missing
        policy = self._policy(http)
        given = given_items(parameters)
        for _ in range(1 if config.stepwise else config.max_steps):
            answer = await policy.answer(parameters, [*given, *self.said], tools.tools)
            self._answers.append(answer)
            self.seen.answers.append(answer)
            self.said += answer.items
            if not answer.complete:
                reason = "the model's answer was cut at a limit"
                self._end(Outcome.INCOMPLETE, reason)
                return
            if not answer.calls:
                self._end(Outcome.COMPLETED)
                return
            for call in answer.calls:
                self.said.append(result_of(call, await self._call(tools, call)))
        if config.stepwise:
            self._end(Outcome.COMPLETED)
        else:
            self._end(Outcome.INCOMPLETE, f"{config.max_steps} steps were made")

    async def _call(self, tools: GrantedTools, call: Item) -> str:
        name, arguments = str(call.get("name")), arguments_of(call)
        with self.seen.calling(str(call.get("call_id")), name) as seen:
            if isinstance(arguments, str):
                seen.failed = True
                return arguments
            called = await tools.call(name, arguments)
            seen.failed = called.refused
            return called.text

    def _policy(self, http: aiohttp.ClientSession) -> Policy:
        if self.harness.script is not None:
            return ScriptedPolicy(self.harness.script(self.request.task))
        return ModelPolicy(self.harness.config, self.request, http)

    def _end_without_model(self, failed: ModelFailed) -> None:
        if failed.too_long:
            self._end(Outcome.INCOMPLETE, "the conversation is too long for the model")
            return
        self._end(Outcome.FAILED, str(failed), upstream_failed=True)

    def _end(
        self, outcome: Outcome, reason: str = "", *, upstream_failed: bool = False
    ) -> None:
        self.outcome, self.reason = outcome, reason
        self.upstream_failed = upstream_failed
        if upstream_failed and not self.said:
            self.said.append(message(""))


def _described(tools: Json) -> tuple[Item, ...]:
    listed: Sequence[Json] = tools if isinstance(tools, list) else ()
    return tuple(tool for tool in listed if isinstance(tool, Mapping))


def _refused(field: str, reason: str) -> RequestRefused:
    return RequestRefused(harness=NAME, field=f"{ROOT}.{field}", reason=reason)
