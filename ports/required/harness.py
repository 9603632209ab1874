# SPDX-License-Identifier: Apache-2.0
"""Harnesses: the programs that drive the model.

A harness does nothing to the outside by itself. It checks a request, says what it
needs put down and run, and reads what was captured; the use case does the rest,
the same way for every harness: files, one supervised run, one receipt.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Protocol, TypeGuard

import attrs

from ...domain.activations import Outcome
from ...domain.digests import Json
from ...domain.tasks import EpisodeId, TaskId
from .faults import Fault
from .model_access import ModelGrant, ModelRecord
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


class ToolTransport(StrEnum):
    """How granted tools are called."""

    MCP = "mcp"
    """Streamable HTTP of the Model Context Protocol."""
    DIRECT_HTTP = "direct_http"


@attrs.frozen(kw_only=True)
class ToolAccess:
    """Tools that an episode grants, as the sandbox reaches them."""

    transport: ToolTransport
    name: str
    """Unique in a session."""
    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """They may hold a token: never on a command line, in a message or a log."""
    cookies: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """Sent with each call as well; a reply may set others."""
    required: bool = True
    served_here: bool = attrs.field(default=False, eq=False)
    """Whether this process serves them, and so knows that they are there."""


@attrs.frozen(kw_only=True)
class HarnessRequest:
    """What one activation is asked to do."""

    episode: EpisodeId
    task: TaskId
    parameters: Mapping[str, Json]
    """The request in the form of OpenAI's Responses API."""
    tool_accesses: tuple[ToolAccess, ...] = ()


@attrs.frozen(kw_only=True)
class Place:
    """Where the harness will run."""

    workdir: str
    scratch: str
    """A folder of the activation's own, outside the workspace."""
    is_boundary: bool = False
    """Whether the sandbox keeps what runs in it from the host."""
    runtime_path: str | None = None
    """Where the program of `RuntimeHarness.runtime` was installed and verified."""
    model: ModelGrant | None = None
    """How the model is reached from in there."""


@attrs.frozen(kw_only=True)
class PlacedFile:
    """A file to put into the sandbox before the run."""

    path: str
    """Absolute, or below the workdir."""
    content: bytes = attrs.field(repr=False)
    mode: int = 0o644


@attrs.frozen(kw_only=True)
class LastLine:
    """A line after which a command should end by itself, and has so long to do it.

    It is a JSON object on standard output with `key` set to `value`, and the last
    line so far: when another follows, the command goes on and is let be.
    """

    key: str
    value: str
    seconds: float


@attrs.frozen(kw_only=True)
class Silence:
    """How long a command may show no sign of life before it is ended.

    Signs of life are bytes on its outputs, and a change to one of `paths`: a file,
    or any file below a folder.
    """

    seconds: float
    paths: tuple[str, ...] = ()


class EarlyEnd(StrEnum):
    """Why a run was ended before its command had ended and its time was over."""

    LAST_LINE = "last_line"
    SILENCE = "silence"


@attrs.frozen(kw_only=True)
class Watch:
    """What ends a run before its deadline."""

    last_line: LastLine | None = None
    silence: Silence | None = None


@attrs.frozen(kw_only=True)
class Run:
    """The one command of an activation."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict[str, str])
    timeout_seconds: float = TURN_TIMEOUT_SECONDS
    output_bytes_max: int = 64 * 1024 * 1024
    """Of each output, kept in the sandbox; the true size is told."""
    stdin_path: str | None = None
    """The file of the sandbox that it reads; None: nothing, at its end at once."""
    watch: Watch = Watch()


@attrs.frozen(kw_only=True)
class CollectedFile:
    """A file that a run may leave, to be kept and read beside its outputs."""

    name: str
    """What it is called among the artifacts and in the capture."""
    path: str


@attrs.frozen(kw_only=True)
class Launch:
    """What an activation needs: folders and files first, then at most one run."""

    folders: tuple[str, ...] = ()
    """Made before the files, for the sandbox's user alone (0700)."""
    files: tuple[PlacedFile, ...] = ()
    run: Run | None = None
    collected: tuple[CollectedFile, ...] = ()


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
    ended_early: EarlyEnd | None = None
    """Why it was ended before its deadline, by the run's `Watch`."""
    files: Mapping[str, Output] = attrs.field(factory=dict[str, Output])
    """Of `Launch.collected`, the ones that were there."""
    provider: str = ""
    sandbox_id: str = ""
    model: ModelRecord | None = None
    """What the gateway saw of the calls to the model; None when none is between."""


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


class Delivery(StrEnum):
    """How a program may come into a sandbox."""

    AUTO = "auto"
    """Mounted where that can be, else sent."""
    MOUNT = "mount"
    TRANSFER = "transfer"


@attrs.frozen(kw_only=True)
class RuntimeNeed:
    """The program that a harness needs in the sandbox, and where it may come from."""

    name: str
    version: str | None = None
    """Exact; None with a path: whatever has the sha256."""
    glibc_least: tuple[int, int] | None = None
    """The oldest glibc on which it starts, where that is known."""
    delivery: Delivery = Delivery.AUTO
    host_path: str | None = None
    """A file of this host to bring instead of the registry's."""
    sandbox_path: str | None = None
    """A file that is in the sandbox already."""
    sha256: str | None = None
    """Needed with a path; verified in the sandbox, whatever the source."""


class RuntimeHarness(Harness, Protocol):
    """The extra ability: a harness whose program is brought into the sandbox."""

    @property
    def runtime(self) -> RuntimeNeed | None:
        """What is to be at `Place.runtime_path`; None: the sandbox's own program."""
        ...


class ToolHarness(Harness, Protocol):
    """The extra ability: a harness that says which granted tools it can call.

    What it must have is then looked at before a session is ready, and refused there.
    """

    @property
    def tool_transports(self) -> frozenset[ToolTransport]:
        """How it calls tools; empty: it calls none."""
        ...

    @property
    def calls_tools_inside(self) -> bool:
        """Whether the calls come from the sandbox, and not from this host."""
        ...


class ModelHarness(Harness, Protocol):
    """The extra ability: a harness that asks a model over `Place.model`."""

    @property
    def has_own_model(self) -> bool:
        """Whether it reaches a model by itself where nobody grants one."""
        ...


class HostRun(Protocol):
    """One activation of a harness that runs on this host."""

    async def carry_out(self) -> None:
        """Run to the end; cancelling ends it, and what was done until then is kept."""
        ...

    def reading(self, *, stopped: bool) -> Reading:
        """Read what was done so far; `stopped` when somebody ended it."""
        ...


class HostHarness(Harness, Protocol):
    """The extra ability: a harness that is a loop on this host, and not in a sandbox.

    Its run ends with the process; nobody can find it again.
    """

    def begin(self, request: HarnessRequest, place: Place) -> HostRun:
        """Return the run of one request, which has not begun."""
        ...


def is_on_host(harness: Harness) -> TypeGuard[HostHarness]:
    """Tell whether a harness runs on this host."""
    return hasattr(harness, "begin")
