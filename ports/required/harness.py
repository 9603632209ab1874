# SPDX-License-Identifier: Apache-2.0
"""Harnesses: the programs that drive the model.

A harness does nothing to the outside by itself. It checks a request, says what it
needs put down and run, and reads what was captured; the use case does the rest,
the same way for every harness: files, one supervised run, one receipt.
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import attrs

from ...domain.activations import Outcome
from ...domain.digests import Json
from ...domain.tasks import EpisodeId, TaskId
from .faults import Fault
from .sandbox import How, Output
from .sandbox_provider import Capabilities

TURN_TIMEOUT_SECONDS = 3600.0


@attrs.frozen
class RequestRefused(Fault):
    """The harness understood the request and does not accept it."""

    kind: ClassVar[str] = "request_refused"
    message: ClassVar[str] = "Harness {harness} does not accept {field}: {reason}."

    harness: str
    field: str
    """The path of the field, `responses_create_params.metadata.x`."""
    reason: str


@attrs.frozen(kw_only=True)
class HarnessRequest:
    """What one activation is asked to do."""

    episode: EpisodeId
    task: TaskId
    parameters: Mapping[str, Json]
    """The request in the form of OpenAI's Responses API."""


@attrs.frozen(kw_only=True)
class Place:
    """Where the harness will run."""

    workdir: str
    scratch: str
    """A folder of the activation's own, outside the workspace."""


@attrs.frozen(kw_only=True)
class PlacedFile:
    """A file to put into the sandbox before the run."""

    path: str
    """Absolute, or below the workdir."""
    content: bytes
    mode: int = 0o644


@attrs.frozen(kw_only=True)
class Run:
    """The one command of an activation."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    timeout_seconds: float = TURN_TIMEOUT_SECONDS
    output_bytes_max: int = 64 * 1024 * 1024
    """Of each output, kept in the sandbox; the true size is told."""


@attrs.frozen(kw_only=True)
class Launch:
    """What an activation needs: files first, then at most one run."""

    files: tuple[PlacedFile, ...] = ()
    run: Run | None = None


@attrs.frozen(kw_only=True)
class Capture:
    """What an activation left."""

    how: How | None
    """How the run ended; None when there was none."""
    stopped: bool = False
    """Whether it was ended because it was cancelled."""
    stdout: Output = attrs.field(factory=Output)
    stderr: Output = attrs.field(factory=Output)
    duration_seconds: float = 0.0
    reason: str = ""
    """What is known beyond that, of an infrastructure failure say."""


@attrs.frozen(kw_only=True)
class Observations:
    """What the agent did, in NeMo Gym's bundle shape."""

    source: str
    records: tuple[Mapping[str, Json], ...] = ()
    gaps: tuple[Mapping[str, Json], ...] = ()


@attrs.frozen(kw_only=True)
class Reading:
    """What a harness reads out of a capture."""

    outcome: Outcome
    output: tuple[Mapping[str, Json], ...] = ()
    """Items of a Responses object."""
    usage: Mapping[str, Json] | None = None
    model: str = ""
    upstream_failed: bool = False
    reason: str = ""
    observations: Observations


class Harness(Protocol):
    """One harness, configured."""

    @property
    def name(self) -> str:
        """The short word in configuration, results and messages."""
        ...

    @property
    def stepwise(self) -> bool:
        """Whether one activation is one step of a longer conversation."""
        ...

    @property
    def needs(self) -> Capabilities:
        """What the sandbox's provider must be able to do."""
        ...

    def check(self, request: HarnessRequest) -> None:
        """Raise `RequestRefused` with the field for what cannot be honoured."""
        ...

    async def prepare(self, request: HarnessRequest, place: Place) -> Launch:
        """Say what is to be put down and run; may raise `RequestRefused`."""
        ...

    async def read(self, request: HarnessRequest, capture: Capture) -> Reading:
        """Read what the activation left, however it ended."""
        ...
