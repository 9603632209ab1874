# SPDX-License-Identifier: Apache-2.0
"""What `livery.toml` can say, as values with defaults.

Durations are in seconds, whole or fractional. A setting that may be absent is
switched off with the word "none". Secrets are references (`Secret`), never text.
What a plug-in alone knows stands in its block's `options`, which the plug-in
declares as a class of its own.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import attrs

from ..ports.provided.run_episode import CLEANUP_SECONDS, EPISODE_SECONDS
from ..ports.provided.serve_sessions import Patience
from ..ports.required.harness import TURN_TIMEOUT_SECONDS
from ..ports.required.sandbox_provider import Mount, Network, SandboxSpec
from .environment_settings import EnvironmentServerSettings
from .journal_settings import JournalSettings
from .logs import Layout, Level
from .model_settings import ModelSettings
from .reaper_settings import ReaperSettings
from .resources_settings import ResourcesServerSettings
from .sandbox_config import SandboxConfig
from .secret_references import Secret
from .setting_words import Name, Range, Seconds, Token, doc

DEFAULT_IMAGE: Final = "python:3.12-slim"
"""What a provider of images is given when nobody names an image."""
CONCURRENCY_MAX: Final = 1024
REPEATS_MAX: Final = 1000
LIMIT_MAX: Final = 1_000_000_000
LIFETIME_MARGIN_SECONDS: Final = 1800.0
"""What a sandbox lives beyond the turn: seed, grading in the same one, release."""
EPISODE_MARGIN_SECONDS: Final = 3600.0
"""What an episode has beyond the turn: two sandboxes made, one grading."""

_SPEC: Final = SandboxSpec()
_PATIENCE: Final = Patience()

Options = Mapping[str, object]


@attrs.frozen(kw_only=True)
class StateSettings:
    """Where this machine's owner id, secret and journal are kept."""

    folder: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "The state folder. none: $XDG_STATE_HOME/livery, else ~/.local/state/livery."
            " The option --state goes first.",
        ),
    )


@attrs.frozen(kw_only=True)
class LogSettings:
    """What is logged, on standard error."""

    level: Level = attrs.field(
        default=Level.WARNING,
        metadata=doc("The least grave line of our own that is told."),
    )
    format: Layout = attrs.field(
        default=Layout.TEXT, metadata=doc("Lines for the eye, or one JSON object each.")
    )


@attrs.frozen(kw_only=True)
class RunSettings:
    """What `livery run` does where the command line does not say otherwise."""

    harness: Name = attrs.field(
        default="oracle",
        metadata=doc("A block [harness.NAME], or the name of a harness."),
    )
    sandbox: Name = attrs.field(
        default="local",
        metadata=doc("A block [sandbox.NAME], or the name of a provider."),
    )
    world: Name = attrs.field(
        default="workspace", metadata=doc("What kind of world the tasks are in.")
    )
    concurrency: Annotated[int, Range(least=1, most=CONCURRENCY_MAX)] = attrs.field(
        default=4, metadata=doc("How many episodes run at once, over the whole run.")
    )
    repeats: Annotated[int, Range(least=1, most=REPEATS_MAX)] = attrs.field(
        default=1, metadata=doc("How many rollouts each task gets.")
    )
    limit: Annotated[int, Range(least=1, most=LIMIT_MAX)] | None = attrs.field(
        default=None,
        metadata=doc("How many tasks are taken, from the first on. none: all."),
    )
    episode_timeout_seconds: Seconds | None = attrs.field(
        default=None,
        metadata=doc(
            "How long an episode may take from its seed to its verdict. none:"
            f" {EPISODE_SECONDS:g} s, or more where the harness's turn_timeout_seconds"
            " needs more. The error is transport_timeout."
        ),
    )
    cleanup_timeout_seconds: Seconds = attrs.field(
        default=CLEANUP_SECONDS,
        metadata=doc("How long closing each participant of an episode may take."),
    )


@attrs.frozen(kw_only=True)
class HarnessSettings:
    """A configured harness."""

    harness: Name | None = attrs.field(
        default=None,
        metadata=doc("Which harness it is. none: the one with the name of the block."),
    )
    turn_timeout_seconds: Seconds = attrs.field(
        default=TURN_TIMEOUT_SECONDS,
        metadata=doc(
            "How long the harness's command may run; enforced in the sandbox. The"
            " outcome is timeout, and the work is graded.",
        ),
    )
    options: Options = attrs.field(
        factory=dict[str, object],
        metadata=doc("What this harness alone knows; see its page."),
    )


@attrs.frozen(kw_only=True)
class MountSettings:
    """A file or folder of this host, seen in the sandbox."""

    source: Name = attrs.field(metadata=doc("The path on this host, absolute."))
    target: Name = attrs.field(metadata=doc("The path in the sandbox, absolute."))
    read_only: bool = attrs.field(
        default=True, metadata=doc("Whether the sandbox cannot write to it.")
    )


