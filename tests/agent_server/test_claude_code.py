# SPDX-License-Identifier: Apache-2.0
"""A program in a sandbox with its model behind the gateway: killed servers, no secrets.

The server is killed while the program works. The next one finds the run, opens the way
to its model again, and answers with what the one start came to. Meanwhile everything is
searched for the model's real credential.
"""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import httpx
import psutil
import pytest

from ..docker_engine import raw_engine
from ..local_host.places import processes_of
from .processes import Ground
from .stand_in import Model, StandIn, model_server
from .test_processes import in_background, until

ACTIVATIONS = "/ng-rollout/r1/v1/responses"
PROMPT = {"input": [{"role": "user", "content": "Mend it."}]}
REAL = "sk-real-Pl4nt3d-in-the-agent-server"
VARIABLE = "LIVERY_TEST_MODEL_KEY"
ENGINE = "docker"


@attrs.frozen
class Scene:
    """A ground with the stand-in, a model, and a kind of sandbox."""

    kind: str
    ground: Ground
    program: StandIn
    model: Model

    def settle(self, image: str) -> None:
        shared = "/shared" if self.kind == ENGINE else str(self.program.shared)
        block = 'provider = "local"'
        if self.kind == ENGINE:
            block = (
                f'provider = "docker"\nimage = "{image}"\nnetwork = "none"\n'
                f'mounts = [{{source = "{self.program.shared}", target = "/shared",'
                " read_only = false}]"
            )
        (self.ground.folder / "livery.toml").write_text(
            f"""
[log]
level = "debug"
[agent_server]
port = 0
harness = "claude_code"
sandbox_provider = "own"
shutdown_grace_seconds = 20
[model]
url = "{self.model.url}"
credential = {{env = "{VARIABLE}"}}
gateway_port = {free_port()}
keep_bodies = true
[harness.claude_code.options]
sandbox_local_executable_path = "{self.program.path}"
sandbox_executable_sha256 = "{self.program.sha256}"
env = {{SHARED = "{shared}"}}
[sandbox.own]
{block}
"""
        )

    def log(self, number: int) -> Path:
        return self.ground.folder / f"log-{number}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(
    params=["local", pytest.param(ENGINE, marks=pytest.mark.peer("docker"))]
)
def scene(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    test_image: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    monkeypatch.setenv(VARIABLE, REAL)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with model_server() as model:
        made = Scene(request.param, Ground(tmp_path), StandIn(tmp_path), model)
        made.settle(test_image)
        yield made


def owner_of(scene: Scene) -> str:
    return (scene.ground.folder / "state" / "owner").read_text().strip()


def left(scene: Scene) -> list[str]:
    """Return the sandboxes of ours that are there."""
    if scene.kind == ENGINE:
        return [*raw_engine.labelled(f"livery.owner={owner_of(scene)}")]
    return [p.name for p in (scene.ground.folder / "state" / "sandboxes").iterdir()]


def files_with(folder: Path, word: str) -> list[str]:
    """Return the files below a folder that hold a word, or have it in their name."""
    found: list[str] = []
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        if word in path.name or word.encode() in path.read_bytes():
            found.append(str(path.relative_to(folder)))
    return sorted(found)


def inside(scene: Scene, script: str) -> str:
    """Run a script as root in the container, and return what it says."""
    (container,) = (
        name.split()[1].removeprefix("/")
        for name in left(scene)
        if name.startswith("container ")
    )
    words = ["docker", "exec", "--user", "0", container, "sh", "-c", script]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return ended.stdout


def command_lines() -> str:
    told: list[str] = []
    for process in psutil.process_iter():
        try:
            told += process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return "\n".join(told)


def test_a_killed_server_s_run_finds_its_model_again_and_is_not_started_twice(
    scene: Scene,
) -> None:
    with scene.ground.logged_server(scene.log(1)) as first:
        cookie = first.seeded()
        thread, _ = in_background(lambda: first.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: scene.program.has_seen)
        first.popen.kill()
        first.popen.wait()
        thread.join()
    with scene.ground.logged_server(scene.log(2)) as second:
        scene.program.go_on()
        reply = second.post(ACTIVATIONS, PROMPT, cookie)
        again = second.post(ACTIVATIONS, PROMPT, cookie)
        closed = second.close()

    told = reply.json()
    assert reply.status_code == 200, reply.text
    assert told["status"] == "completed", told["error"]
    (message,) = told["output"]
    assert message["content"][0]["text"] == "answer 1 answer 2"
    assert again.content == reply.content
    records = closed.json()["agent_observations"]["records"]
    assert [record["kind"] for record in records] == ["agent_invocation", "sandbox"]
    assert scene.program.starts == ["start"]
    assert {head["x-api-key"] for head in scene.model.heads} == {REAL}
    assert left(scene) == []


@pytest.mark.case("FC-174")
def test_the_real_credential_is_nowhere_but_on_its_way_to_the_model(
    scene: Scene,
) -> None:
    log = scene.log(1)
    with scene.ground.logged_server(log) as server:
        cookie = server.seeded()
        thread, found = in_background(lambda: server.post(ACTIVATIONS, PROMPT, cookie))
        until(lambda: scene.program.has_seen)
        lines, own = command_lines(), json.loads(scene.program.seen())
        if scene.kind == ENGINE:
            everywhere = "grep -rlF {} / --exclude-dir=proc --exclude-dir=sys"
            files = [inside(scene, everywhere.format(w)) for w in ("Mend", REAL)]
            processes = inside(scene, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline")
        else:
            sandboxes = scene.ground.folder / "state" / "sandboxes"
            files = [str(files_with(sandboxes, word)) for word in ("Mend", REAL)]
            processes = "".join(environments_below(sandboxes))
        scene.program.go_on()
        thread.join()
        closed = server.close()
    (reply,) = found
    assert isinstance(reply, httpx.Response)

    placeholder = own[0]["ANTHROPIC_API_KEY"]
    # That each search finds what is there, is seen by what may be there.
    assert "prompt.txt" in files[0]
    assert placeholder in processes
    assert str(scene.program.path.name) in lines
    assert files_with(scene.ground.folder / "state", "Mend it.") != []
    assert any("journal" in name for name in files_with(scene.ground.folder, "Mend"))
    assert any("artifacts" in name for name in files_with(scene.ground.folder, "heard"))
    assert "answer 1 answer 2" in reply.text
    assert "Serving agent sessions" in log.read_text()
    assert [head["x-api-key"] for head in scene.model.heads] == [REAL, REAL]
    shown = (files[1], processes, lines, json.dumps(own[:2]), reply.text, closed.text)
    assert [REAL in text for text in shown] == [False] * len(shown)
    # A local sandbox is no boundary: what runs in it reads this user's processes.
    may_have = [] if scene.kind == ENGINE else ["shared/seen.json"]
    assert files_with(scene.ground.folder, REAL) == may_have
    assert placeholder not in lines


def environments_below(folder: Path) -> list[str]:
    """Return the environments of what runs in a local sandbox."""
    told: list[str] = []
    for process in processes_of(folder):
        try:
            told.append(str(process.environ()))
        except psutil.NoSuchProcess:
            continue
    return told
