# SPDX-License-Identifier: Apache-2.0
"""How the harness `simple` is configured."""

from enum import StrEnum

import attrs

MAX_STEPS = 50


class ModelApi(StrEnum):
    """How the model's server is spoken to."""

    RESPONSES = "responses"
    """OpenAI's Responses API."""
    CHAT_COMPLETIONS = "chat_completions"
    """OpenAI's Chat Completions API."""


@attrs.frozen(kw_only=True)
class SimpleConfig:
    """The options; durations are in seconds."""

    model_url: str | None = None
    """The model's server, without /v1; None: the turns come from a script."""
    api: ModelApi = ModelApi.RESPONSES
    model: str | None = None
    """The model, where the request names none."""
    credential: str | None = attrs.field(default=None, repr=False)
    """Sent as a bearer token."""
    rollout_prefix: bool = False
    """Whether the path of a call carries the rollout's name, as NeMo Gym's agents do."""
    max_steps: int = MAX_STEPS
    """How many calls to the model an activation makes at most."""
    stepwise: bool = False
    """Whether an activation is one call to the model and the tool calls of its answer."""
    timeout_seconds: float = 3600.0
    """How long an activation may take."""
    call_seconds: float = 600.0
    """How long one call to the model or to a tool may take."""
