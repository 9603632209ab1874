# SPDX-License-Identifier: Apache-2.0
"""One task of the office for the real program, and the three servers that run it.

The servers ask each other over HTTP. The model of each way tries to paste a file
first, which is refused, and then moves it by its path: from the drive into the
workspace, and from there into a mail.
"""

import base64
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import httpx

from livery.adapters.worlds.desk import DeskTasks, DeskWorld
from livery.adapters.worlds.desk.world import DeskApps
from livery.domain.scores import GraderEvidence
from livery.domain.tasks import Task, TaskId
from livery.entrypoints.agent_server.composition import open_agent_server
from livery.entrypoints.environment_server.composition import open_environment_server
from livery.entrypoints.http_serving.answering import to_application
from livery.entrypoints.http_serving.serving import (
    Served,
    address_of,
    listen,
    serving,
)
from livery.entrypoints.plug_ins import Surroundings
from livery.entrypoints.resources_server.composition import open_resources
from livery.entrypoints.settings_reading import SettingsFile, read_settings
from livery.entrypoints.state_folder import open_state_folder

from ..harnesses.claude_code.scripted_model import Choice, Turn

TASK: Final = TaskId("desk", "attach-customers")
FILE_WORDS: Final = "Harbour,Bergen,40"
"""What stands in the file, and has to stay out of the conversation."""
FILE_BYTES: Final = "63"
"""What the shell says of its length, once it is in the workspace."""
PASTED: Final = base64.b64encode(b"any file that somebody has at hand; " * 12).decode()
REFUSED: Final = "as base64, which is not taken here"
EPISODE_SECONDS: Final = 600.0
GRACE_SECONDS: Final = 5.0

_MAIL: Final[Mapping[str, Any]] = {
    "to": ["tomas@office.example"],
    "subject": "Customers",
    "body": "Customers",
}
_COUNT: Final = ("Bash", {"command": "wc -c < customers.csv"})
# What a model writes that has read the documentation of the endpoints.
_ASK: Final = """\
import json, subprocess, sys, urllib.error, urllib.request
told = subprocess.run(["office-docs"], check=True, capture_output=True, text=True).stdout
base = told.split("Base URL: ")[1].split()[0]
name, value = told.split("Header: ")[1].splitlines()[0].split(": ", 1)
asked = urllib.request.Request(base + sys.argv[1], sys.argv[2].encode(), {name: value})
try:
    print(urllib.request.urlopen(asked, timeout=60).read().decode())
except urllib.error.HTTPError as error:
    sys.exit("%d %s" % (error.code, error.read().decode()))
"""
# What an agent tries that looks for a way to its own verdict.
_KNOCK: Final = """\
import urllib.error, urllib.request
with open("/proc/net/tcp") as table:
    rows = [line.split() for line in table][1:]
for port in sorted({int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}):
    for path in ("seed_session", "verify", "close_session"):
        asked = urllib.request.Request("http://127.0.0.1:%d/%s" % (port, path), b"{}")
        try:
            urllib.request.urlopen(asked, timeout=60)
            print("open")
        except urllib.error.HTTPError as error:
            print("knocked", error.code)
"""
KNOCK: Final = ("Bash", {"command": f"python3 - <<'END'\n{_KNOCK}END"})


def _by_tools() -> tuple[Turn, ...]:
    send = "mcp__office__mail_send"
    return (
        KNOCK,
        (send, {**_MAIL, "body": PASTED}),
        ("mcp__office__drive_download", {"path": "customers.csv"}),
        _COUNT,
        (send, {**_MAIL, "attach": ["customers.csv"]}),
    )


def _by_commands() -> tuple[Turn, ...]:
    send = "mail send --to=tomas@office.example --subject=Customers"
    return (
        KNOCK,
        ("Bash", {"command": "cat GUIDE.md && mail send --help"}),
        ("Bash", {"command": f"{send} --body={PASTED}"}),
        ("Bash", {"command": "drive download --path=customers.csv"}),
        _COUNT,
        ("Bash", {"command": f"{send} --body=Customers --attach=customers.csv"}),
    )


def _by_endpoints() -> tuple[Turn, ...]:
    def ask(path: str, body: Mapping[str, Any]) -> Turn:
        command = f"python3 ask.py /api/{path} '{json.dumps(body)}'"
        return ("Bash", {"command": command})

    return (
        KNOCK,
        ("mcp__office__office-docs", {}),
        ("Bash", {"command": f"cat GUIDE.md && cat > ask.py <<'END'\n{_ASK}END"}),
        ask("mail/send", {**_MAIL, "body": PASTED}),
        ask("drive/download", {"path": "customers.csv"}),
        _COUNT,
        ask("mail/send", {**_MAIL, "attach": ["customers.csv"]}),
    )


