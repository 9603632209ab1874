# SPDX-License-Identifier: Apache-2.0
"""How much of everything one session may have of its model."""

import attrs


@attrs.frozen(kw_only=True)
class GatewayBounds:
    """The bounds of one session; times are in seconds."""

    request_bytes_max: int = 32 * 1024 * 1024
    calls_max: int = 10_000
    calls_at_once_max: int = 32
    session_seconds_max: float = 24 * 3600.0
    """Wall clock from the first grant on."""
    call_seconds_max: float = 3600.0
    keep_alive_seconds: float = 15.0
    """After so much silence, a stream that has begun gets an event of ours."""
    early_seconds: float = 30.0
    """After so much silence, a stream is begun for an upstream that has not begun."""
    entries_max: int = 2_000
    """So many calls of a session are kept one by one; all are counted."""
    body_bytes_max: int = 8 * 1024 * 1024
    """So much of an answer is kept, where bodies are."""
