# SPDX-License-Identifier: Apache-2.0
"""Records: every event is read as it was written, and nothing else is read."""

import json
from typing import cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.journals.records import (
    KINDS,
    Record,
    Unreadable,
    from_record,
    to_record,
)
from livery.domain.claims import Claim
from livery.domain.failures import Failure, FailureKind, Stage
from livery.ports.required.journal import ENDS, Event

from .events import CLASSES, events

FAILED = {
    "failure": {"stage": "seed", "kind": "cancelled", "reason": "", "terminal": True},
    "at": 1.5,
}
QUEUED = {
    "episode": {"rollout_id": "r", "attempt": 0},
    "task": {"taskset": "s", "task_id": "t"},
    "request": "d",
    "at": 1.5,
}


def test_every_event_of_the_journal_has_a_kind() -> None:
    assert set(KINDS.values()) == set(CLASSES)
    assert len(set(KINDS.values())) == len(KINDS)
    assert set(CLASSES) >= ENDS


def test_kinds_stay_as_files_have_them() -> None:
    # Old files are full of these. A line may be added here, and none changed.
    assert sorted(KINDS) == [
        "activation_ended",
        "activation_started",
        "agent_capture_started",
        "agent_close_failed",
        "agent_close_started",
        "agent_seed_abandoned",
        "agent_seed_given_up",
        "agent_seed_started",
        "agent_session_closed",
        "agent_session_forgotten",
        "agent_session_ready",
        "agent_session_taken_over",
        "agent_setup_failed",
        "claim_borrower_left",
        "claim_creation_doubted",
        "claim_creation_started",
        "claim_expired",
        "claim_handed_back",
        "claim_held",
        "claim_lent",
        "claim_lost",
        "claim_release_failed",
        "claim_release_started",
        "claim_released",
        "claim_requested",
        "claim_taken_over",
        "episode_admitted",
        "episode_cleanup_owed",
        "episode_done",
        "episode_failed",
        "episode_participant_closed",
        "episode_participant_seeded",
        "episode_participant_unclosed",
        "episode_queued",
        "episode_step_ended",
        "episode_taken_over",
        "episode_turn_ended",
        "episode_turn_started",
        "episode_verified",
        "episode_verifying_started",
        "lent_sandbox_use_begun",
        "lent_sandbox_use_ended",
        "place_taken",
        "resources_build_abandoned",
        "resources_build_started",
        "resources_close_failed",
        "resources_close_started",
        "resources_closed",
        "resources_provider_failed",
        "resources_verdict_given",
        "resources_verification_given_up",
        "resources_verification_started",
        "resources_world_built",
        "runtime_installed",
        "runtime_staging_abandoned",
        "runtime_staging_started",
        "runtime_verification_failed",
        "runtime_verified",
    ]


@given(events)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    record = to_record(event)
    read = from_record(record)

    assert read == event
    assert type(read) is type(event)
    assert record.body.isascii()
    assert to_record(read) == record


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_no_kind_of_event_is_left_out(kind: type[Event]) -> None:
    @given(st.from_type(kind))
    def check(event: Event) -> None:
        assert from_record(to_record(event)) == event

    check()


def test_words_come_back_as_words() -> None:
    event = from_record(Record("episode_failed", json.dumps(FAILED)))

    failure = cast(Failure, attrs.asdict(event, recurse=False)["failure"])
    assert failure == Failure(
        stage=Stage.SEED, kind=FailureKind("cancelled"), reason="", terminal=True
    )
    assert type(failure.stage) is Stage


@given(events, st.data())
def test_a_field_too_few_or_too_many_is_refused(
    event: Event, data: st.DataObject
) -> None:
    record = to_record(event)
    fact = json.loads(record.body)
    # What an event got later has a default, so that older files stay readable.
    needed = [f.name for f in attrs.fields(type(event)) if f.default is attrs.NOTHING]
    missing = data.draw(st.sampled_from(sorted(needed)))
    short = {key: value for key, value in fact.items() if key != missing}

    for wrong in (short, {**fact, "surplus": 1}):
        with pytest.raises(Unreadable, match=f"surplus|{missing}"):
            from_record(Record(record.kind, json.dumps(wrong)))


@given(events, st.data())
def test_a_value_of_another_type_is_refused(event: Event, data: st.DataObject) -> None:
    record = to_record(event)
    fact = json.loads(record.body)
    field = data.draw(st.sampled_from(sorted(fact)))
    for wrong in (1.5, "text", True, [], {}, ["x"], {"x": 1}, 10**400, float("nan")):
        if _is_of_its_kind(wrong, fact[field]):
            continue
        with pytest.raises(Unreadable):
            from_record(Record(record.kind, json.dumps({**fact, field: wrong})))


def _is_of_its_kind(value: object, sample: object) -> bool:
    """Whether `value` may stand where `sample` does; None tells nothing of a kind."""
    if sample is None:
        return not isinstance(value, list | dict | bool)
    return (
        type(value) is type(sample) and value == value and not isinstance(value, dict)
    )


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("horse_fed", "{}", "the kind 'horse_fed' is unknown"),
        ("episode_done", "", "no JSON"),
        ("episode_done", '{"at": 1', "no JSON"),
        ("episode_done", "[" * 100_000, "no JSON"),
        ("episode_done", "[]", "episode_done"),
        ("episode_done", '"at"', "episode_done"),
        ("episode_done", "null", "episode_done"),
        ("episode_done", '{"at": NaN}', r"\$\.at"),
        ("episode_done", '{"at": 1e999}', r"\$\.at"),
        ("episode_done", '{"at": true}', r"\$\.at"),
        ("episode_done", "{}", r"required field missing @ \$\.at"),
        (
            "episode_failed",
            json.dumps({**FAILED, "failure": {**FAILED["failure"], "stage": "stable"}}),  # type: ignore[dict-item]
            r"\$\.failure\.stage",
        ),
        (
            "episode_failed",
            json.dumps({**FAILED, "failure": {**FAILED["failure"], "terminal": 0}}),  # type: ignore[dict-item]
            r"\$\.failure\.terminal",
        ),
        (
            "episode_queued",
            json.dumps({**QUEUED, "episode": {"rollout_id": "-", "attempt": 0}}),
            r"\$\.episode",
        ),
        (
            "episode_queued",
            json.dumps({**QUEUED, "episode": {"rollout_id": "r", "attempt": True}}),
            r"\$\.episode\.attempt",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(kind: str, body: str, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        from_record(Record(kind, body))


def test_a_whole_number_is_a_moment_too() -> None:
    event = from_record(Record("episode_done", '{"at": 5}'))

    assert attrs.asdict(event) == {"at": 5.0}


def test_what_is_no_event_is_a_bug_of_the_writer() -> None:
    with pytest.raises(AssertionError, match="Claim is no event"):
        to_record(Claim())
