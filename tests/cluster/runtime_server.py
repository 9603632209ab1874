# SPDX-License-Identifier: Apache-2.0
"""A sandbox's runtime server as the reference image has it, its weaknesses included.

It runs inside the pod on the pod's own Python, with the standard library alone, so
that nothing needs to be installed there. What is weak in the real one is weak here:

- no shell reads a command, and its output is text that must be UTF-8;
- a command holds its call for as long as anything of it holds the output;
- a client that goes away stops nothing, and the cap answers like a failed command;
- files are held whole in memory and written in place; nobody is authenticated.

Environment: SANDBOX_BASE_DIR (/app), SANDBOX_EXEC_TIMEOUT_SECONDS (300), and, for
tests, RUNTIME_PORT (8888), RUNTIME_FLAT_UPLOADS (an older image: no parents are
made), RUNTIME_START_SECONDS (the pod is ready before the server is).
"""

import contextlib
import email
import email.message
import http.server
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

BASE = os.environ.get("SANDBOX_BASE_DIR", "/app")
CAP_SECONDS = float(os.environ.get("SANDBOX_EXEC_TIMEOUT_SECONDS", "300"))
PORT = int(os.environ.get("RUNTIME_PORT", "8888"))
FLAT = bool(os.environ.get("RUNTIME_FLAT_UPLOADS"))
START_SECONDS = float(os.environ.get("RUNTIME_START_SECONDS", "0"))


class Answer(Exception):
    """Ends a request with a status and something to say."""

    def __init__(self, status, detail):
        super().__init__(detail)
        self.status = status
        self.detail = detail


def execute(command, limit):
    """Run the words of a command to the end of its output."""
    try:
        process = subprocess.Popen(
            shlex.split(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=BASE,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        told = f"Failed to execute command: {error}"
        return {"stdout": "", "stderr": told, "exit_code": 1}
    cap = CAP_SECONDS if limit is None else min(limit, CAP_SECONDS)
    try:
        stdout, stderr = process.communicate(timeout=cap)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        process.wait()
        told = f"Command timed out after {cap:g} seconds"
        answer = {"stdout": "", "stderr": told, "exit_code": 1}
        if limit is not None:
            answer["timed_out"] = True
        return answer
    return {
        "stdout": stdout.decode("utf-8"),
        "stderr": stderr.decode("utf-8"),
        "exit_code": process.returncode,
    }


def inside(path):
    """Return the real path below the base folder, or refuse."""
    base = os.path.realpath(BASE)
    full = os.path.realpath(os.path.join(base, path.lstrip("/")))
    if os.path.commonpath([base, full]) != base:
        raise Answer(403, "Access denied: path is outside the sandbox directory")
    return full


def upload(content_type, body):
    """Write the part named `file`; return its name."""
    name, content = part_named_file(content_type, body)
    full = inside(name)
    if not FLAT:
        os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb") as file:
        file.write(content)
    return name


def part_named_file(content_type, body):
    """Return the file name and the bytes of the part named `file`."""
    kind = email.message.Message()
    kind["Content-Type"] = content_type
    mark = f"\r\n--{kind.get_boundary('')}"
    for part in (b"\r\n" + body).split(mark.encode())[1:]:
        head, _, content = part.partition(b"\r\n\r\n")
        said = email.message_from_string(head.decode("utf-8").strip())
        name = said.get_param("filename", header="content-disposition")
        if said.get_param("name", header="content-disposition") == "file" and name:
            return name, content
    raise Answer(422, [{"loc": ["body", "file"], "msg": "Field required"}])


class Handler(http.server.BaseHTTPRequestHandler):
    """The routes."""

    protocol_version = "HTTP/1.1"
    server_version = "sandbox-runtime"
    # As every asyncio server has it: an answer's head does not hold up its body.
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answered(self.get)

    def do_POST(self):
        self.answered(self.post)

    def answered(self, route):
        """Answer a request, whatever becomes of it."""
        try:
            try:
                status, kind, content = route()
            except Answer as answer:
                told = json.dumps({"detail": answer.detail}).encode()
                status, kind, content = answer.status, "application/json", told
            except Exception as error:
                told = json.dumps({"message": str(error)}).encode()
                status, kind, content = 500, "application/json", told
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True

    def get(self):
        """Tell the health, a file, a folder, or whether something is there."""
        path = urllib.parse.unquote(self.path.partition("?")[0])
        if path == "/":
            return told({"status": "ok", "message": "Sandbox Runtime is active."})
        route, _, rest = path.lstrip("/").partition("/")
        if route == "exists":
            return told({"path": rest, "exists": os.path.exists(inside(rest))})
        if route == "download":
            full = inside(rest)
            if not os.path.isfile(full):
                raise Answer(404, "File not found")
            with open(full, "rb") as file:
                return 200, "application/octet-stream", file.read()
        if route == "list":
            full = inside(rest)
            if not os.path.isdir(full):
                raise Answer(404, "Path is not a directory")
            return told([entry(one) for one in os.scandir(full)])
        raise Answer(404, "Not Found")

    def post(self):
        """Run a command or write a file."""
        body = self.body()
        if self.path == "/upload":
            try:
                name = upload(self.headers.get("Content-Type", ""), body)
            except OSError as error:
                raise Answer(500, f"File upload failed: {error}") from error
            return told({"message": f"File '{name}' uploaded successfully."})
        if self.path == "/execute":
            try:
                asked = json.loads(body)
                command, limit = asked["command"], asked.get("timeout_seconds")
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise Answer(422, [{"loc": ["body"], "msg": repr(error)}]) from error
            if not isinstance(command, str):
                raise Answer(422, [{"loc": ["body", "command"], "msg": "not a string"}])
            return told(execute(command, limit))
        raise Answer(404, "Not Found")

    def body(self):
        """Return the request's body, whole and in memory."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        pieces = []
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
            if size == 0:
                return b"".join(pieces)

    def log_message(self, format, *args):
        """Say nothing: a pod's log is nobody's here."""


def told(content):
    """Return the answer that says something in JSON."""
    return 200, "application/json", json.dumps(content).encode()


def entry(found):
    """Return a line of a folder's list."""
    facts = found.stat(follow_symlinks=False)
    return {
        "name": found.name,
        "size": facts.st_size,
        "type": "directory" if found.is_dir() else "file",
        "mod_time": facts.st_mtime,
    }


class Server(http.server.ThreadingHTTPServer):
    """Both families, and a thread for each connection."""

    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, client_address):
        """Say nothing of a client that left."""


def main():
    """Serve until the end."""
    os.makedirs(BASE, exist_ok=True)
    time.sleep(START_SECONDS)
    try:
        server = Server(("::", PORT), Handler)
    except OSError:  # A pod without IPv6.
        Server.address_family = socket.AF_INET
        Server.server_bind = http.server.HTTPServer.server_bind
        server = Server(("0.0.0.0", PORT), Handler)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
