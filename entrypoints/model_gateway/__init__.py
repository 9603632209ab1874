# SPDX-License-Identifier: Apache-2.0
"""The model gateway: sandboxes speak to their model through it, one session each.

What a sandbox holds is good for its own session, for the paths of models and until
its close. The real credential stays in this process.
"""

from .application import gateway_app
from .bounds import GatewayBounds
from .opening import OpenGateway, open_model_gateway
from .sessions import GatewayFull, GatewaySessions, PrefixRefused

__all__ = [
    "GatewayBounds",
    "GatewayFull",
    "GatewaySessions",
    "OpenGateway",
    "PrefixRefused",
    "gateway_app",
    "open_model_gateway",
]
