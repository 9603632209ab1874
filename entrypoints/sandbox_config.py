# SPDX-License-Identifier: Apache-2.0
"""What a session's own sandbox is, laid over the block of its provider.

One block says how a provider is reached and what its sandboxes usually are; the agent
server can want other ones. What is not set here is as the block says.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import attrs

from .setting_words import Name, Range, Seconds, doc

NetworkWord = Literal["as_block", "none", "default"]
AS_BLOCK: Final = "as_block"


@attrs.frozen(kw_only=True)
class SandboxConfig:
    """The kind of sandbox, as far as it differs from its provider's block."""

    image: Name | None = attrs.field(
        default=None, metadata=doc("The image. none: as the block says.")
    )
    workdir: Name | None = attrs.field(
        default=None,
        metadata=doc("The folder that holds the workspace. none: as the block says."),
    )
    env: Mapping[str, str] = attrs.field(
        factory=dict[str, str],
        metadata=doc("More environment, laid over the block's. No secrets."),
    )
    user: Name | None = attrs.field(
        default=None, metadata=doc("Whom commands run as. none: as the block says.")
    )
    cpus: Annotated[float, Range(above=0, most=4096)] | None = attrs.field(
        default=None,
        metadata=doc("How many processors it may use. none: as the block says."),
    )
    memory_mib: Annotated[int, Range(least=4)] | None = attrs.field(
        default=None,
        metadata=doc("How much memory it may use, in MiB. none: as the block says."),
    )
    processes_max: Annotated[int, Range(least=1)] | None = attrs.field(
        default=None,
        metadata=doc("How many processes it may have. none: as the block says."),
    )
    network: NetworkWord = attrs.field(
        default=AS_BLOCK,
        metadata=doc("none: nothing but itself. default: what the provider gives."),
    )
    lifetime_seconds: Seconds | None = attrs.field(
        default=None,
        metadata=doc("After how long it ends itself. none: as the block says."),
    )
    sandbox_options: Mapping[str, object] = attrs.field(
        factory=dict[str, object],
        metadata=doc("More in the provider's own words, laid over the block's."),
    )
