# SPDX-License-Identifier: Apache-2.0
"""The HTTP status of every refusal and fault, by its kind.

400 unreadable, 401 and 403 not allowed, 404 unknown, 409 conflict or closed,
422 understood but not accepted, 429 queue full, 502 the provider failed, 503
shutting down or no room, 504 deadline, 507 our own disk is full. A test demands
a line here for each class. Kinds of other people's plug-ins, which cannot stand
here, take the status of what they are: a rule's no, or something outside broken.
"""

from ..domain.refusals import Refusal
from ..ports.required.faults import Fault

OTHER_REFUSAL = 422
OTHER_FAULT = 502

STATUSES: dict[str, int] = {
    "refused": OTHER_REFUSAL,
    "fault": OTHER_FAULT,
}


def status_of(fact: Refusal | Fault) -> int:
    """Return the status that tells a client of `fact`."""
    other = OTHER_REFUSAL if isinstance(fact, Refusal) else OTHER_FAULT
    return STATUSES.get(fact.kind, other)
