# SPDX-License-Identifier: Apache-2.0
"""The server that speaks for the model: what is asked of it, and how it answers."""

from .client import (
    Credential,
    CredentialStyle,
    ModelUpstream,
    UpstreamAnswer,
    UpstreamFailed,
    UpstreamLine,
    is_address,
)
from .covering import Cover
from .dialects import (
    Asked,
    Dialect,
    Malformed,
    dialect_of,
    error_body,
    error_event,
    read_request,
    spoken_by,
)
from .readings import AnswerReader

__all__ = [
    "AnswerReader",
    "Asked",
    "Cover",
    "Credential",
    "CredentialStyle",
    "Dialect",
    "Malformed",
    "ModelUpstream",
    "UpstreamAnswer",
    "UpstreamFailed",
    "UpstreamLine",
    "dialect_of",
    "error_body",
    "error_event",
    "is_address",
    "read_request",
    "spoken_by",
]
