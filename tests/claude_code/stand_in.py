# SPDX-License-Identifier: Apache-2.0
"""A small program in place of the real one: asks its model once, and says so.

It asks over HTTP at the address and with the key that the real one would take, and
does the model's tool calls of the kind `Bash`.
"""

import hashlib
import sys
from pathlib import Path

VERSION = "9.9.9"
PROGRAM = r"""
import http.client, json, os, subprocess, sys, urllib.parse

if sys.argv[1:] == ["--version"]:
    print("@VERSION@ (Claude Code)")
    sys.exit()

def say(**event):
    print(json.dumps(event), flush=True)

asked = sys.stdin.read()
place = urllib.parse.urlsplit(os.environ["ANTHROPIC_BASE_URL"])
model = sys.argv[sys.argv.index("--model") + 1]
messages = [{"role": "user", "content": asked}]
usage = {"input_tokens": 0, "output_tokens": 0}
tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
say(type="system", subtype="init", session_id="s", model=model, tools=["Bash"])

def ask():
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    body = {"model": model, "messages": messages, "stream": True, "tools": tools}
    words = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
    connection.request("POST", place.path + "/v1/messages", json.dumps(body), words)
    reply = connection.getresponse()
    text = reply.read().decode()
    if reply.status != 200:
        say(type="assistant", uuid="e", isApiErrorMessage=True, error="server_error",
            message={"id": "e", "model": "<synthetic>", "role": "assistant",
                     "content": [{"type": "text", "text": "API Error: %d" % reply.status}]})
        say(type="result", subtype="success", is_error=True, api_error_status=reply.status,
            result="API Error: %d" % reply.status, usage=usage)
        sys.exit(1)
    block, stop = {}, ""
    for line in text.splitlines():
        if not line.startswith("data: "):
            continue
        event = json.loads(line[6:])
        if event["type"] == "content_block_start":
            block = event["content_block"]
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            if "text" in delta:
                block["text"] += delta["text"]
            else:
                block["input"] = json.loads(delta["partial_json"])
        if event["type"] == "message_delta":
            stop = event["delta"]["stop_reason"]
    return block, stop

for turn in range(20):
    block, stop = ask()
    message = {"id": "msg_%d" % turn, "model": model, "role": "assistant",
               "content": [block], "stop_reason": stop, "usage": usage}
    say(type="assistant", uuid="a%d" % turn, message=message)
    messages.append({"role": "assistant", "content": [block]})
    if stop == "end_turn":
        break
    done = subprocess.run(block["input"]["command"], shell=True, capture_output=True)
    told = {"type": "tool_result", "tool_use_id": block["id"],
            "content": done.stdout.decode(), "is_error": done.returncode != 0}
    messages.append({"role": "user", "content": [told]})
    say(type="user", uuid="u%d" % turn, message={"role": "user", "content": [told]})
say(type="result", subtype="success", is_error=False, result="done", usage=usage)
"""


def make(folder: Path) -> Path:
    """Write the program, which anybody may run, and return where it is."""
    path = folder / "claude"
    text = PROGRAM.replace("@VERSION@", VERSION)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def options_of(path: Path) -> dict[str, str]:
    """Return the harness's options that bring it."""
    return {
        "sandbox_local_executable_path": str(path),
        "sandbox_executable_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
