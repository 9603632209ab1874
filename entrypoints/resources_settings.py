# SPDX-License-Identifier: Apache-2.0
"""What `livery.toml` says of the resources server."""

from typing import Annotated, Final

import attrs

from ..ports.provided.serve_resources import ResourcesPatience
from ..ports.provided.take_turns import YIELD_SECONDS
from .secret_references import Secret
from .setting_words import Address, FilePath, Name, Range, Seconds, Token, doc

_PATIENCE: Final = ResourcesPatience()


@attrs.frozen(kw_only=True)
class ResourcesServerSettings:
    """What `livery serve resources` serves, and within which bounds."""

    host: Name = attrs.field(
        default="127.0.0.1", metadata=doc("The address to listen on.")
    )
    port: Annotated[int, Range(least=0, most=65535)] = attrs.field(
        default=8200, metadata=doc("The port to listen on; 0 takes a free one.")
    )
    sandbox_host: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "Another address, for sandboxes: only the routes that need a session's token"
            " are there. none: a port of loopback, for relays and host processes."
        ),
    )
    sandbox_port: Annotated[int, Range(least=0, most=65535)] = attrs.field(
        default=0,
        metadata=doc(
            "The port of that address; 0 takes a free one, and the same again at the"
            " next start on the state folder."
        ),
    )
    advertised_url: Address | None = attrs.field(
        default=None,
        metadata=doc(
            "Where a sandbox reaches that address. none: through a relay, where the"
            " provider isolates sandboxes; directly, where it does not."
        ),
    )
    trusted_networks: tuple[Name, ...] = attrs.field(
        default=("127.0.0.0/8", "::1/128"),
        metadata=doc(
            "Who may seed, verify, close and read task state; others get 403."
        ),
    )
    world: Name = attrs.field(
        default="desk", metadata=doc("What kind of world the tasks are in.")
    )
    sandbox_provider: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "A block [sandbox.NAME], or the name of a provider: where each episode's"
            " sandbox comes from. none: no sandbox is lent."
        ),
    )
    block_internet: bool = attrs.field(
        default=False,
        metadata=doc(
            "Whether sandboxes reach nothing but this server and the model, through"
            " relays. Refused where the provider cannot enforce it."
        ),
    )
    guide_file: FilePath | None = attrs.field(
        default="GUIDE.md",
        metadata=doc("The short guide in a lent workspace. none: there is none."),
    )
    artifacts: Name | None = attrs.field(
        default=None,
        metadata=doc("The folder of artifacts. none: `artifacts` in the state folder."),
    )
    close_tools_on_task_end: bool = attrs.field(
        default=False,
        metadata=doc("Whether calls are refused once the task is complete."),
    )
    seed_yield_seconds: Seconds = attrs.field(
        default=YIELD_SECONDS,
        metadata=doc(
            "How long waiting requests are served before each building of a world."
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
        metadata=doc("How long a closed session's id is refused."),
    )
    closed_sessions_max: Annotated[int, Range(least=1)] = attrs.field(
        default=_PATIENCE.closed_max,
        metadata=doc("How many closed sessions are kept; the oldest goes first."),
    )
    idle_timeout_seconds: Seconds = attrs.field(
        default=_PATIENCE.idle_timeout_seconds,
        metadata=doc("After how long without a call a session is closed."),
    )
    shutdown_seconds: Seconds = attrs.field(
        default=30.0,
        metadata=doc(
            "How long ending takes; sandboxes are stopped in all of it but 2 s. Less"
            " than 3 s is refused with a sandbox_provider."
        ),
    )
    body_bytes_max: Annotated[int, Range(least=1024)] = attrs.field(
        default=32 * 1024 * 1024, metadata=doc("How long a request's body may be.")
    )
    cookie_name: Token = attrs.field(
        default="session", metadata=doc("The session cookie.")
    )
    cookie_secret: Secret | None = attrs.field(
        default=None,
        metadata=doc(
            "What signs the cookie and makes tokens. none: the secret of the state folder."
        ),
    )
    mcp_server_name: Name | None = attrs.field(
        default=None,
        metadata=doc("What the server of the tools is called. none: as the world."),
    )
    token_header: Token = attrs.field(
        default="Authorization",
        metadata=doc(
            "The header with a session's token; a bearer's, where it is this."
        ),
    )
