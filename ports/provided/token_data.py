# SPDX-License-Identifier: Apache-2.0
"""Token data on output items: the ids and log-probabilities that training needs.

Half of it looks like the whole of it to who trains on it, so an item keeps all of it or
none, and what was taken off is said.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ...domain.digests import Json

PROMPT_IDS: Final = "prompt_token_ids"
IDS: Final = "generation_token_ids"
LOG_PROBABILITIES: Final = "generation_log_probs"
FIELDS: Final = (PROMPT_IDS, IDS, LOG_PROBABILITIES)
"""NeMo Gym's names; an item with token data has all three."""
TOKEN_DATA_INCOMPLETE: Final = "token_data_incomplete"

Item = Mapping[str, Json]


def with_whole_token_data(
    items: Iterable[Item],
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return the items, without token data that is not whole, and a gap for each."""
    kept: list[Item] = []
    gaps: list[Item] = []
    for number, item in enumerate(items):
        found = [name for name in FIELDS if item.get(name) is not None]
        if found and not _is_whole(item):
            item = {name: value for name, value in item.items() if name not in FIELDS}
            detail = f"output[{number}] had no whole token data: {', '.join(found)}"
            gaps.append(
                {
                    "code": TOKEN_DATA_INCOMPLETE,
                    "invocation_id": None,
                    "detail": detail,
                }
            )
        kept.append(item)
    return tuple(kept), tuple(gaps)


def _is_whole(item: Item) -> bool:
    """Whether all three are lists, with one log-probability for each token."""
    prompt, ids, log_probabilities = (item.get(name) for name in FIELDS)
    return (
        isinstance(prompt, list)
        and isinstance(ids, list)
        and isinstance(log_probabilities, list)
        and len(ids) == len(log_probabilities)
    )
