#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B905, RET503, SIM105, SIM115, UP031
"""A stand-in for OpenSandbox's execd, in one file for any Python 3.8 and newer.

It speaks what was measured of the real one: the event stream of commands, their
states and logs, files, and the proxy to ports of the sandbox, with the oddities
that a client has to live with. `POST /stand-in/faults` with `{"fault": times}` has
it go wrong in the ways that the real one was seen to.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

PORT = 44772
POLL_SECONDS = 0.1
PING_SECONDS = 3.0
COPY_BYTES = 1024 * 1024
FAULTS = {
    "gateway",  # 502, as of a proxy before it; nothing happens
    "init_then_end",  # the stream ends after its first event
    "empty_stream",  # 200, and no event at all
    "broken_tail",  # cut off right after the last event
    "long_tail",  # the stream stays open for a second
    "no_pings",
    "status_404",
    "broken_pipe",  # the command ends with "signal: broken pipe"
    "out_of_memory",  # the connection is dropped without an answer
    "cut_download",
    "refuse_download",
    "drop_download",
    "no_numbers",  # the end's value is no number
    "bare_data",  # events with `data:` before them
}


class Commands:
    """What was started, for ever: as the real one keeps it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.faults: dict[str, int] = json.loads(
            os.environ.get("STAND_IN_FAULTS", "{}")
        )
        self.ran: dict[str, Running] = {}

    def fault(self, name: str) -> bool:
        """Return whether it is to go wrong in this way now."""
        with self.lock:
            left = self.faults.get(name, 0)
            if left:
                self.faults[name] = left - 1
            return left > 0


