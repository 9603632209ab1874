# SPDX-License-Identifier: Apache-2.0
"""The outside effects of Livery, as the code declares them: methods of required ports.

Each method of each protocol in `ports/required`, and of the Docker Engine below one of
them, is an effect, with a crash point before it and one after it, or is said to be none.
A test holds the two tables against the code, so a method that is in neither fails it.
"""

import importlib
import inspect
import pkgutil
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from livery.adapters.docker_engine.engine import Engine
from livery.ports import required
from livery.ports.required.sandbox import Command

Subject = Callable[[Mapping[str, Any]], str | None]
"""Tells what a call is about, by its arguments' names; None: it changes nothing."""

_PLACED: Final = re.compile(r"-[0-9a-f]{8,}(?:\.py)?(?=\.|$)")
"""What a name has behind its own, to be the only one."""
QUESTIONS: Final = frozenset({"supervisor status", "python -c"})
"""Commands in a sandbox that only look."""


def nothing(arguments: Mapping[str, Any]) -> str:
    """What is called once for each thing needs no more words."""
    return ""


def events(arguments: Mapping[str, Any]) -> str:
    """An append, by what it says has happened."""
    return "+".join(type(event).__name__ for event in arguments["events"])


def words(arguments: Mapping[str, Any]) -> str | None:
    """A command in a sandbox: the worker script and what it is asked, or the program."""
    command: Command = arguments["command"]
    program, *rest = (posixpath.basename(word) for word in command.argv)
    if rest[:2] == ["-I", "-S"]:
        asked = command.argv[4] if len(rest) > 3 else ""
        script = _PLACED.sub("", rest[2])
        told = "python -c" if script == "-c" else f"{script} {asked}".strip()
    else:
        told = program
    return None if told in QUESTIONS else told


def placed(arguments: Mapping[str, Any]) -> str:
    """A file in a sandbox, by its name."""
    return _PLACED.sub("", posixpath.basename(arguments["path"]))


def shelved(arguments: Mapping[str, Any]) -> str:
    """An artifact, by its name."""
    return str(arguments["name"])


EFFECTS: Final[Mapping[str, Subject]] = {
    "AppWorld.build": nothing,
    "AppWorld.open": nothing,
    "Apps.call": nothing,
    "Apps.close": nothing,
    "ArtifactStore.put": shelved,
    "Agent.activate": nothing,
    "Agent.close": nothing,
    "Agent.seed": nothing,
    "Engine.create": nothing,
    "Engine.exec_attached": nothing,
    "Engine.kill": nothing,
    "Engine.pause": nothing,
    "Engine.pull": nothing,
    "Engine.put_archive": nothing,
    "Engine.remove": nothing,
    "Engine.start": nothing,
    "Engine.unpause": nothing,
    "FreezingProvider.freeze": nothing,
    "FreezingProvider.thaw": nothing,
    "HostRun.carry_out": nothing,
    "Journal.append": events,
    "Journal.forget": nothing,
    "ModelAccess.grant": nothing,
    "ModelAccess.revoke": nothing,
    "Resources.close": nothing,
    "Resources.seed": nothing,
    "Resources.verify": nothing,
    "ResultLog.append": nothing,
    "RuntimeSource.obtain": nothing,
    "Sandbox.disconnect": nothing,
    "Sandbox.exec": words,
    "Sandbox.put": placed,
    "SandboxProvider.connect": nothing,
    "SandboxProvider.create": nothing,
    "SandboxProvider.destroy": nothing,
    "StreamingSandbox.open_process": nothing,
}

LOOKS: Final = "it looks, and changes nothing"
IN_MEMORY: Final = "it changes nothing outside of this process"
CARRIES: Final = (
    "what it carries is a command or a file, whose point is around the whole"
)

NO_EFFECTS: Final[Mapping[str, str]] = {
    "AppWorld.reaching": IN_MEMORY,
    "AppWorld.tools": IN_MEMORY,
    "Apps.evidence": LOOKS,
    "Apps.state": LOOKS,
    "ArtifactStore.find": LOOKS,
    "ArtifactStore.get": LOOKS,
    "ArtifactStore.list": LOOKS,
    "ByteStream.aclose": CARRIES,
    "ByteStream.receive": CARRIES,
    "ByteStream.send": CARRIES,
    "CallSolutions.calls": LOOKS,
    "Clock.monotonic": LOOKS,
    "Clock.now": LOOKS,
    "Clock.sleep": IN_MEMORY,
    "DuplexStream.send_end": CARRIES,
    "Engine.aclose": IN_MEMORY,
    "Engine.containers": LOOKS,
    "Engine.exec_exit_code": LOOKS,
    "Engine.get_archive": LOOKS,
    "Engine.image": LOOKS,
    "Engine.inspect": LOOKS,
    "Harness.check": IN_MEMORY,
    "Harness.prepare": LOOKS,
    "Harness.read": LOOKS,
    "HostHarness.begin": IN_MEMORY,
    "HostRun.reading": IN_MEMORY,
    "Holders.alive": LOOKS,
    "Ids.fresh": IN_MEMORY,
    "Journal.moved": LOOKS,
    "Journal.open_streams": LOOKS,
    "Journal.read": LOOKS,
    "ModelAccess.seen": LOOKS,
    "PackedBytes.piece": LOOKS,
    "PlacedTasks.place": LOOKS,
    "Resources.task_state": LOOKS,
    "ResultLog.records": LOOKS,
    "RuntimeSource.host_path": LOOKS,
    "RuntimeSource.open_packed": LOOKS,
    "RuntimeSource.packed": LOOKS,
    "Sandbox.access": IN_MEMORY,
    "Sandbox.endpoint": LOOKS,
    "Sandbox.get": LOOKS,
    "Sandbox.stat": LOOKS,
    "Sandbox.status": LOOKS,
    "SandboxProvider.aclose": IN_MEMORY,
    "SandboxProvider.find": LOOKS,
    "SandboxProvider.identify": LOOKS,
    "SandboxProvider.list": LOOKS,
    "Solutions.solution": LOOKS,
    "SolvedWorld.solution": IN_MEMORY,
    "TaskSource.tasks": LOOKS,
    "ToolServers.for_sandboxes": LOOKS,
    "ToolServers.unreachable": LOOKS,
    "World.check": IN_MEMORY,
    "World.evidence": IN_MEMORY,
    "World.files": IN_MEMORY,
    "World.grader": IN_MEMORY,
    "World.sandbox": IN_MEMORY,
}
"""What has no point, and why."""


def protocols() -> Iterator[type]:
    """Every protocol of the required ports."""
    for module in pkgutil.iter_modules(required.__path__):
        named = importlib.import_module(f"{required.__name__}.{module.name}")
        for _, kind in inspect.getmembers(named, inspect.isclass):
            if kind.__module__ == named.__name__ and getattr(
                kind, "_is_protocol", False
            ):
                yield kind


def methods(kind: type) -> Iterator[str]:
    """The public methods that a class itself declares; what is a property is data."""
    for name, member in vars(kind).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            yield name


def declared() -> Iterator[str]:
    """Every method that could be an effect, as the tables name it."""
    for kind in (*protocols(), Engine):
        for name in methods(kind):
            yield f"{kind.__name__}.{name}"
