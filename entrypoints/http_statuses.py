# SPDX-License-Identifier: Apache-2.0
"""The HTTP status of every refusal and fault, by its kind.

400 unreadable, 401 and 403 not allowed, 404 unknown, 409 conflict or closed,
422 understood but not accepted, 429 queue full, 500 unusable is what we keep or
how we were set up, 502 the provider failed, 503 shutting down or no room, 504
deadline, 507 no space left. A test demands a line here for each class.
Kinds of other people's plug-ins, which cannot stand here, take the status of
what they are: a rule's no, or something outside broken.
"""

from ..domain.refusals import Refusal
from ..ports.required.faults import Fault

OTHER_REFUSAL = 422
OTHER_FAULT = 502

STATUSES: dict[str, int] = {
    # Unreadable.
    "not_json": 400,
    # Not allowed.
    "artifact_forbidden": 403,
    "file_forbidden": 403,
    "not_the_borrower": 403,
    "not_the_stager": 403,
    # Unknown.
    "activation_unknown": 404,
    "artifact_missing": 404,
    "file_missing": 404,
    "session_unknown": 404,
    # In conflict, or closed.
    "activation_conflict": 409,
    "activation_unfinished": 409,
    "already_lent": 409,
    "calls_ended": 409,
    "claim_conflict": 409,
    "claim_not_usable": 409,
    "claim_taken": 409,
    "episode_conflict": 409,
    "episode_elsewhere": 409,
    "episode_mismatch": 409,
    "episode_out_of_step": 409,
    "grant_lost": 409,
    "harness_may_write": 409,
    "not_expired_yet": 409,
    "place_is_taken": 409,
    "resources_conflict": 409,
    "resources_not_usable": 409,
    "results_folder_refused": 409,
    "runtime_conflict": 409,
    "runtime_unverified": 409,
    "sandbox_in_use": 409,
    "second_sandbox": 409,
    "seed_conflict": 409,
    "session_closed": 409,
    "session_closing": 409,
    "staging_under_way": 409,
    "still_retained": 409,
    "stream_moved": 409,
    "ticket_taken": 409,
    # Understood, but not accepted.
    "bad_address": 422,
    "bad_name": 422,
    "bad_target": 422,
    "born_expired": 422,
    "call_refused": 422,
    "command_missing": 422,
    "image_missing": 422,
    "libc_too_old": 422,
    "model_missing": 422,
    "model_url_refused": 422,
    "never_fits": 422,
    "no_solution": 422,
    "not_a_file": 422,
    "path_refused": 422,
    "platform_unknown": 422,
    "plug_in_unknown": 422,
    "policy_refused": 422,
    "prefix_refused": 422,
    "request_refused": 422,
    "runtime_missing": 422,
    "runtime_not_mounted": 422,
    "runtime_rejected": 422,
    "script_refused": 422,
    "settings_refused": 422,
    "solutions_missing": 422,
    "spec_refused": 422,
    "task_refused": 422,
    "tasks_refused": 422,
    "unsupported": 422,
    "url_refused": 422,
    # Too much at once.
    "admission_full": 429,
    # What we keep, or how we were set up, is unusable.
    "address_taken": 500,
    "apps_unusable": 500,
    "artifact_damaged": 500,
    "artifact_store_unusable": 500,
    "extra_missing": 500,
    "gateway_not_served": 500,
    "journal_of_another": 500,
    "journal_too_new": 500,
    "journal_unusable": 500,
    "keep_alive_too_long": 500,
    "nemo_gym_missing": 500,
    "plug_in_broken": 500,
    "plug_in_twice": 500,
    "registry_unknown": 500,
    "result_log_unusable": 500,
    "row_damaged": 500,
    "row_refused": 500,
    "runtime_cache_unusable": 500,
    "secret_missing": 500,
    "state_folder_unusable": 500,
    # The provider, or another one outside, failed.
    "channel_ended": 502,
    "create_failed": 502,
    "destroy_failed": 502,
    "environment_absent": 502,
    "http_failed": 502,
    "launch_failed": 502,
    "model_failed": 502,
    "participant_failed": 502,
    "provider_forbidden": 502,
    "provider_unreachable": 502,
    "relay_failed": 502,
    "run_lost": 502,
    "run_stuck": 502,
    "runtime_unavailable": 502,
    "sandbox_failed": 502,
    "sandbox_lost": 502,
    "tools_unreachable": 502,
    "tools_failed": 502,
    "transfer_cut": 502,
    "tree_not_moved": 502,
    "worker_failed": 502,
    "workspace_unavailable": 502,
    # Shutting down, or no room.
    "admission_shut": 503,
    "lease_lost": 503,
    "capacity_exhausted": 503,
    "gateway_full": 503,
    "secrets_full": 503,
    # A deadline.
    "close_late": 504,
    # No space left.
    "disk_full": 507,
    "runtime_too_large": 507,
}


def status_of(fact: Refusal | Fault) -> int:
    """Return the status that tells a client of `fact`."""
    other = OTHER_REFUSAL if isinstance(fact, Refusal) else OTHER_FAULT
    return STATUSES.get(fact.kind, other)
