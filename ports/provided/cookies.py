# SPDX-License-Identifier: Apache-2.0
"""Cookies as a request carries them: in quotes, and escaped, where that is needed."""

from collections.abc import Mapping
from http.cookies import SimpleCookie


def cookie_header(cookies: Mapping[str, str]) -> str:
    """Return the value of the header that carries these cookies.

    It is written as NeMo Gym's own client writes it: what stands in a value and would
    end it, or the escape itself, is escaped, and a plain value goes as it came.
    """
    written = SimpleCookie()
    return "; ".join(
        f"{name}={written.value_encode(value)[1]}" for name, value in cookies.items()
    )
