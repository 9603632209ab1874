# SPDX-License-Identifier: Apache-2.0
"""What `livery.toml` says of the environment server."""

from typing import Annotated, Final, Literal

import attrs

from ..adapters.gym_servers.reach import REACH_SECONDS
from ..ports.provided.run_episode import CLEANUP_SECONDS, EPISODE_SECONDS
from ..ports.provided.serve_episodes import EpisodePatience
from .setting_words import Name, Range, Seconds, doc

_PATIENCE: Final = EpisodePatience()
DAY_SECONDS: Final = 24 * 3600.0
PLACES: Final = 256
"""How many episodes run at once where nobody says."""
PLACES_MAX: Final = 4096

Transport = Literal["direct_http", "mcp"]


@attrs.frozen(kw_only=True)
class EnvironmentServerSettings:
    """What `livery serve environment` serves, and within which bounds."""

    host: Name = attrs.field(
        default="127.0.0.1",
        metadata=doc(
            "The address to listen on. Nobody is asked who they are: anything but"
            " loopback is for a network of friends. Browsers are refused everywhere."
        ),
    )
    port: Annotated[int, Range(least=0, most=65535)] = attrs.field(
        default=8100, metadata=doc("The port to listen on; 0 takes a free one.")
    )
    resources_url: Name = attrs.field(
        default="http://127.0.0.1:8200", metadata=doc("The resources server.")
    )
    resources_name: Name = attrs.field(
        default="resources",
        metadata=doc("Its block in configurations; tools that it grants are named so."),
    )
    agent_url: Name = attrs.field(
        default="http://127.0.0.1:8300", metadata=doc("The agent server.")
    )
    resources_tool_transports: tuple[Transport, ...] = attrs.field(
        default=(),
        metadata=doc("How the agent may call the tools of the resources server."),
    )
    max_steps: Annotated[int, Range(least=1, most=100_000)] | None = attrs.field(
        default=None,
        metadata=doc(
            "Into how many steps at most a turn is cut, one call to the model each; the"
            " agent has to be stepwise. none: a turn is one activation."
        ),
    )
    max_concurrent_episodes: Annotated[int, Range(least=1, most=PLACES_MAX)] | None = (
        attrs.field(
            default=None,
            metadata=doc(
                "How many episodes run at once, over all servers on the state folder."
                f" none: as many as the agent server has sessions; {PLACES} when it does"
                " not say."
            ),
        )
    )
    queue_timeout_seconds: Seconds = attrs.field(
        default=DAY_SECONDS,
        metadata=doc(
            "How long an episode waits for its turn. The failure is livery:queue_timeout."
        ),
    )
    episode_timeout_seconds: Seconds = attrs.field(
        default=EPISODE_SECONDS,
        metadata=doc("How long an episode may take. The failure is transport_timeout."),
    )
    cleanup_timeout_seconds: Seconds = attrs.field(
        default=CLEANUP_SECONDS,
        metadata=doc("How long each of the two servers may take to close its session."),
    )
    reach_timeout_seconds: Seconds = attrs.field(
        default=REACH_SECONDS,
        metadata=doc(
            "How long a server that cannot be reached is tried again. The failure is"
            " transport_unreachable."
        ),
    )
    run_once: bool = attrs.field(
        default=True,
        metadata=doc(
            "Whether the same episode, asked for again, is joined or answered as before."
            " false: it is run again, as NeMo Gym does."
        ),
    )
    result_keep_seconds: Seconds = attrs.field(
        default=_PATIENCE.keep_seconds,
        metadata=doc("How long a result is given again; a failure never is."),
    )
    results_kept_max: Annotated[int, Range(least=1)] = attrs.field(
        default=_PATIENCE.kept_max,
        metadata=doc("How many results are kept; the oldest goes first."),
    )
    disconnect_grace_seconds: Seconds = attrs.field(
        default=_PATIENCE.disconnect_grace_seconds,
        metadata=doc(
            "How long an episode goes on that nobody waits for. The failure is cancelled."
        ),
    )
    observability: bool = attrs.field(
        default=False,
        metadata=doc("Whether calls to the resources server carry the rollout's name."),
    )
    token_capture: bool = attrs.field(
        default=False,
        metadata=doc("Whether activations ask for the tokens of training."),
    )
    shutdown_grace_seconds: Seconds = attrs.field(
        default=60.0,
        metadata=doc(
            "How long ending takes: for a third of it episodes may still finish, then"
            " they are ended and cleaned up. The process is gone a second later."
        ),
    )
    body_bytes_max: Annotated[int, Range(least=1024)] = attrs.field(
        default=32 * 1024 * 1024, metadata=doc("How long a request's body may be.")
    )
