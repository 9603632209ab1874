# SPDX-License-Identifier: Apache-2.0
"""Addresses: hosts by name, IPv4 or IPv6, in the one form that URLs want."""

import ipaddress
from typing import ClassVar
from urllib.parse import urlsplit

import attrs

from ...ports.required.faults import Fault


@attrs.frozen
class BadAddress(Fault):
    """That is no host and port."""

    kind: ClassVar[str] = "bad_address"
    message: ClassVar[str] = "{host!r} with port {port} is no address: {reason}."

    host: str
    port: int
    reason: str


def base_url(host: str, port: int, *, scheme: str = "http") -> str:
    """Return the URL of a host and a port, an IPv6 address in brackets.

    Raises:
        BadAddress: The host is empty or holds more than a host, or the port is none.
    """
    if not 1 <= port <= 65535:
        raise BadAddress(host, port, "ports go from 1 to 65535")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare:
        return f"{scheme}://[{_ipv6(bare, host, port)}]:{port}"
    if not bare or any(letter in bare for letter in "/?#@[] "):
        raise BadAddress(host, port, "a name or an address alone is wanted")
    return f"{scheme}://{bare}:{port}"


def names_a_place(url: str) -> bool:
    """Tell whether a URL names a host, and no port that is none."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _ipv6(bare: str, host: str, port: int) -> str:
    try:
        return str(ipaddress.IPv6Address(bare))
    except ipaddress.AddressValueError as error:
        raise BadAddress(host, port, str(error)) from error