class Running:
    """One command."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.command_id = uuid.uuid4().hex
        self.content = words["command"]
        self.timeout = words.get("timeout") or 0
        self.started = time.time()
        self.finished: float | None = None
        self.code: int | None = None
        self.error = ""
        folder = os.environ.get("TMPDIR", "/tmp")
        self.paths = [
            os.path.join(folder, "%s.%s" % (self.command_id, name))
            for name in ("stdout", "stderr", "output")
        ]
        shell = shutil.which("bash") or "/bin/sh"
        environment = dict(os.environ)
        environment.update(words.get("envs") or {})
        background = bool(words.get("background"))
        files = [open(path, "wb") for path in self.paths]
        try:
            self.process = subprocess.Popen(
                [shell, "-c", self.content],
                stdin=subprocess.DEVNULL,
                stdout=files[2] if background else files[0],
                stderr=files[2] if background else files[1],
                cwd=words.get("cwd") or None,
                env=environment,
                start_new_session=True,
                preexec_fn=_become(words.get("uid"), words.get("gid")),
            )
        finally:
            for file in files:
                file.close()
        self.over = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()
        if self.timeout:
            threading.Timer(self.timeout / 1000, self.kill).start()

    def _wait(self) -> None:
        code = self.process.wait()
        self.finished = time.time()
        self.code = code if code >= 0 else -1
        if code < 0:
            self.error = "signal: %s" % _SIGNALS.get(-code, "signal %d" % -code)
        elif code:
            self.error = "exit status %d" % code
        self.over.set()

    def send(self, number: int) -> None:
        if not self.over.is_set():
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        return {
            "id": self.command_id,
            "content": self.content,
            "running": not self.over.is_set(),
            "exit_code": self.code,
            "error": self.error,
            "started_at": _time(self.started),
            "finished_at": _time(self.finished),
        }


_SIGNALS = {
    1: "hangup",
    6: "aborted",
    9: "killed",
    11: "segmentation fault",
    13: "broken pipe",
    15: "terminated",
}


def _become(uid: int | None, gid: int | None) -> Any:
    if uid is None:
        return None

    def act() -> None:
        os.setgid(gid or 0)
        os.setuid(uid)

    return act


class Lines:
    """The lines of a growing file, as the real one cuts them."""

    def __init__(self, path: str) -> None:
        self.file: BinaryIO | None = open(path, "rb")
        self.held = b""

    def read(self, *, last: bool) -> list[str]:
        assert self.file
        self.held += self.file.read()
        found: list[bytes] = []
        while True:
            cut = re.search(rb"\r\n|\n|\r(?!$)", self.held)
            if not cut:
                break
            found.append(self.held[: cut.start()] or b"\n")
            self.held = self.held[cut.end() :]
        if last and self.held:
            found.append(self.held.rstrip(b"\r"))
        return [line.decode("utf-8", "replace") for line in found]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    state = Commands()
    token = os.environ.get("EXECD_ACCESS_TOKEN", "")

    def setup(self) -> None:
        if self.request.family != socket.AF_UNIX:
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def end_headers(self) -> None:
        # Behind the proxy this is what tells the client not to ask here again.
        if self.close_connection:
            self.send_header("Connection", "close")
        super().end_headers()

    def parse_request(self) -> bool:
        good = super().parse_request()
        if good:
            self.target = urlsplit(self.path)
            self.query = parse_qs(self.target.query, keep_blank_values=True)
        return good

    def do(self) -> None:
        """Answer whatever is asked."""
        self.body_read = False
        path = self.target.path
        if path == "/stand-in/faults":
            self.state.faults.update(self._json())
            return self._answer(200, {})
        if self.token and self.headers.get("X-EXECD-ACCESS-TOKEN") != self.token:
            self._drain()
            return self._answer(
                401, {"error": "Unauthorized: invalid or missing header"}
            )
        if path.startswith("/proxy/"):
            return self._proxy()
        for method, pattern, act in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method == self.command:
                return getattr(self, act)(*found.groups())
        self._drain()
        return self._plain(404, b"404 page not found")

    do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = do  # noqa: N815

    # Commands.

    def ping(self) -> None:
        self._answer(200, None)

    def run_command(self) -> None:
        if self.state.fault("gateway"):
            self._drain()
            return self._plain(502, b"Bad Gateway")
        try:
            words = self._json()
            if not words.get("command") or (words.get("timeout") or 0) < 0:
                raise ValueError("command")
            if "gid" in words and "uid" not in words:
                raise ValueError("gid without uid")
            cwd = os.path.expanduser(os.path.expandvars(words.get("cwd") or ""))
            if cwd and not os.path.isdir(cwd):
                raise ValueError("cwd does not exist: %s" % cwd)
            words["cwd"] = cwd
        except (ValueError, TypeError) as fault:
            return self._refuse(400, "INVALID_REQUEST_BODY", str(fault))
        if self.state.fault("out_of_memory"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        self._begin_stream()
        if self.state.fault("empty_stream"):
            return self._end_stream()
        try:
            running = Running(words)
        except (OSError, ValueError) as fault:
            self._event("init", text=uuid.uuid4().hex)
            self._error("fork/exec: %s" % fault, str(fault))
            return self._end_stream()
        self.state.ran[running.command_id] = running
        self._event("init", text=running.command_id)
        if self.state.fault("init_then_end"):
            return self._end_stream()
        if words.get("background"):
            self._event("ping", text="pong")
            self._event("execution_complete")
            return self._end_stream()
        try:
            self._follow(running)
        except OSError:
            # Its reader has gone: execd is sent SIGPIPE, and passes it on to the
            # process groups of all other commands that run in the foreground.
            self.close_connection = True
            if self.told_end:
                return None  # To leave after the last event harms nobody.
            for other in self.state.ran.values():
                if other is not running:
                    other.send(signal.SIGPIPE)

    def _follow(self, running: Running) -> None:
        outputs = [
            ("stdout", Lines(running.paths[0])),
            ("stderr", Lines(running.paths[1])),
        ]
        pings = not self.state.fault("no_pings")
        self.told_end = False
        pinged = 0.0
        while True:
            over = running.over.is_set()
            if pings and time.time() >= pinged + PING_SECONDS:
                pinged = time.time()
                self._event("ping", text="pong")
            for name, lines in outputs:
                for text in lines.read(last=over):
                    self._event(name, text=text)
            if over:
                break
            running.over.wait(POLL_SECONDS)
        for _, lines in outputs:
            assert lines.file
            lines.file.close()
        self.told_end = True
        if self.state.fault("broken_pipe"):
            self._error("-1", "signal: broken pipe")
        elif self.state.fault("no_numbers"):
            self._error("who knows", "who knows")
        elif running.code == 0:
            taken = round(((running.finished or 0) - running.started) * 1000)
            self._event(
                "execution_complete", **({"execution_time": taken} if taken else {})
            )
        else:
            self._error(str(running.code), running.error)
        if self.state.fault("broken_tail"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        self._end_stream()

    def interrupt(self) -> None:
        wanted = self.query.get("id", [""])[0]
        if not wanted:
            return self._refuse(400, "MISSING_QUERY", "missing query parameter 'id'")
        running = self.state.ran.get(wanted)
        if running is None or running.over.is_set():
            return self._refuse(
                500, "RUNTIME_ERROR", "no such command runs: %s" % wanted
            )
        running.send(signal.SIGTERM)
        if not running.over.wait(3.0):
            running.kill()
            running.over.wait(3.0)
        self._answer(200, None)

    def command_status(self, wanted: str) -> None:
        running = self.state.ran.get(wanted)
        if running is None or self.state.fault("status_404"):
            return self._refuse(
                404, "INVALID_REQUEST_BODY", "command not found: %s" % wanted
            )
        self._answer(200, running.status())

    def command_logs(self, wanted: str) -> None:
        running = self.state.ran.get(wanted)
        if running is None:
            return self._refuse(
                400, "INVALID_REQUEST_BODY", "command not found: %s" % wanted
            )
        cursor = int(self.query.get("cursor", ["0"])[0] or 0)
        with open(running.paths[2], "rb") as file:
            file.seek(cursor)
            content = file.read()
        headers = {"EXECD-COMMANDS-TAIL-CURSOR": str(cursor + len(content))}
        self._plain(200, content, headers)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.bare_data = self.state.fault("bare_data")

    def _event(self, kind: str, **words: Any) -> None:
        event = {"type": kind, "timestamp": round(time.time() * 1000), **words}
        text = json.dumps(event, ensure_ascii=False).encode()
        self._chunk((b"data: " if self.bare_data else b"") + text + b"\n\n")

    def _error(self, value: str, told: str) -> None:
        self._event(
            "error",
            error={"ename": "CommandExecError", "evalue": value, "traceback": [told]},
        )

    def _end_stream(self) -> None:
        grace = os.environ.get("EXECD_API_GRACE_SHUTDOWN", "1s")
        seconds = 1.0 if self.state.fault("long_tail") else _seconds(grace)
        time.sleep(seconds)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    # Files.

    def upload(self) -> None:
        boundary = re.search("boundary=(.*)", self.headers.get("Content-Type", ""))
        if not boundary:
            return self._refuse(400, "INVALID_FILE", "no multipart")
        parts = _parts(self._spooled(), boundary.group(1).strip('"').encode())
        try:
            metadata = [part for name, part in parts if name == "metadata"]
            files = [part for name, part in parts if name == "file"]
            if not metadata:
                return self._refuse(400, "INVALID_FILE_METADATA", "metadata is missing")
            if len(metadata) != len(files):
                return self._refuse(400, "INVALID_FILE_CONTENT", "counts differ")
            for raw, content in zip(metadata, files):
                words = json.loads(raw.read())
                if not isinstance(words.get("mode", 0), int):
                    return self._refuse(
                        400, "INVALID_FILE_METADATA", "mode is no number"
                    )
                self._write(words, content)
        except (OSError, KeyError) as fault:
            return self._refuse(500, "RUNTIME_ERROR", str(fault))
        self._answer(200, None)

    def _write(self, words: dict[str, Any], content: BinaryIO) -> None:
        path = _expanded(words["path"])
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        fresh = not os.path.exists(path)
        with open(path, "wb") as file:
            shutil.copyfileobj(content, file, COPY_BYTES)
        if words.get("mode"):
            os.chmod(path, int(str(words["mode"]), 8) & 0o777)
        elif fresh:
            os.chmod(path, 0o755)
        if os.geteuid() == 0:
            os.chown(path, 0, 0)

    def download(self) -> None:
        path = self._wanted()
        if path is None:
            return None
        if not os.path.exists(path):
            return self._refuse(404, "FILE_NOT_FOUND", "file not found: %s" % path)
        if not os.path.isfile(path):
            return self._plain(500, b"seeker can't seek")
        if self.state.fault("refuse_download"):
            return self._refuse(500, "RUNTIME_ERROR", "on purpose")
        if self.state.fault("drop_download"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        size = os.path.getsize(path)
        first, last, status = 0, size - 1, 200
        wanted = re.fullmatch(
            r"bytes=(\d*)-(\d*)(?:,.*)?", self.headers.get("Range", "")
        )
        if wanted:
            begin, end = wanted.groups()
            first = int(begin) if begin else max(0, size - int(end or 0))
            last = min(int(end), size - 1) if end and begin else size - 1
            status = 206
            if first >= size:
                return self._plain(416, b"invalid range: failed to overlap")
        length = last - first + 1
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, size))
        self.end_headers()
        with open(path, "rb") as file:
            if self.state.fault("cut_download"):
                self.wfile.write(file.read(length // 2))
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            self.wfile.flush()
            if length:
                self.connection.sendfile(file, first, length)
        return None

    def files_info(self) -> None:
        found: dict[str, Any] = {}
        for path in self.query.get("path", []):
            try:
                found[path] = _info(_expanded(path))
            except OSError:
                return self._refuse(404, "FILE_NOT_FOUND", "file not found: %s" % path)
        self._answer(200, found)

    def delete_files(self) -> None:
        for path in self.query.get("path", []):
            path = _expanded(path)
            if os.path.isdir(path):
                return self._refuse(500, "RUNTIME_ERROR", "is a directory: %s" % path)
            if os.path.exists(path):
                os.unlink(path)
        self._answer(200, None)

    def move(self) -> None:
        for pair in self._json_any():
            source, target = _expanded(pair["src"]), _expanded(pair["dest"])
            if not os.path.lexists(source):
                return self._refuse(404, "FILE_NOT_FOUND", source)
            if os.path.lexists(target):
                return self._refuse(500, "RUNTIME_ERROR", "exists: %s" % target)
            os.rename(source, target)
        self._answer(200, None)

    def permissions(self) -> None:
        for path, words in self._json().items():
            if not os.path.exists(_expanded(path)):
                return self._refuse(500, "RUNTIME_ERROR", path)
            os.chmod(_expanded(path), int(str(words.get("mode", 755)), 8))
        self._answer(200, None)

    def make_folders(self) -> None:
        for path, words in self._json().items():
            os.makedirs(_expanded(path), exist_ok=True)
            os.chmod(_expanded(path), int(str((words or {}).get("mode") or 755), 8))
        self._answer(200, None)

    def delete_folders(self) -> None:
        for path in self.query.get("path", []):
            path = _expanded(path)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)
        self._answer(200, None)

    def list_folder(self) -> None:
        path = self._wanted()
        if path is None:
            return None
        if not os.path.lexists(path):
            return self._refuse(404, "FILE_NOT_FOUND", path)
        if os.path.islink(path) or not os.path.isdir(path):
            return self._refuse(400, "INVALID_FILE", "no directory: %s" % path)
        names = sorted(os.listdir(path))
        return self._answer(200, [_info(os.path.join(path, name)) for name in names])

    def metrics(self) -> None:
        self._answer(
            200, {"cpu_count": os.cpu_count(), "timestamp": round(time.time() * 1000)}
        )

    # The proxy.

    def _proxy(self) -> None:
        _, _, port, *rest = self.target.path.split("/", 3)
        path = "/" + (rest[0] if rest else "")
        if self.target.query:
            path += "?" + self.target.query
        try:
            behind = socket.create_connection(("127.0.0.1", int(port)), 30)
        except (OSError, ValueError):
            self._drain()
            return self._plain(502, b"Bad Gateway")
        behind.settimeout(None)
        behind.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upgrade = self.headers.get("Upgrade")
        lines = ["%s %s HTTP/1.1" % (self.command, path)]
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "keep-alive", "upgrade"):
                lines.append("%s: %s" % (name, value))
        if upgrade:
            lines += ["Connection: Upgrade", "Upgrade: %s" % upgrade]
        else:
            lines.append("Connection: close")
        behind.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        self.close_connection = True
        back = threading.Thread(
            target=_pump, args=(behind.recv, behind, self.connection), daemon=True
        )
        back.start()
        # What came with the head is in the buffer, and goes first.
        _pump(self.rfile.read1, self.connection, behind)
        back.join()
        behind.close()
        return None

    # Answers.

    def _wanted(self) -> str | None:
        path = self.query.get("path", [""])[0]
        if not path:
            self._refuse(400, "MISSING_QUERY", "missing query parameter 'path'")
            return None
        return _expanded(path)

    def _drain(self) -> None:
        if not self.body_read:
            self._spooled().close()

    def _spooled(self) -> BinaryIO:
        """Return the body as a file."""
        self.body_read = True
        file: BinaryIO = tempfile.TemporaryFile()
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while True:
                size = int(self.rfile.readline().split(b";")[0] or b"0", 16)
                _copy(self.rfile, file, size)
                self.rfile.readline()
                if not size:
                    break
        else:
            _copy(self.rfile, file, int(self.headers.get("Content-Length") or 0))
        file.seek(0)
        return file

    def _json_any(self) -> Any:
        with self._spooled() as body:
            return json.loads(body.read())

    def _json(self) -> dict[str, Any]:
        words = self._json_any()
        if not isinstance(words, dict):
            raise ValueError("no object")
        return words

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(status, {"code": code, "message": message})

    def _answer(self, status: int, words: Any) -> None:
        content = b"" if words is None else json.dumps(words).encode()
        self._plain(status, content, {"Content-Type": "application/json"})

    def _plain(
        self, status: int, content: bytes, headers: dict[str, str] | None = None
    ) -> None:
        if not self.body_read and self.command in ("POST", "PUT"):
            self._drain()
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


ROUTES = [
    ("GET", "/ping", "ping"),
    ("POST", "/command", "run_command"),
    ("DELETE", "/command", "interrupt"),
    ("GET", "/command/status/([^/]+)", "command_status"),
    ("GET", "/command/([^/]+)/logs", "command_logs"),
    ("POST", "/files/upload", "upload"),
    ("GET", "/files/download", "download"),
    ("GET", "/files/info", "files_info"),
    ("DELETE", "/files", "delete_files"),
    ("POST", "/files/mv", "move"),
    ("POST", "/files/permissions", "permissions"),
    ("POST", "/directories", "make_folders"),
    ("DELETE", "/directories", "delete_folders"),
    ("GET", "/directories/list", "list_folder"),
    ("GET", "/metrics", "metrics"),
]


def _copy(source: Any, target: BinaryIO, size: int) -> None:
    while size:
        piece = source.read(min(size, COPY_BYTES))
        if not piece:
            raise ConnectionError("the body was cut")
        target.write(piece)
        size -= len(piece)


def _parts(body: BinaryIO, boundary: bytes) -> list[tuple[str, BinaryIO]]:
    """Take a multipart body apart, into files; a part without a file name is none."""
    if not os.fstat(body.fileno()).st_size:
        return []
    with mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        found: list[tuple[str, BinaryIO]] = []
        mark = b"--" + boundary
        at = whole.find(mark)
        while at >= 0:
            begin = at + len(mark) + 2
            at = whole.find(b"\r\n" + mark, begin)
            if at < 0:
                break
            head_end = whole.find(b"\r\n\r\n", begin)
            head = whole[begin:head_end].decode("utf-8", "replace")
            name = re.search(r'\bname="([^"]*)"', head)
            if name and "filename=" in head:
                found.append((name.group(1), io.BytesIO(whole[head_end + 4 : at])))
            at += 2
        return found


def _pump(
    read: Callable[[int], bytes], source: socket.socket, target: socket.socket
) -> None:
    """Pass on until the end; the end of either direction is that of both."""
    try:
        while True:
            piece = read(COPY_BYTES)
            if not piece:
                break
            target.sendall(piece)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _expanded(path: str) -> str:
    """Return an absolute path; a variable that is not set is a fault, as it is there."""

    def value(found: re.Match[str]) -> str:
        return os.environ[found.group(1) or found.group(2)]

    path = re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, os.path.expanduser(path))
    return os.path.join("/", path)


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _info(path: str) -> dict[str, Any]:
    seen = os.lstat(path)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen.st_mtime))
    return {
        "path": path,
        "size": seen.st_size,
        "mode": int("%o" % stat.S_IMODE(seen.st_mode)),
        "owner": "root",
        "group": "root",
        "type": kinds.get(stat.S_IFMT(seen.st_mode), "other"),
        "modified_at": at,
        "created_at": at,
    }


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)(ms|s)", text)
    if not found:
        return 1.0
    return float(found.group(1)) / (1000 if found.group(2) == "ms" else 1)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class UnixServer(Server):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> Any:
        connection, _ = self.socket.accept()
        return connection, ("", 0)


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # In a sandbox whose network is the host's, or nothing, it is a socket of its own.
    path = os.environ.get("STAND_IN_LISTEN")
    if path:
        path = os.path.join("/opt/stand-in", os.path.basename(path))
        if os.path.exists(path):
            os.unlink(path)
        server = UnixServer(path, Handler)
    else:
        server = Server(("0.0.0.0", PORT), Handler)
    server.serve_forever(poll_interval=0.5)


if __name__ == "__main__":
    main()
