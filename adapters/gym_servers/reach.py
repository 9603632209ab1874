# SPDX-License-Identifier: Apache-2.0
"""How patiently the servers are reached. All times are in seconds."""

from typing import Final

CONNECTIONS_MAX: Final = 1024
"""To one server; a request holds one for as long as it is under way."""
KEEP_ALIVE_SECONDS: Final = 15.0
"""Shorter than servers keep idle connections: NeMo Gym's 30, ours 75."""
CONNECT_SECONDS: Final = 5.0
REACH_SECONDS: Final = 30.0
"""How long a server that cannot be reached, or cuts replies off, is tried again."""
PAUSE_SECONDS: Final = 0.5