@attrs.frozen(kw_only=True)
class SandboxSettings:
    """A configured provider and the kind of sandbox that is asked of it."""

    provider: Name | None = attrs.field(
        default=None,
        metadata=doc("Which provider it is. none: the one with the name of the block."),
    )
    image: Name | None = attrs.field(
        default=None,
        metadata=doc(
            f"The image. none: $LIVERY_IMAGE, else {DEFAULT_IMAGE}, where the provider"
            " makes sandboxes from images.",
        ),
    )
    workdir: Name = attrs.field(
        default=_SPEC.workdir, metadata=doc("The folder that holds the workspace.")
    )
    env: Mapping[str, str] = attrs.field(
        factory=dict[str, str],
        metadata=doc("Environment of every command. It is seen inside: no secrets."),
    )
    user: Name | None = attrs.field(
        default=None,
        metadata=doc("Who runs commands: name, uid, uid:gid. none: the image's own."),
    )
    cpus: Annotated[float, Range(above=0, most=4096)] | None = attrs.field(
        default=None, metadata=doc("How many processors it may use. none: no limit.")
    )
    memory_mib: Annotated[int, Range(least=4)] | None = attrs.field(
        default=None,
        metadata=doc("How much memory it may use, in MiB. none: no limit."),
    )
    processes_max: Annotated[int, Range(least=1)] | None = attrs.field(
        default=None, metadata=doc("How many processes it may have. none: no limit.")
    )
    network: Network = attrs.field(
        default=Network.DEFAULT,
        metadata=doc(
            "none: nothing but itself. listed: what reachable names. default: what the"
            " provider gives."
        ),
    )
    reachable: tuple[Name, ...] = attrs.field(
        default=(),
        metadata=doc(
            'What the network "listed" lets through: host names, "*." and a name for all'
            " below it, addresses. The model needs no entry: its calls go by the relay."
        ),
    )
    mounts: tuple[MountSettings, ...] = attrs.field(
        default=(),
        metadata=doc("Files and folders of this host that the sandbox sees."),
    )
    ports: tuple[Annotated[int, Range(least=1, most=65535)], ...] = attrs.field(
        default=(), metadata=doc("Ports of the sandbox that this host must reach.")
    )
    lifetime_seconds: Seconds | None = attrs.field(
        default=None,
        metadata=doc(
            "How long after it was made ready the sandbox ends itself, whatever happens"
            " here. none: the harness's turn_timeout_seconds and"
            f" {LIFETIME_MARGIN_SECONDS:g} s for grading. The error is sandbox_lost."
        ),
    )
    create_timeout_seconds: Seconds = attrs.field(
        default=_SPEC.create_timeout_seconds,
        metadata=doc(
            "How long making it may take, pulling not counted. The error is create_failed"
            " at create.",
        ),
    )
    pull_timeout_seconds: Seconds = attrs.field(
        default=_SPEC.pull_timeout_seconds,
        metadata=doc(
            "How long pulling its image may take. The error is create_failed at pull.",
        ),
    )
    ready_timeout_seconds: Seconds = attrs.field(
        default=_SPEC.ready_timeout_seconds,
        metadata=doc(
            "How long the made sandbox may take to answer its first command. The error is"
            " create_failed at ready.",
        ),
    )
    options: Options = attrs.field(
        factory=dict[str, object],
        metadata=doc("How to reach and use this provider, in its own words."),
    )
    sandbox_options: Options = attrs.field(
        factory=dict[str, object],
        metadata=doc(
            "More about each sandbox, in words that this provider alone knows."
        ),
    )

    def spec(self, *, image: str | None, lifetime_seconds: float) -> SandboxSpec:
        """Return the kind of sandbox that is meant."""
        return SandboxSpec(
            image=image,
            workdir=self.workdir,
            env=self.env,
            user=self.user,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            processes_max=self.processes_max,
            network=self.network,
            reachable=self.reachable,
            mounts=tuple(
                Mount(source=m.source, target=m.target, read_only=m.read_only)
                for m in self.mounts
            ),
            ports=self.ports,
            lifetime_seconds=lifetime_seconds,
            create_timeout_seconds=self.create_timeout_seconds,
            pull_timeout_seconds=self.pull_timeout_seconds,
            ready_timeout_seconds=self.ready_timeout_seconds,
            provider_options=self.sandbox_options,
        )