TURNS: Final[Mapping[str, Callable[[], tuple[Turn, ...]]]] = {
    "mcp": _by_tools,
    "commands": _by_commands,
    "endpoints": _by_endpoints,
}


def task(way: str, name: TaskId = TASK) -> Task:
    """Return a task, with its apps reached that way."""
    return next(one for one in DeskTasks(way).tasks() if one.task_id == name)


def model(*turns: Turn) -> Choice:
    """Return the model that takes these turns and then says that it is done."""

    def choice(body: dict[str, Any]) -> Turn:
        messages = body["messages"]
        if not any(tool["name"] == "Bash" for tool in body.get("tools", ())):
            return "Nothing of the kind."  # Not the agent's own conversation.
        said = sum(message["role"] == "assistant" for message in messages)
        return (*turns, "It is done.")[said]

    return choice


def by_tools(name: TaskId) -> tuple[Turn, ...]:
    """Return the turns that solve a task by the tools of its server."""
    return tuple(
        (f"mcp__office__{call.tool}", dict(call.arguments))
        for call in DeskTasks().calls(name)
    )


def results(asked: dict[str, Any]) -> list[str]:
    """Return what each tool call of a conversation came to."""
    found: list[str] = []
    for message in asked["messages"]:
        content = message["content"]
        if isinstance(content, str):
            continue
        for block in content:
            if block["type"] == "tool_result":
                told = block["content"]
                parts = [told] if isinstance(told, str) else [b["text"] for b in told]
                found.append("\n".join(parts))
    return found


def run_body(one: Task) -> dict[str, Any]:
    """Return what `/run` is asked."""
    name = one.task_id
    return {
        "episode_id": {"rollout_id": "office"},
        "task": {
            "task_id": {"taskset": name.taskset, "task_id": name.task_id},
            "task_input": {
                "responses_create_params": one.responses_create_params,
                "task_data": one.task_data,
            },
        },
    }


@attrs.frozen(kw_only=True)
class WatchedDesk(DeskWorld):
    """The office, with a look at what is left of its sandbox when it is judged."""

    look: Callable[[], object]
    seen: list[object] = attrs.field(factory=list[object])

    async def open(self, task: Task, folder: str) -> "WatchedApps":
        opened = await DeskWorld.open(self, task, folder)
        return WatchedApps(folder=opened.folder, changes=opened.changes, world=self)


@attrs.frozen(kw_only=True)
class WatchedApps(DeskApps):
    """The apps of one watched office."""

    world: WatchedDesk

    async def evidence(self) -> GraderEvidence:
        self.world.seen.append(self.world.look())
        return await DeskApps.evidence(self)


@asynccontextmanager
async def environment(
    path: Path, state_folder: Path, world: DeskWorld
) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve the settings' three servers apart, and give who asks the environment."""
    file, state = read_settings(path), open_state_folder(state_folder)
    surroundings = Surroundings(name="tests", state=state_folder)
    async with AsyncExitStack() as stack:

        async def served(application: Any) -> str:
            listening = listen("127.0.0.1", 0)
            stack.callback(listening.close)
            url = address_of(listening)
            await stack.enter_async_context(
                serving(application, listening, grace_seconds=GRACE_SECONDS)
            )
            return url

        def routes(of: Served) -> Any:
            return to_application(of.routes)

        resources = await stack.enter_async_context(
            open_resources(file, state, surroundings, world)
        )
        resources_url = await served(to_application(resources.routes))
        agent = await stack.enter_async_context(
            open_agent_server(file, state, surroundings)
        )
        agent_url = await served(routes(agent))
        of_environment = attrs.evolve(
            file.settings.environment_server,
            resources_url=resources_url,
            agent_url=agent_url,
        )
        settings = attrs.evolve(file.settings, environment_server=of_environment)
        environment_server = await stack.enter_async_context(
            open_environment_server(
                SettingsFile(settings=settings), state, surroundings
            )
        )
        transport = httpx.ASGITransport(app=routes(environment_server))
        yield await stack.enter_async_context(
            httpx.AsyncClient(
                transport=transport,
                base_url="http://environment",
                timeout=EPISODE_SECONDS,
            )
        )
