# SPDX-License-Identifier: Apache-2.0
"""Tool servers, seen from where this runs: is each of them there and does it answer?

    tool_servers.py

It reads `{"servers": [{"name", "kind", "url", "headers"}], "seconds": N}` as JSON from
standard input, where headers with tokens are in no process list, and prints one line
of JSON: which ones cannot be reached, and why. No redirect is followed, so a token goes
nowhere but to the server that it is for.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import sys
import time
import urllib.error
import urllib.request
from typing import Any

WORDS_BYTES_MAX = 1024 * 1024
AT_ONCE_MAX = 16
ATTEMPTS_MAX = 3
PAUSE_SECONDS = 0.3
REASON_CHARACTERS_MAX = 300
PROTOCOL = "2025-06-18"
"""The version of the Model Context Protocol that a server is greeted with."""
_FAILED = 400

_GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "livery", "version": "1"},
    },
}


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def unreachable(
    servers: list[dict[str, Any]], seconds: float, proxies: dict[str, str] | None = None
) -> list[dict[str, str]]:
    """Return the servers that cannot be reached within `seconds`, each with a reason.

    `proxies` leads to them as `urllib` does; None: as the environment says.
    """
    until = time.monotonic() + seconds
    if not servers:
        return []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE_MAX) as pool:
        looks = [pool.submit(_why_not, server, until, proxies) for server in servers]
        reasons = [look.result() for look in looks]
    return [
        {"name": str(server["name"]), "reason": reason[:REASON_CHARACTERS_MAX]}
        for server, reason in zip(servers, reasons)
        if reason
    ]


def _why_not(
    server: dict[str, Any], until: float, proxies: dict[str, str] | None
) -> str:
    """Return why the server cannot be reached; empty when it can."""
    reason = "there was no time to ask it"
    for attempt in range(ATTEMPTS_MAX):
        left = until - time.monotonic()
        if left <= 0:
            break
        if attempt:
            time.sleep(min(PAUSE_SECONDS, left))
        try:
            status = _status(server, max(left, 0.1), proxies)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            reason = reason_of(fault)
            continue
        if server["kind"] != "mcp" or status < _FAILED:
            return ""
        reason = "it answers with status %d" % status
        if status < 500:
            break
    return reason


def _status(
    server: dict[str, Any], seconds: float, proxies: dict[str, str] | None
) -> int:
    """Return what the server answers; a session that this began is ended."""
    opener = urllib.request.build_opener(
        _Unfollowed, urllib.request.ProxyHandler(proxies)
    )
    headers = {str(k): str(v) for k, v in server["headers"].items()}
    if server["kind"] != "mcp":
        return _answer(opener, server, "GET", None, headers, seconds)[0]
    headers = {
        **headers,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    body = json.dumps(_GREETING).encode()
    status, session = _answer(opener, server, "POST", body, headers, seconds)
    if session:
        headers = {**headers, "Mcp-Session-Id": session}
        try:
            _answer(opener, server, "DELETE", None, headers, seconds)
        except (OSError, http.client.HTTPException):
            pass
    return status


def _answer(
    opener: urllib.request.OpenerDirector,
    server: dict[str, Any],
    method: str,
    body: bytes | None,
    headers: dict[str, str],
    seconds: float,
) -> tuple[int, str]:
    request = urllib.request.Request(
        str(server["url"]), data=body, headers=headers, method=method
    )
    try:
        with opener.open(request, timeout=seconds) as answer:
            return int(answer.status), answer.headers.get("Mcp-Session-Id") or ""
    except urllib.error.HTTPError as told:
        with told:
            return told.code, ""


def reason_of(fault: Exception) -> str:
    """Return in few words why somebody could not be asked."""
    reason: object = getattr(fault, "reason", None) or fault
    if isinstance(reason, socket.timeout):
        return "it does not answer in time"
    if isinstance(reason, OSError):
        return reason.strerror or str(reason) or type(reason).__name__
    return str(reason) or type(fault).__name__


def main(arguments: list[str]) -> int:
    """Look at the servers that standard input names."""
    words = json.loads(sys.stdin.buffer.read(WORDS_BYTES_MAX))
    found = unreachable(words["servers"], float(words["seconds"]))
    print(json.dumps({"unreachable": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
