# SPDX-License-Identifier: Apache-2.0
"""The worker of one sandbox, and all that it needs here, in one task.

The task opens a client for the runtime server, makes the sandbox ready, and reads
the worker's stream until it ends. The watch is listened to beside it: when the
sandbox is lost, the stream is cut at once instead of after a wait.
"""

from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import attrs

from ...ports.provided.worker_channel import (
    ChannelEnded,
    WorkerChannel,
    WorkerHello,
)
from ...ports.required.sandbox import Endpoint
from ..http_client import Patience, open_http_client
from .carried_stream import CarriedStream, Trouble
from .connections import Connections
from .opening import open_runtime
from .runtime_api import RuntimeApi

ROUTER_TROUBLE_SECONDS = 20.0
"""A router that is renewed answers 502 for a while."""
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SEND_SECONDS = 60.0
ENDING_SECONDS = 40.0


@attrs.frozen(kw_only=True)
class HandsConfig:
    """How work is done in a sandbox."""

    python: str = "python3"
    token_file: str = TOKEN_FILE
    """Where a token of the cluster's API server would be."""
    trouble_seconds: float = 5.0
    """How long calls of a runtime server may fail in a row."""


@attrs.frozen(kw_only=True, eq=False)
class Hands:
    """A worker that can be asked."""

    channel: WorkerChannel
    stream: CarriedStream
    scratch: str
    folder: str
    holds_token: bool


@attrs.frozen(kw_only=True)
class Wanted:
    """Which sandbox is to be opened, and who is told what."""

    endpoint: Endpoint
    workdir: str
    key: str
    is_known: bool
    """Whether it was opened before: what was put down must be there."""
    seconds: float
    is_lost: Callable[[], Awaitable[bool]]
    until_lost: Callable[[], Awaitable[None]]
    forget: Callable[[Hands], None]


class _Ready:
    """Takes the worker's hello, and passes on the hands; until then it is waited for."""

    def __init__(self, hands: Hands, task_status: anyio.abc.TaskStatus[Hands]) -> None:
        self._hands = hands
        self._task_status = task_status
        self._waiting = hands.stream.needed()
        self._waiting.__enter__()

    def started(self, value: WorkerHello | None = None) -> None:
        self._task_status.started(self._hands)
        self._waiting.__exit__(None, None, None)


async def run_hands(
    config: HandsConfig,
    connections: Connections,
    wanted: Wanted,
    *,
    task_status: anyio.abc.TaskStatus[Hands],
) -> None:
    """Open a sandbox and serve its worker until the stream's end.

    Raises:
        OpeningFailed, RuntimeFailed, RuntimeRefused, ChannelEnded: Before it was
            started.
    """
    seconds = config.trouble_seconds
    if connections.is_through_router:
        seconds = max(seconds, ROUTER_TROUBLE_SECONDS)
    async with open_http_client(
        wanted.endpoint.url,
        headers=wanted.endpoint.headers,
        patience=Patience(attempts_max=1),
        trust=connections.trust,
    ) as http:
        opened = await open_runtime(
            RuntimeApi(http),
            workdir=wanted.workdir,
            key=wanted.key,
            python=config.python,
            is_known=wanted.is_known,
            seconds=wanted.seconds,
            trouble=Trouble(seconds=seconds, is_lost=wanted.is_lost),
            token_file=config.token_file,
        )
        channel = WorkerChannel(
            opened.stream, ending_seconds=ENDING_SECONDS, send_seconds=SEND_SECONDS
        )
        hands = Hands(
            channel=channel,
            stream=opened.stream,
            scratch=opened.scratch,
            folder=opened.folder,
            holds_token=opened.holds_token,
        )
        try:
            await _serve(hands, wanted, task_status)
        finally:
            wanted.forget(hands)
            with anyio.CancelScope(shield=True):
                await channel.aclose()


async def _serve(
    hands: Hands, wanted: Wanted, task_status: anyio.abc.TaskStatus[Hands]
) -> None:
    failure: ChannelEnded | None = None
    async with anyio.create_task_group() as tasks:

        async def cut_when_lost() -> None:
            await wanted.until_lost()
            hands.stream.cut()

        tasks.start_soon(cut_when_lost)
        tasks.start_soon(hands.stream.carry_out)
        try:
            await hands.channel.run(task_status=_Ready(hands, task_status))
        except ChannelEnded as ended:
            failure = ended  # Raised below: a task group would wrap it.
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
