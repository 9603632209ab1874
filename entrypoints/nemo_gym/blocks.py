# SPDX-License-Identifier: Apache-2.0
"""The blocks of a provider in a NeMo Gym configuration, as values with defaults.

They are read as strictly as `livery.toml`: every mistake is told at once, with its
path. What YAML calls null is what TOML calls "none".
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, TypeVar, cast

import attrs

from ...adapters.nemo_gym import Probe
from ..setting_words import NONE_WORD, Name, Range, Seconds, doc
from ..settings_reading import gathered, structured, written

B = TypeVar("B")

DAY_SECONDS: Final = 86400.0
POLL_SECONDS: Final = 1.0
OUTPUT_BYTES: Final = 8 * 1024 * 1024
OUTPUT_BYTES_MAX: Final = 256 * 1024 * 1024
Pause = Annotated[float, Range(least=0, most=DAY_SECONDS, unit="of seconds")]
Count = Annotated[int, Range(least=1, most=1000)]


@attrs.frozen(kw_only=True)
class CreateBlock:
    """`create` of a provider of ours: what a spec that leaves something out gets."""

    image: Name | None = attrs.field(
        default=None, metadata=doc("For specs that name none.")
    )
    workdir: Name = attrs.field(
        default="/workspace",
        metadata=doc("The folder that commands run in when a spec names none."),
    )
    ttl_s: Seconds = attrs.field(
        default=DAY_SECONDS,
        metadata=doc("When a sandbox ends by itself, for specs without ttl_s."),
    )
    ready_timeout_s: Seconds = attrs.field(
        default=180.0,
        metadata=doc("How long making it may take, for specs without ready_timeout_s."),
    )
    network: Literal["default", "none"] = attrs.field(
        default="default", metadata=doc("What sandboxes reach.")
    )
    processes_max: Annotated[int, Range(least=1)] | None = attrs.field(
        default=None, metadata=doc("How many processes a sandbox may have.")
    )


@attrs.frozen(kw_only=True)
class ExecBlock:
    """`exec`: how commands are run and files moved."""

    default_timeout_s: Seconds = attrs.field(
        default=180.0, metadata=doc("For calls that name no timeout.")
    )
    transfer_timeout_s: Seconds = attrs.field(
        default=300.0, metadata=doc("How long one upload or download may take.")
    )
    exec_shell: Name | None = attrs.field(
        default=None,
        metadata=doc("What reads commands. null: bash where there is one, else sh."),
    )
    output_bytes_max: Annotated[int, Range(least=2, most=OUTPUT_BYTES_MAX)] = (
        attrs.field(
            default=OUTPUT_BYTES,
            metadata=doc("How much of each output is kept: its first and last half."),
        )
    )


@attrs.frozen(kw_only=True)
class ProbeBlock:
    """`probe`: what a new sandbox answers before it is handed out."""

    command: Name | None = attrs.field(
        default=None,
        metadata=doc("null: nothing more than the provider's own look."),
    )
    expected_stdout: str | None = attrs.field(
        default=None, metadata=doc("What its output must have in it.")
    )
    timeout_s: Seconds = attrs.field(
        default=30.0, metadata=doc("How long one try may take.")
    )
    deadline_s: Seconds = attrs.field(
        default=60.0, metadata=doc("How long all tries may take.")
    )
    stable_count: Count = attrs.field(
        default=1, metadata=doc("How often in a row it must pass.")
    )
    stable_delay_s: Pause = attrs.field(
        default=1.0, metadata=doc("The pause between two tries.")
    )

    @property
    def probe(self) -> Probe | None:
        """The probe, where there is one."""
        if self.command is None:
            return None
        return Probe(
            command=self.command,
            expected_stdout=self.expected_stdout,
            timeout_s=self.timeout_s,
            deadline_s=self.deadline_s,
            stable_count=self.stable_count,
            stable_delay_s=self.stable_delay_s,
        )


@attrs.frozen(kw_only=True)
class OperationsBlock:
    """`operations`: how sandboxes end."""

    close_wait_deleted: bool = attrs.field(
        default=True,
        metadata=doc("A close always waits until the sandbox was seen gone."),
    )
    close_timeout_s: Seconds = attrs.field(
        default=60.0, metadata=doc("How long a close may wait for that.")
    )
    atexit_cleanup: bool = attrs.field(
        default=False,
        metadata=doc("Whether what is not closed is released at the end."),
    )
    poll_interval_s: Seconds = attrs.field(
        default=POLL_SECONDS,
        metadata=doc("Known and without effect: a close has its own way to look."),
    )


@attrs.frozen(kw_only=True)
class Blocks:
    """What every provider of ours has beside its `connection`."""

    create: CreateBlock = attrs.field(factory=CreateBlock)
    exec: ExecBlock = attrs.field(factory=ExecBlock)
    probe: ProbeBlock = attrs.field(factory=ProbeBlock)
    operations: OperationsBlock = attrs.field(factory=OperationsBlock)


def read_blocks(
    provider: str,
    kind: type[B],
    given: Mapping[str, object],
    *,
    connection: type[object],
) -> tuple[B, object]:
    """Return the blocks of a provider and its connection, each as its own class.

    A block that is None is as good as none.

    Raises:
        ValueError: With every mistake of all.
    """
    blocks = {name: _plain(one) for name, one in given.items() if one is not None}
    found: list[object] = []

    def read(kind: type[object], content: object, *at: str) -> Callable[[], None]:
        return lambda: found.append(structured(kind, content, at=at))

    mistakes = gathered(
        (
            read(connection, blocks.pop("connection", {}), "connection"),
            read(kind, blocks),
        )
    )
    if mistakes:
        lines = "\n".join(f"  {written(one.path)}: {one.told}" for one in mistakes)
        raise ValueError(f"The sandbox provider {provider} cannot be used:\n{lines}")
    return cast("B", found[1]), found[0]


def _plain(value: object) -> object:
    """Return what YAML gave in the words that the reader knows."""
    if value is None:
        return NONE_WORD
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {str(key): _plain(one) for key, one in table.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[object]", value)]
    return value
