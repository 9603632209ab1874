# SPDX-License-Identifier: Apache-2.0
"""Tool servers as this host reaches them, looked at as a sandbox looks at them."""

from .host import HostToolServers

__all__ = ["HostToolServers"]
