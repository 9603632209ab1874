# SPDX-License-Identifier: Apache-2.0
"""The options of the harness `simple`, and how it is made of them."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

import attrs

from ..adapters.harnesses.simple import (
    ModelApi,
    SimpleConfig,
    SimpleHarness,
    read_script,
)
from ..adapters.harnesses.simple.config import MAX_STEPS
from ..adapters.harnesses.simple.scripts import Script, ScriptedTurn
from ..domain.tasks import TaskId
from ..ports.required.faults import Fault
from ..ports.required.harness import Harness
from ..ports.required.task_source import CallSolutions
from .plug_ins import Surroundings
from .secret_references import Secret
from .setting_words import Name, Range, Seconds, doc

MODEL_POLICY: Final = "model"
SCRIPTED: Final = "scripted:"
SOLUTIONS: Final = "solutions"

_CONFIG: Final = SimpleConfig()
Apis = Literal["responses", "chat_completions"]


@attrs.frozen
class PolicyRefused(Fault):
    """What is to say the next thing is not to be had."""

    kind: ClassVar[str] = "policy_refused"
    message: ClassVar[str] = (
        "Harness {harness} cannot take policy {policy!r}: {reason}."
    )

    harness: str
    policy: str
    reason: str


@attrs.frozen(kw_only=True)
class SimpleOptions:
    """Options of the harness `simple`."""

    policy: Name = attrs.field(
        default=MODEL_POLICY,
        metadata=doc(
            "model: the model at model_url. scripted:PATH: the turns of a file."
            " scripted:solutions: the calls that solve each task, where its world knows"
            " them."
        ),
    )
    model_url: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "The model's server, without /v1. none: the one of [model], with its"
            " credential."
        ),
    )
    api: Apis = attrs.field(
        default="responses", metadata=doc("How the model's server is spoken to.")
    )
    model: Name | None = attrs.field(
        default=None, metadata=doc("The model, where the request names none.")
    )
    credential: Secret | None = attrs.field(
        default=None,
        metadata=doc("Sent to it as a bearer token. none: the server wants none."),
    )
    rollout_prefix: bool = attrs.field(
        default=False,
        metadata=doc("Whether a call's path carries the rollout's name, for NeMo Gym."),
    )
    max_steps: Annotated[int, Range(least=1, most=100_000)] = attrs.field(
        default=MAX_STEPS,
        metadata=doc("How many calls to the model an activation makes at most."),
    )
    stepwise: bool = attrs.field(
        default=False,
        metadata=doc("Whether an activation is one call to the model and its tools."),
    )
    call_timeout_seconds: Seconds = attrs.field(
        default=_CONFIG.call_seconds,
        metadata=doc(
            "How long one call to the model or to a tool may take. The error is"
            " model_failed or tools_failed."
        ),
    )


def simple_harness(surroundings: Surroundings, options: SimpleOptions) -> Harness:
    """Return the harness.

    Raises:
        PolicyRefused, ScriptRefused: As they say.
    """
    url, credential = options.model_url, options.credential
    if url is None:
        url, credential = surroundings.model_url, surroundings.model_credential
    config = SimpleConfig(
        model_url=None if url is None else url.rstrip("/"),
        api=ModelApi(options.api),
        model=options.model,
        credential=None
        if credential is None
        else credential.revealed(surroundings.secrets),
        rollout_prefix=options.rollout_prefix,
        max_steps=options.max_steps,
        stepwise=options.stepwise,
        timeout_seconds=surroundings.turn_timeout_seconds,
        call_seconds=options.call_timeout_seconds,
    )
    script = _script(surroundings, options, has_model=url is not None)
    return SimpleHarness(config=config, script=script)


def _script(
    surroundings: Surroundings, options: SimpleOptions, *, has_model: bool
) -> Script | None:
    def refused(reason: str) -> PolicyRefused:
        return PolicyRefused(surroundings.name, options.policy, reason)

    if options.policy == MODEL_POLICY:
        if not has_model:
            raise refused("neither model_url nor [model] says where the model is")
        return None
    if not options.policy.startswith(SCRIPTED):
        raise refused("it is model, scripted:PATH or scripted:solutions")
    named = options.policy.removeprefix(SCRIPTED)
    if named != SOLUTIONS:
        return read_script(Path(named))
    if surroundings.called_solutions is None:
        raise refused(
            "the calls that solve a task are known to `livery run` alone, and there to"
            " sources like desk; without them name scripted:PATH"
        )
    return solving(surroundings.called_solutions)


def solving(solutions: CallSolutions) -> Script:
    """Return the script that solves each task, one call a turn."""

    def turns(task: TaskId) -> tuple[ScriptedTurn, ...]:
        return tuple(
            ScriptedTurn(calls=((call.tool, call.arguments),))
            for call in solutions.calls(task)
        )

    return turns
