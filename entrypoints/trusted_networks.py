# SPDX-License-Identifier: Apache-2.0
"""The networks whose addresses may drive sessions, as settings name them."""

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def to_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Return the networks of texts like `10.0.0.0/8`; raises `ValueError`."""
    return tuple(ipaddress.ip_network(text) for text in texts)