@attrs.frozen(kw_only=True)
class AgentServerSettings:
    """What `livery serve agent` serves, and within which bounds."""

    host: Name = attrs.field(
        default="127.0.0.1",
        metadata=doc(
            "The address to listen on. Nobody is asked who they are: anything but"
            " loopback is for a network of friends. Browsers are refused everywhere."
        ),
    )
    port: Annotated[int, Range(least=0, most=65535)] = attrs.field(
        default=8300, metadata=doc("The port to listen on; 0 takes a free one.")
    )
    harness: Name = attrs.field(
        default="claude_code",
        metadata=doc("A block [harness.NAME], or the name of a harness."),
    )
    sandbox_provider: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "A block [sandbox.NAME], or the name of a provider: where a session that"
            " borrows no sandbox gets its own. none: it has none."
        ),
    )
    sandbox_config: SandboxConfig = attrs.field(
        factory=SandboxConfig,
        metadata=doc("What that sandbox is, where not as the provider's block says."),
    )
    artifacts: Name | None = attrs.field(
        default=None,
        metadata=doc("The folder of artifacts. none: `artifacts` in the state folder."),
    )
    concurrency: Annotated[int, Range(least=1, most=CONCURRENCY_MAX)] = attrs.field(
        default=32,
        metadata=doc(
            "How many sessions are open at once, over all workers on the journal."
        ),
    )
    seed_wait_seconds: Seconds | None = attrs.field(
        default=None,
        metadata=doc(
            "How long a seed beyond that waits for a place. none: it is answered 429"
            " at once. The error is admission_full."
        ),
    )
    seeds_waiting_max: Annotated[int, Range(least=1, most=65536)] = attrs.field(
        default=256, metadata=doc("How many seeds wait; more are answered 429.")
    )
    disconnect_grace_seconds: Seconds = attrs.field(
        default=_PATIENCE.disconnect_grace_seconds,
        metadata=doc(
            "How long an activation goes on without any caller; a repeat finds it."
            " The outcome is cancelled."
        ),
    )
    close_timeout_seconds: Seconds = attrs.field(
        default=_PATIENCE.close_timeout_seconds,
        metadata=doc(
            "How long a close may take; it can be asked again. The error is close_late."
        ),
    )
    session_close_retry_window_seconds: Seconds = attrs.field(
        default=_PATIENCE.close_retry_window_seconds,
        metadata=doc("How long a closed session's reply is kept and its id refused."),
    )
    closed_sessions_max: Annotated[int, Range(least=1)] = attrs.field(
        default=_PATIENCE.closed_max,
        metadata=doc("How many closed replies are kept; the oldest goes first."),
    )
    idle_timeout_seconds: Seconds = attrs.field(
        default=_PATIENCE.idle_timeout_seconds,
        metadata=doc(
            "After how long without a call, and without a run, a session is closed."
            " The error is session_closed."
        ),
    )
    shutdown_grace_seconds: Seconds = attrs.field(
        default=60.0,
        metadata=doc(
            "How long ending takes: what runs is ended, sandboxes are given back. The"
            " process is gone a second later."
        ),
    )
    body_bytes_max: Annotated[int, Range(least=1024)] = attrs.field(
        default=32 * 1024 * 1024, metadata=doc("How long a request's body may be.")
    )
    cookie_name: Token = attrs.field(
        default="LiveryAgent___agent",
        metadata=doc("The session cookie; NeMo Gym's way is CLASS___BLOCK."),
    )
    cookie_secret: Secret | None = attrs.field(
        default=None,
        metadata=doc("What signs the cookie. none: the secret of the state folder."),
    )


@attrs.frozen(kw_only=True)
class Settings:
    """The whole of `livery.toml`."""

    state: StateSettings = attrs.field(
        factory=StateSettings, metadata=doc("The state folder.")
    )
    journal: JournalSettings = attrs.field(
        factory=JournalSettings, metadata=doc("The journal, and who writes to it.")
    )
    log: LogSettings = attrs.field(factory=LogSettings, metadata=doc("Log lines."))
    run: RunSettings = attrs.field(
        factory=RunSettings, metadata=doc("Defaults of `livery run`.")
    )
    harness: Mapping[str, HarnessSettings] = attrs.field(
        factory=dict[str, HarnessSettings],
        metadata=doc("Configured harnesses, by the name they are run by."),
    )
    sandbox: Mapping[str, SandboxSettings] = attrs.field(
        factory=dict[str, SandboxSettings],
        metadata=doc("Configured providers, by the name they are run by."),
    )
    reaper: ReaperSettings = attrs.field(
        factory=ReaperSettings, metadata=doc("The reaper beside each server.")
    )
    model: ModelSettings = attrs.field(
        factory=ModelSettings,
        metadata=doc("The model, and the gateway that leads sandboxes to it."),
    )
    agent_server: AgentServerSettings = attrs.field(
        factory=AgentServerSettings, metadata=doc("Defaults of `livery serve agent`.")
    )
    environment_server: EnvironmentServerSettings = attrs.field(
        factory=EnvironmentServerSettings,
        metadata=doc("Defaults of `livery serve environment`."),
    )
    resources_server: ResourcesServerSettings = attrs.field(
        factory=ResourcesServerSettings,
        metadata=doc("Defaults of `livery serve resources`."),
    )
