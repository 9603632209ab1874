# SPDX-License-Identifier: Apache-2.0
"""The harness `command` runs any command line of the user's in the sandbox.

The prompt comes in a file, and in a variable where it fits into one; standard input
is closed. Status 0 is completed work, anything else is failed work; either way the
workspace is graded. What the command did inside is not seen, and that is said.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from ...domain.activations import Outcome
from ...domain.digests import Json
from ...ports.required.harness import (
    TURN_TIMEOUT_SECONDS,
    Capture,
    HarnessRequest,
    Launch,
    Place,
    PlacedFile,
    Reading,
    Run,
    ToolTransport,
)
from ...ports.required.sandbox import ExitUnknown, Lost
from ...ports.required.sandbox_provider import Capabilities
from .readings import (
    END_NOT_OBSERVED,
    MODEL_CALLS_NOT_OBSERVED,
    OUTPUT_CUT,
    TOOL_CALLS_NOT_OBSERVED,
    end_of,
    message,
    observed,
    outcome_of_run,
    reason_of,
)
from .requests import TextRequest, to_text_request

NAME: Final = "command"

PROMPT: Final = "LIVERY_PROMPT"
PROMPT_FILE: Final = "LIVERY_PROMPT_FILE"
MODEL: Final = "LIVERY_MODEL"
EPISODE: Final = "LIVERY_EPISODE"

PROMPT_FILE_NAME: Final = "prompt.txt"
VARIABLE_BYTES_MAX: Final = 128 * 1024
"""What Linux takes for one variable: name, `=`, value and a closing NUL."""


@attrs.frozen(kw_only=True)
class CommandHarness:
    """The `Harness` of one command line."""

    argv: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Of the user's own; the `LIVERY_…` variables below are laid over it."""
    timeout_seconds: float = TURN_TIMEOUT_SECONDS

    @property
    def name(self) -> str:
        """The short word in configuration, results and messages."""
        return NAME

    @property
    def stepwise(self) -> bool:
        """The command keeps no conversation from one activation to the next."""
        return False

    @property
    def needs(self) -> Capabilities:
        """A command and a file are all it needs."""
        return frozenset()

    @property
    def tool_transports(self) -> frozenset[ToolTransport]:
        """The command is told of no tools."""
        return frozenset()

    @property
    def calls_tools_inside(self) -> bool:
        """Nothing of ours calls any."""
        return True

    def check(self, request: HarnessRequest) -> None:
        """Raise `RequestRefused` with the field for what cannot be honoured."""
        to_text_request(NAME, request)

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Put the prompt into a file and run the command.

        Raises:
            RequestRefused: As `check` does.
        """
        asked = to_text_request(NAME, request)
        path = f"{place.scratch}/{PROMPT_FILE_NAME}"
        told = _told(asked)
        return Launch(
            files=(PlacedFile(path=path, content=asked.prompt.encode(), mode=0o600),),
            run=Run(
                argv=self.argv,
                env={
                    **{k: v for k, v in self.env.items() if k not in (PROMPT, MODEL)},
                    **told,
                    PROMPT_FILE: path,
                    EPISODE: request.episode.key,
                },
                timeout_seconds=min(
                    self.timeout_seconds, asked.timeout_seconds or self.timeout_seconds
                ),
            ),
        )

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Read the end of the command and the end of its standard output."""
        outcome = outcome_of_run(capture)
        text, cut = end_of(capture.stdout)
        output = (message(text),) if text else ()
        prompt = to_text_request(NAME, request).prompt
        asked: dict[str, Json] = {"type": "message", "role": "user", "content": prompt}
        return Reading(
            outcome=outcome,
            output=output,
            reason=reason_of(capture, outcome),
            observations=observed(
                NAME,
                capture,
                outcome,
                conversation=(asked, *output),
                gaps=_gaps(capture, outcome, cut),
            ),
        )


def _told(asked: TextRequest) -> dict[str, str]:
    """Return what fits into variables; the file always has the whole prompt."""
    told = {PROMPT: asked.prompt}
    if asked.model is not None:
        told[MODEL] = asked.model
    return {name: text for name, text in told.items() if _fits(name, text)}


def _fits(name: str, text: str) -> bool:
    return "\0" not in text and len(f"{name}={text}\0".encode()) <= VARIABLE_BYTES_MAX


def _gaps(capture: Capture, outcome: Outcome, cut: int) -> list[tuple[str, str]]:
    if capture.how is None:
        return []
    gaps = [
        (MODEL_CALLS_NOT_OBSERVED, "the command talks to its model by itself"),
        (TOOL_CALLS_NOT_OBSERVED, "what the command does is not seen step by step"),
    ]
    if cut:
        gaps.append(
            (OUTPUT_CUT, f"{cut} of {capture.stdout.size} bytes of output are left out")
        )
    if isinstance(capture.how, Lost | ExitUnknown):
        gaps.append((END_NOT_OBSERVED, reason_of(capture, outcome)))
    return gaps
