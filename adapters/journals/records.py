# SPDX-License-Identifier: Apache-2.0
"""Records: how a domain event is written in a file, and read again.

A record is the event's kind and a JSON text of its fields. Kinds are listed here,
so that renaming a class leaves old files readable; a kind that was ever written is
never given to another event. Reading is strict: an unknown kind, an unknown key, a
missing one and a value of another type are refused, with the place. The text is
ASCII, so whatever an event holds, no file's encoding can change it.
"""

import json
import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from json import JSONDecodeError
from typing import Final

import attrs
from cattrs import (
    BaseValidationError,
    Converter,
    ForbiddenExtraKeysError,
    transform_error,
)

from ...domain import (
    activations,
    agent_sessions,
    claims,
    episodes,
    lent_sandboxes,
    places,
    runtimes,
)
from ...domain import resources_sessions as resources
from ...domain.refusals import Refusal
from ...ports.required.journal import Event

KINDS: Final[dict[str, type[Event]]] = {
    "activation_ended": activations.ActivationEnded,
    "activation_started": activations.ActivationStarted,
    "agent_capture_started": agent_sessions.CaptureStarted,
    "agent_close_failed": agent_sessions.CloseFailed,
    "agent_close_started": agent_sessions.CloseStarted,
    "agent_seed_abandoned": agent_sessions.SeedAbandoned,
    "agent_seed_given_up": agent_sessions.SeedGivenUp,
    "agent_seed_started": agent_sessions.SeedStarted,
    "agent_session_closed": agent_sessions.SessionClosed,
    "agent_session_forgotten": agent_sessions.SessionForgotten,
    "agent_session_ready": agent_sessions.SessionReady,
    "agent_session_taken_over": agent_sessions.SessionTakenOver,
    "agent_setup_failed": agent_sessions.SetupFailed,
    "claim_borrower_left": claims.BorrowerLeft,
    "claim_creation_doubted": claims.CreationDoubted,
    "claim_creation_started": claims.CreationStarted,
    "claim_expired": claims.ClaimExpired,
    "claim_handed_back": claims.ClaimHandedBack,
    "claim_held": claims.ClaimHeld,
    "claim_lent": claims.ClaimLent,
    "claim_lost": claims.ClaimLost,
    "claim_release_failed": claims.ReleaseFailed,
    "claim_release_started": claims.ReleaseStarted,
    "claim_released": claims.ClaimReleased,
    "claim_requested": claims.ClaimRequested,
    "claim_taken_over": claims.ClaimTakenOver,
    "episode_admitted": episodes.EpisodeAdmitted,
    "episode_cleanup_owed": episodes.CleanupOwed,
    "episode_done": episodes.EpisodeDone,
    "episode_failed": episodes.EpisodeFailed,
    "episode_participant_closed": episodes.ParticipantClosed,
    "episode_participant_seeded": episodes.ParticipantSeeded,
    "episode_participant_unclosed": episodes.ParticipantUnclosed,
    "episode_queued": episodes.EpisodeQueued,
    "episode_step_ended": episodes.StepEnded,
    "episode_taken_over": episodes.EpisodeTakenOver,
    "episode_turn_ended": episodes.TurnEnded,
    "episode_turn_started": episodes.TurnStarted,
    "episode_verified": episodes.EpisodeVerified,
    "episode_verifying_started": episodes.VerifyingStarted,
    "lent_sandbox_use_begun": lent_sandboxes.UseBegun,
    "lent_sandbox_use_ended": lent_sandboxes.UseEnded,
    "place_taken": places.PlaceTaken,
    "resources_build_abandoned": resources.BuildAbandoned,
    "resources_build_started": resources.BuildStarted,
    "resources_close_failed": resources.ResourcesCloseFailed,
    "resources_close_started": resources.ResourcesCloseStarted,
    "resources_closed": resources.ResourcesClosed,
    "resources_provider_failed": resources.ProviderFailed,
    "resources_verdict_given": resources.VerdictGiven,
    "resources_verification_given_up": resources.VerificationGivenUp,
    "resources_verification_started": resources.VerificationStarted,
    "resources_world_built": resources.WorldBuilt,
    "runtime_installed": runtimes.RuntimeInstalled,
    "runtime_staging_abandoned": runtimes.StagingAbandoned,
    "runtime_staging_started": runtimes.StagingStarted,
    "runtime_verification_failed": runtimes.VerificationFailed,
    "runtime_verified": runtimes.RuntimeVerified,
}


