# SPDX-License-Identifier: Apache-2.0
"""Ports that this host reaches over TCP, as streams to carry."""

from .tcp import BadTarget, TcpStream, dial_tcp, dial_url

__all__ = ["BadTarget", "TcpStream", "dial_tcp", "dial_url"]
