# SPDX-License-Identifier: Apache-2.0
"""What the soak's episodes are: what is asked, what the agent does, and what it is worth.

The number of an episode decides what its model answers, so everybody outside knows the
reward beforehand. A right answer is worth 1, a wrong one a quarter, and no answer 0: as
long as the model answers, 0 would be a fault that was taken for the agent's work.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

RIGHT: Final = 1.0
WRONG: Final = 0.25
VERSION: Final = "9.9.9"
ANSWER: Final = "answer.txt"
STARTS: Final = "starts"
INSIDE: Final = "/outside"
"""Where a sandbox sees the folder in which starts are counted."""

PROGRAM: Final = f"""#!/usr/bin/env python3
import json, os, sys, time, urllib.request
if "--version" in sys.argv:
    print("{VERSION} (Claude Code)")
    sys.exit()
prompt = sys.stdin.read()
run = os.path.basename(os.path.dirname(os.environ["CLAUDE_CONFIG_DIR"]))
with open("{INSIDE}/{STARTS}", "a") as starts:
    starts.write(json.dumps([prompt.strip(), run, os.uname().nodename]) + "\\n")


def say(**event):
    print(json.dumps(event), flush=True)


def ask():
    body = {{"model": "m1", "stream": True, "max_tokens": 100,
            "messages": [{{"role": "user", "content": prompt}}]}}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {{"content-type": "application/json",
         "x-api-key": os.environ["ANTHROPIC_API_KEY"]}},
    )
    text, is_whole = "", False
    with urllib.request.urlopen(request, timeout=30) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                text += event.get("delta", {{}}).get("text", "")
                is_whole = is_whole or event["type"] == "message_stop"
    if not is_whole:
        raise OSError("the stream was cut off")
    return text


say(type="system", subtype="init", session_id="s", model="m1")
told, failure = None, ""
for again in range(4):
    try:
        told = ask()
        break
    except (OSError, ValueError) as error:
        failure = "API Error: %r" % error
        time.sleep(0.25 * 2 ** again)
usage = {{"input_tokens": 10, "output_tokens": 5}}
if told is None:
    say(type="assistant", uuid="e", isApiErrorMessage=True, error="server_error",
        message={{"id": "e", "model": "<synthetic>", "role": "assistant",
                 "content": [{{"type": "text", "text": failure}}]}})
    say(type="result", subtype="success", is_error=True, result=failure, usage=usage)
    sys.exit(1)
with open("{ANSWER}", "w") as answer:
    answer.write(told)
say(type="assistant", uuid="a", message={{
    "id": "msg_1", "model": "m1", "role": "assistant", "stop_reason": "end_turn",
    "content": [{{"type": "text", "text": told}}], "usage": usage}})
say(type="result", subtype="success", is_error=False, result=told, usage=usage)
"""
"""Stands for Claude Code: counts its start, asks its model, and writes what that says."""

GRADER: Final = f"""
read -r mark
case "$(cat {ANSWER} 2>/dev/null)" in
  'right NUMBER') echo {RIGHT} ;;
  'wrong NUMBER') echo {WRONG} ;;
  *) echo 0 ;;
esac > reward
echo "$mark"
"""


@attrs.frozen
class Episode:
    """One episode of the soak."""

    number: int

    @property
    def name(self) -> str:
        """How it is called."""
        return f"soak-{self.number}"

    @property
    def answer(self) -> str:
        """What its model says."""
        return f"{'wrong' if self.number % 3 == 0 else 'right'} {self.number}"

    @property
    def reward(self) -> float:
        """What that is worth."""
        return WRONG if self.number % 3 == 0 else RIGHT

    @property
    def body(self) -> bytes:
        """What is asked of the environment server."""
        grader: Mapping[str, object] = {
            "files": {".grade.sh": GRADER.replace("NUMBER", str(self.number))},
            "command": ["sh", ".grade.sh"],
            "reward": {"number_file": "reward"},
            # Every fourth is judged on a copy, in a sandbox of its own.
            "grade": "fresh" if self.number % 4 == 0 else "same",
            "timeout_seconds": 60,
        }
        task = {
            "task_id": {"taskset": "soak", "task_id": str(self.number)},
            "task_input": {
                "responses_create_params": {
                    "input": [{"role": "user", "content": self.name}]
                },
                "task_data": {"files": {"given.txt": "given"}, "grader": grader},
            },
        }
        name = {"rollout_id": self.name, "attempt": 0}
        return json.dumps({"episode_id": name, "task": task}).encode()


def says(body: dict[str, Any]) -> str:
    """Return what the model says to a request."""
    found = re.search(r"soak-(\d+)", json.dumps(body["messages"]))
    assert found, "no episode of the soak's"
    return Episode(int(found[1])).answer


@attrs.frozen
class Outside:
    """The folder in which starts are counted, and the program that counts them."""

    folder: Path

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(mode=0o777)
        self.folder.chmod(0o777)  # A mask takes bits away from mkdir's.
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    @property
    def program(self) -> Path:
        """The program as a file of this host."""
        return self.folder.with_name("claude")

    @property
    def sha256(self) -> str:
        """The program's digest."""
        return hashlib.sha256(PROGRAM.encode()).hexdigest()

    def starts(self) -> list[tuple[str, str, str]]:
        """Return, for each start, the episode, the run of a session, and the sandbox."""
        file = self.folder / STARTS
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(json.loads(line)) for line in lines]


def started_again(starts: list[tuple[str, str, str]]) -> list[str]:
    """Return the runs, one of each session, and the sandboxes with more than one start."""
    found: list[str] = []
    for at, what in ((1, "session's run"), (2, "sandbox")):
        counts = Counter(start[at] for start in starts)
        found += [f"{what} {name}: {n} starts" for name, n in counts.items() if n > 1]
    return found