@attrs.frozen
class Record:
    """One event as it stands in a file."""

    kind: str
    body: str
    """A JSON object, in ASCII."""


@attrs.frozen
class Unreadable(Exception):
    """The record is of no event that this version knows."""

    reason: str


def to_record(event: object) -> Record:
    """Return the record of a domain event."""
    codec = _BY_TYPE.get(type(event))
    assert codec is not None, f"{type(event).__name__} is no event of the journal"
    return Record(codec.kind, _written(codec.unstructure(event)))


def from_record(record: Record) -> Event:
    """Return the event of a record.

    Raises:
        Unreadable: It is of an unknown kind, or not as such an event is written.
    """
    codec = _BY_KIND.get(record.kind)
    if codec is None:
        raise Unreadable(f"the kind {record.kind!r} is unknown")
    try:
        return codec.structure(json.loads(record.body), codec.event)
    except _WRONG as wrong:
        raise Unreadable(_told(record, codec.event, wrong)) from None


def events_of(
    rows: Sequence[tuple[int, str, str]], *, where: str, after: int, version: int
) -> tuple[Event, ...]:
    """Return the events of a stream's rows: version, kind and body.

    Raises:
        Unreadable: One is missing, or is no event that we know; with the place.
    """
    if [its_version for its_version, _, _ in rows] != list(
        range(after + 1, version + 1)
    ):
        raise Unreadable(
            f"events of {where} are missing: it has {len(rows)}"
            f" behind version {after} and should be at {version}"
        )
    return tuple(_event(where, *row) for row in rows)


@attrs.frozen
class _Codec:
    """How one kind of event is taken apart and put together."""

    kind: str
    event: type[Event]
    unstructure: Callable[[object], object]
    structure: Callable[[object, type[Event]], Event]


_WRONG: Final = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
    ForbiddenExtraKeysError,
    Refusal,
)
"""What JSON, cattrs and the classes raise for a record that does not fit."""

_written: Final[Callable[[object], str]] = json.JSONEncoder(
    allow_nan=False, separators=(",", ":"), check_circular=False
).encode


def _event(where: str, version: int, kind: str, body: str) -> Event:
    try:
        return from_record(Record(kind, body))
    except Unreadable as unreadable:
        raise Unreadable(
            f"event {version} of {where} cannot be read: {unreadable.reason}"
        ) from unreadable


def _told(record: Record, event: type[Event], wrong: Exception) -> str:
    """Say what is wrong and where, without the value, which may be anything."""
    if isinstance(wrong, JSONDecodeError | RecursionError):
        return f"a record of {record.kind} is no JSON that can be read: {wrong}"
    try:
        _TELLING.structure(json.loads(record.body), event)
    except BaseValidationError as group:
        return f"a record of {record.kind} has {'; '.join(transform_error(group))}"
    except _WRONG as told:
        wrong = told
    return f"a record of {record.kind} does not fit: {wrong}"


def _exactly(plain: type) -> Callable[[object, object], object]:
    def taken(value: object, _: object) -> object:
        # Not isinstance: bool is an int to Python, and no number in a record.
        if type(value) is plain:
            return value
        raise TypeError(f"wants {plain}, found {type(value)}")

    return taken


def _number(value: object, _: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number):
            return number
    raise TypeError(f"wants a finite number, found {type(value)}")


def _word(value: object, kind: type[StrEnum]) -> StrEnum:
    if isinstance(value, str):
        return kind(value)
    raise TypeError(f"wants a word, found {type(value)}")


def _converter(*, detailed: bool) -> Converter:
    made = Converter(detailed_validation=detailed, forbid_extra_keys=True)
    for plain in (str, int, bool):
        made.register_structure_hook(plain, _exactly(plain))
    made.register_structure_hook(float, _number)
    # A word is a str as well; cattrs takes the hook of the nearest class.
    made.register_structure_hook(StrEnum, _word)
    return made


_FAST: Final = _converter(detailed=False)
_TELLING: Final = _converter(detailed=True)
"""Collects all that is wrong with its place, at several times the cost."""


def _codec(kind: str, event: type[Event]) -> _Codec:
    return _Codec(
        kind=kind,
        event=event,
        unstructure=_FAST.get_unstructure_hook(event),
        structure=_FAST.get_structure_hook(event),
    )


_BY_KIND: Final = {kind: _codec(kind, event) for kind, event in KINDS.items()}
_BY_TYPE: Final[dict[type, _Codec]] = {
    codec.event: codec for codec in _BY_KIND.values()
}
