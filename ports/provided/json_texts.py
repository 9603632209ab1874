# SPDX-License-Identifier: Apache-2.0
"""JSON as it is kept in events: written dozens of times in an episode."""

import json
from collections.abc import Callable
from typing import Final

from ...domain.digests import Json

to_json: Final[Callable[[Json], str]] = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,  # What goes round is a RecursionError all the same.
).encode
"""Return the JSON text of a value; `json.dumps` would make an encoder each time."""
