# SPDX-License-Identifier: Apache-2.0
"""What `livery.toml` says of the model and the gateway that leads to it."""

from typing import Annotated, ClassVar, Final

import attrs

from ..adapters.model_upstream.client import (
    SILENCE_SECONDS,
    CredentialStyle,
    is_address,
)
from ..ports.required.faults import Fault
from .secret_references import Secret
from .setting_words import Address, Name, Range, Seconds, doc

_MIB: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class ModelSettings:
    """The model's server, and what each session may have of it."""

    url: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "The model's server, without /v1. none: no gateway; the harness's own"
            " options say where its model is."
        ),
    )
    credential: Secret | None = attrs.field(
        default=None,
        metadata=doc(
            "The real credential; it stays on this host. none: the server wants none."
        ),
    )
    credential_header: CredentialStyle = attrs.field(
        default=CredentialStyle.AUTO,
        metadata=doc(
            "How the server wants it. auto: x-api-key for Anthropic Messages, else bearer."
        ),
    )
    nemo_gym: bool = attrs.field(
        default=False,
        metadata=doc(
            "Whether it is a model server of NeMo Gym: the prefix of a rollout's paths"
            " (/ng-rollout/KEY) then goes on to it."
        ),
    )
    gateway_host: Name = attrs.field(
        default="127.0.0.1", metadata=doc("The address that the gateway listens on.")
    )
    gateway_port: Annotated[int, Range(least=0, most=65535)] = attrs.field(
        default=0, metadata=doc("Its port; 0 takes a free one.")
    )
    advertised_url: Address | None = attrs.field(
        default=None,
        metadata=doc(
            "Under which a sandbox with a network reaches the gateway. none: through"
            " the relay, as sandboxes without a network do."
        ),
    )
    keep_bodies: bool = attrs.field(
        default=False,
        metadata=doc("Whether each call's request and answer become artifacts."),
    )
    request_bytes_max: Annotated[int, Range(least=1024)] = attrs.field(
        default=32 * _MIB, metadata=doc("How long a request's body may be.")
    )
    calls_max: Annotated[int, Range(least=1)] = attrs.field(
        default=10_000, metadata=doc("How many calls a session may make.")
    )
    calls_at_once_max: Annotated[int, Range(least=1, most=64)] = attrs.field(
        default=32, metadata=doc("How many of them at once.")
    )
    session_timeout_seconds: Seconds = attrs.field(
        default=24 * 3600.0,
        metadata=doc(
            "How long after its first grant a session may use the model. The error is"
            " time_exceeded."
        ),
    )
    call_timeout_seconds: Seconds = attrs.field(
        default=3600.0,
        metadata=doc("How long one call may take. The error is silent."),
    )
    silence_timeout_seconds: Seconds = attrs.field(
        default=SILENCE_SECONDS,
        metadata=doc(
            "How long the model's server may say nothing within a call. The error is"
            " silent."
        ),
    )
    keep_alive_seconds: Seconds = attrs.field(
        default=15.0,
        metadata=doc(
            "After how much silence a stream gets an event that says nothing."
        ),
    )
    early_answer_seconds: Seconds = attrs.field(
        default=30.0,
        metadata=doc(
            "After how much silence a stream is begun for a server that has not answered."
        ),
    )


@attrs.frozen
class ModelUrlRefused(Fault):
    """The settings name no address of a model's server."""

    kind: ClassVar[str] = "model_url_refused"
    message: ClassVar[str] = (
        "{setting} is no address: http or https, a host and a path are wanted,"
        " without user, password or query."
    )

    setting: str


def check_model_url(settings: ModelSettings) -> str:
    """Return where the model's server is.

    Raises:
        ModelUrlRefused: That is no address, or what sandboxes are told is none.
    """
    if settings.url is None or not is_address(settings.url):
        raise ModelUrlRefused("model.url")
    advertised = settings.advertised_url
    if advertised is not None and not is_address(advertised):
        raise ModelUrlRefused("model.advertised_url")
    return settings.url
