# SPDX-License-Identifier: Apache-2.0
"""Paths of a sandbox, as its port has them."""

from ...ports.required.sandbox import PathRefused


def absolute(path: str, *, workdir: str) -> str:
    """Return the path from the root; a relative one is below `workdir`.

    Raises:
        PathRefused: It holds a NUL, or leads upwards.
    """
    if "\0" in path:
        raise PathRefused(path=path, reason="it holds a NUL")
    if ".." in path.split("/"):
        raise PathRefused(path=path, reason="it holds '..'")
    if path.startswith("/"):
        return path
    return f"{workdir.rstrip('/')}/{path}".rstrip("/")
