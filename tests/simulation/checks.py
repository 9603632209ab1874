# SPDX-License-Identifier: Apache-2.0
"""The rules that always hold, read off what stands after a life and at the end.

Rules 1, 2, 5 and 8 are also watched while it happens (`outside.py`).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from livery.domain import agent_sessions, claims, episodes, places, resources_sessions
from livery.domain.digests import Json
from livery.domain.resources_sessions import ResourcesSessionId
from livery.domain.rollouts import RecordKind
from livery.domain.tasks import EpisodeId, Task, TaskId
from livery.ports.provided.open_resources import claim_of

from .outside import Outside
from .players import solves


def after_a_life(outside: Outside) -> None:
    """Rule 3, at any moment: what is there is known, or came late and is listed."""
    now = outside.now
    for (category, key), events in outside.ledger.items():
        if category == "resources_sessions" and _has_ended(category, events):
            session = resources_sessions.DECIDER.replay(events)
            # What a seed left that came to nothing is the reaper's, and listed.
            claim = claim_of(ResourcesSessionId(key), session)
            if outside.claim(claim).open:
                outside.broken(3, f"{key} is closed and its claim {claim} is not")
    for box in outside.boxes:
        claim = outside.claim(box.claim)
        if box.alive(now) and not claim.open and not box.late:
            outside.broken(3, f"{box.name} of {box.claim} is forgotten: {claim.phase}")
        if box.alive(now) and claim.open and claim.requested is None:
            outside.broken(3, f"{box.name} belongs to nobody")


def at_the_end(
    outside: Outside, tasks: Mapping[TaskId, Task], *, disturbed: bool
) -> None:
    """Everything that a complete run promises."""
    nothing_is_left(outside)
    _every_rollout_has_one_measure(outside)
    for row in outside.results.rows:
        _row_is_true(outside, tasks, row, disturbed=disturbed)


def nothing_is_left(outside: Outside) -> None:
    """Rule 3, at the end: no sandbox lives, and everything that began is over."""
    now = outside.now
    for box in outside.boxes:
        if box.alive(now):
            outside.broken(3, f"{box.name} of {box.claim} is left at the end")
    for (category, key), events in outside.ledger.items():
        if not _has_ended(category, events) and not _was_said_to_be_open(
            outside, category, key
        ):
            outside.broken(3, f"{category}/{key} is open: {events[-1]}")


def no_permit_is_held(outside: Outside, alive: Collection[str]) -> None:
    """Rule 10: when every session is over, no living process has a place for one.

    Nor does one note that somebody waits there for another's.
    """
    for (category, key), events in outside.ledger.items():
        if category in ("places", "waits"):
            taken = places.DECIDER.replay(events).taken
            if taken is not None and taken.holder in alive:
                outside.broken(10, f"{taken.ticket} of {taken.holder} keeps {key}")


def _has_ended(category: str, events: list[Any]) -> bool:
    match category:
        case "claims":
            return not claims.DECIDER.replay(events).open
        case "episodes":
            return episodes.DECIDER.replay(events).phase == "done"
        case "agent_sessions":
            return agent_sessions.DECIDER.replay(events).phase in ("closed", "absent")
        case "resources_sessions":
            return resources_sessions.DECIDER.replay(events).phase == "closed"
        case "places" | "waits":
            return True  # That of a process that has ended is free.
        case _:
            raise AssertionError(f"nothing writes {category} here")


def _was_said_to_be_open(outside: Outside, category: str, key: str) -> bool:
    """A session that could not be closed is said so in its episode."""
    if category == "claims":
        return False
    return any(
        session == key and who in dict(episodes.DECIDER.replay(events).unclosed)
        for (kind, _), events in outside.ledger.items()
        if kind == "episodes"
        for who, session in (
            (event.participant, event.session)
            for event in events
            if isinstance(event, episodes.CleanupOwed)
        )
    )


def _every_rollout_has_one_measure(outside: Outside) -> None:
    records = outside.results.kept
    attempts = Counter(record.episode for record in records)
    measured = Counter(
        record.episode.rollout_id
        for record in records
        if record.kind in (RecordKind.PASSED, RecordKind.FAILED)
    )
    for episode, count in attempts.items():
        if count > 1:
            outside.broken(6, f"{episode} has {count} rows")
    for rollout, count in measured.items():
        if count > 1:
            outside.broken(6, f"{rollout} was measured {count} times")


def _row_is_true(
    outside: Outside,
    tasks: Mapping[TaskId, Task],
    row: Mapping[str, Json],
    *,
    disturbed: bool,
) -> None:
    name, which = _object(row["episode_id"]), _object(row["task_id"])
    episode = EpisodeId(str(name["rollout_id"]), int(str(name["attempt"])))
    task = tasks[TaskId(str(which["taskset"]), str(which["task_id"]))]
    result, failure = row["result"], row["failure"]
    if (result is None) is (failure is None):
        outside.broken(6, f"{episode.key} has a result and a failure, or neither")
    if result is None:
        if not disturbed:
            outside.broken(6, f"{episode.key} failed for no reason: {failure}")
        if _object(failure)["terminal"]:
            outside.broken(6, f"{episode.key} blames a good request: {failure}")
        return
    told = _object(result)
    if told["ng_agent_observations"] is None:
        outside.broken(7, f"{episode.key} lost what was observed")
    if told["mask_sample"]:
        if not told["failure_kind"] or not disturbed:
            outside.broken(6, f"{episode.key} is masked: {told['failure_reason']}")
        return
    ran = outside.starts[episode.key]
    honest = task.task_data["grader"] == "ends"
    starved = any(episode.key in box.starved for box in outside.boxes)
    wanted = 1.0 if honest and solves(task) and not starved else 0.0
    if told["reward"] != wanted or ran != 1:
        outside.broken(
            6,
            f"{episode.key} was measured {told['reward']}, it is worth {wanted};"
            f" its harness started {ran} times",
        )


def _object(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping)
    return value
