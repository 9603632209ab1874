# SPDX-License-Identifier: Apache-2.0
"""HTTP to providers: one careful client for everything that speaks HTTP.

It follows no redirect, reads no proxy from the environment, keeps no idle
connection longer than servers do, and asks again only what can be asked again.
"""

from .addresses import base_url, names_a_place
from .client import HttpClient, HttpFailed, KeepAliveTooLong, open_http_client
from .retries import Delivery, Patience

__all__ = [
    "Delivery",
    "HttpClient",
    "HttpFailed",
    "KeepAliveTooLong",
    "Patience",
    "base_url",
    "names_a_place",
    "open_http_client",
]
