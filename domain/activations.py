# SPDX-License-Identifier: Apache-2.0
"""Activations: an agent session's harness starts once per request.

The same request again is answered as before, whether it comes while the first
one runs or after. Another request under the session is a conflict and the first
one stands; a stepwise session takes one request after the other, never two at
once. The started fact is the intent, written before the harness is launched.
"""

from enum import StrEnum
from typing import ClassVar, Final, NewType, assert_never

import attrs

from .claims import Holder
from .deciders import Decider, Instant
from .digests import RequestDigest
from .evolved_values import evolved
from .refusals import Refusal

RunId = NewType("RunId", str)
"""Names one supervised run in a sandbox; made from session and request."""


class Outcome(StrEnum):
    """How an activation ended."""

    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SANDBOX_ERROR = "sandbox_error"
    OOM = "oom"


class Stillness(StrEnum):
    """Why nothing of the harness can still write."""

    NOTHING_RAN = "nothing ran"
    PROCESSES_SEEN_DEAD = "every process was seen dead"
    SANDBOX_FROZEN = "the sandbox is frozen"
    SANDBOX_GONE = "the sandbox was seen gone"


@attrs.frozen(kw_only=True)
class Ending:
    """What came of an activation."""

    outcome: Outcome
    reply: str
    """The reply's JSON text, replayed byte for byte."""
    observations: str = ""
    """The bundle of what was observed, JSON text; empty when there is none."""
    stillness: Stillness | None = None
    """Why nothing of the harness can write any more; None when nobody saw that."""
    upstream_failed: bool = False
    """Whether the model's side failed, by its own record."""
    reason: str = ""
    runtime: str = ""
    """The program that was brought for it, JSON text; empty where none was."""
    seconds: float = 0.0
    """How long the run took, as its supervisor told; 0 where none did."""


@attrs.frozen(kw_only=True)
class Activate:
    """Asks for the harness to be run as `request` describes."""

    request: RequestDigest
    run: RunId
    parameters: str = ""
    """The request itself, JSON text, for who takes the run over."""
    model_prefix: str = ""
    """What goes before the paths of the model of this run."""
    holder: Holder | None = None
    """The process that runs it."""
    at: Instant


@attrs.frozen(kw_only=True)
class EndActivation:
    """Tells how the activation of `request` ended."""

    request: RequestDigest
    ending: Ending
    at: Instant


Command = Activate | EndActivation


@attrs.frozen(kw_only=True)
class ActivationStarted:
    """From here on the harness may have been launched, once."""

    request: RequestDigest
    run: RunId
    parameters: str = ""
    model_prefix: str = ""
    holder: Holder | None = None
    at: Instant


@attrs.frozen(kw_only=True)
class ActivationEnded:
    """The activation is over, and this is its answer from now on."""

    request: RequestDigest
    ending: Ending
    at: Instant


Event = ActivationStarted | ActivationEnded


@attrs.frozen(kw_only=True)
class Activation:
    """One run of the harness, under way until it has an ending."""

    request: RequestDigest
    run: RunId
    parameters: str = ""
    """The request itself, JSON text; empty where it was not kept."""
    model_prefix: str = ""
    ending: Ending | None = None


@attrs.frozen(kw_only=True)
class Activations:
    """The activations of one session, in the order of their start."""

    stepwise: bool = False
    standing: tuple[Activation, ...] = ()

    def of(self, request: RequestDigest) -> Activation | None:
        """Return the activation of `request`, if there is one."""
        return next((a for a in self.standing if a.request == request), None)

    @property
    def under_way(self) -> Activation | None:
        """The activation that has no ending yet, if there is one."""
        return next((a for a in self.standing if a.ending is None), None)


@attrs.frozen
class ActivationConflict(Refusal):
    """Another request holds the session's activation."""

    kind: ClassVar[str] = "activation_conflict"
    message: ClassVar[str] = (
        "The session was activated with request {standing:.12};"
        " request {refused:.12} is another. The first one stands."
    )

    standing: RequestDigest
    refused: RequestDigest


@attrs.frozen
class ActivationUnknown(Refusal):
    """Nothing was started for that request."""

    kind: ClassVar[str] = "activation_unknown"
    message: ClassVar[str] = "No activation was started for request {request:.12}."

    request: RequestDigest


def decide(activations: Activations, command: Command) -> tuple[Event, ...]:
    """Return what happens next, which is nothing when it has happened before.

    Raises:
        ActivationConflict, ActivationUnknown: As they say.
    """
    match command:
        case Activate():
            return _activate(activations, command)
        case EndActivation():
            return _end(activations, command)
        case _:
            assert_never(command)


def evolve(activations: Activations, event: Event) -> Activations:
    """Return the activations after `event`."""
    match event:
        case ActivationStarted():
            started = Activation(
                request=event.request,
                run=event.run,
                parameters=event.parameters,
                model_prefix=event.model_prefix,
            )
            return evolved(activations, standing=(*activations.standing, started))
        case ActivationEnded(request=request, ending=ending):
            standing = tuple(
                evolved(a, ending=ending) if a.request == request else a
                for a in activations.standing
            )
            return evolved(activations, standing=standing)
        case _:
            assert_never(event)


def _activate(activations: Activations, command: Activate) -> tuple[Event, ...]:
    if activations.of(command.request) is not None:
        return ()
    blocking = activations.under_way
    if blocking is None and activations.standing and not activations.stepwise:
        blocking = activations.standing[0]
    if blocking is not None:
        raise ActivationConflict(standing=blocking.request, refused=command.request)
    return (
        ActivationStarted(
            request=command.request,
            run=command.run,
            parameters=command.parameters,
            model_prefix=command.model_prefix,
            holder=command.holder,
            at=command.at,
        ),
    )


def _end(activations: Activations, command: EndActivation) -> tuple[Event, ...]:
    standing = activations.of(command.request)
    if standing is None:
        raise ActivationUnknown(request=command.request)
    if standing.ending is not None:
        return ()
    return (
        ActivationEnded(request=command.request, ending=command.ending, at=command.at),
    )


DECIDER: Final[Decider[Activations, Command, Event]] = Decider(
    initial=Activations(), decide=decide, evolve=evolve
)
