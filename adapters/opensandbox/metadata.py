# SPDX-License-Identifier: Apache-2.0
"""What a sandbox carries on the server: whose it is, how it was made, how to get in.

Values follow the rule of Kubernetes labels (63 of `A-Z a-z 0-9 . _ -`). Any other
text is written in base 32, in as many entries as it needs, so nothing is lost and
what is looked for is found. The sandbox itself sees none of it.
"""

import base64
import re
from collections.abc import Mapping

from ...domain.claims import ClaimId, OwnerId
from ...ports.required.sandbox_provider import ClaimLabel

RESERVED = "livery."
CLAIM, OWNER = "livery.claim", "livery.owner"
SPEC, USER, WORKDIR = "livery.spec", "livery.user", "livery.workdir"
LIFETIME, EXPIRES, MAKING = "livery.lifetime", "livery.expires", "livery.making"
PORTS, TOKEN, EGRESS = "livery.ports", "livery.token", "livery.egress"

CODED = "b32."
CODED_CHARACTERS = 56

LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def encoded(name: str, text: str) -> dict[str, str]:
    """Return the entries that hold `text` under `name`."""
    if text and LABEL_VALUE.fullmatch(text) and not text.startswith(CODED):
        return {name: text}
    coded = base64.b32encode(text.encode()).decode().rstrip("=").lower()
    parts = [
        coded[start : start + CODED_CHARACTERS]
        for start in range(0, len(coded), CODED_CHARACTERS)
    ] or ["0"]
    first, *rest = parts
    found = {name: f"{CODED}{first}"}
    found |= {f"{name}.{number}": part for number, part in enumerate(rest, 1)}
    return found


def decoded(metadata: Mapping[str, str], name: str) -> str | None:
    """Return what stands under `name`; None when nothing that we wrote does."""
    value = metadata.get(name)
    if value is None or not value.startswith(CODED):
        return value
    coded, number = value.removeprefix(CODED), 1
    while (part := metadata.get(f"{name}.{number}")) is not None:
        coded, number = coded + part, number + 1
    if coded == "0":
        return ""
    try:
        padded = coded.upper() + "=" * (-len(coded) % 8)
        return base64.b32decode(padded).decode()
    except ValueError:
        return None


def label_of(metadata: Mapping[str, str]) -> ClaimLabel | None:
    """Return whose a sandbox is; None when it is not one of ours."""
    claim, owner = decoded(metadata, CLAIM), decoded(metadata, OWNER)
    if claim is None or owner is None:
        return None
    return ClaimLabel(claim=ClaimId(claim), owner=OwnerId(owner))


def seconds_of(metadata: Mapping[str, str], name: str) -> float | None:
    """Return a number that stands under `name`."""
    try:
        return float(decoded(metadata, name) or "")
    except ValueError:
        return None


def ports_of(metadata: Mapping[str, str]) -> frozenset[int]:
    """Return the ports that were asked for."""
    told = decoded(metadata, PORTS) or ""
    return frozenset(int(port) for port in told.split("-") if port.isdigit())
