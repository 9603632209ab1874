# SPDX-License-Identifier: Apache-2.0
"""The blocks of a NeMo Gym configuration, and how a provider is found by its name."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from livery.adapters.nemo_gym import gym
from livery.entrypoints import plug_ins
from livery.entrypoints.built_in import DockerOptions
from livery.entrypoints.nemo_gym import providers
from livery.entrypoints.nemo_gym.blocks import Blocks, read_blocks
from livery.entrypoints.nemo_gym.clashes import GROUP, name_clashes
from livery.entrypoints.nemo_gym.providers import agent_sandbox, livery_docker

from ..entrypoints.command_lines import Livery
from ..plug_ins.conftest import Install, installed, livery, state

__all__ = ["installed", "livery", "state"]

CONFIGS = Path(providers.__file__).parent / "configs"


def test_blocks_that_are_left_out_or_null_are_the_defaults() -> None:
    blocks, connection = read_blocks(
        "livery_docker",
        Blocks,
        {"exec": {"exec_shell": None}, "probe": None},
        connection=DockerOptions,
    )

    assert blocks == Blocks()
    assert connection == DockerOptions()
    assert blocks.probe.probe is None


def test_blocks_are_read_with_what_they_say() -> None:
    blocks, connection = read_blocks(
        "livery_docker",
        Blocks,
        {
            "connection": {"address": "unix:///run/docker.sock"},
            "create": {"image": "python:3", "ttl_s": 60, "network": "none"},
            "probe": {"command": "true", "stable_count": 3, "stable_delay_s": 0},
        },
        connection=DockerOptions,
    )

    assert isinstance(connection, DockerOptions)
    assert connection.address == "unix:///run/docker.sock"
    assert (blocks.create.image, blocks.create.ttl_s) == ("python:3", 60.0)
    probe = blocks.probe.probe
    assert probe is not None
    assert (probe.command, probe.stable_count, probe.stable_delay_s) == ("true", 3, 0.0)


@pytest.mark.case("FC-254")
def test_every_mistake_of_all_blocks_is_told_at_once_with_its_path() -> None:
    with pytest.raises(ValueError, match="livery_docker cannot be used") as raised:
        livery_docker(
            connection={"adress": "x"},
            create={"ttl_s": 0, "network": "some"},
            exec={"default_timeout_s": "180"},
            opertions={"close_timeout_s": 1},
        )

    text = str(raised.value)
    assert "connection.adress: is unknown; did you mean address?" in text
    assert "create.ttl_s: wants a number of seconds above 0" in text
    assert 'create.network: wants "default" or "none"' in text
    assert "exec.default_timeout_s: wants a number, found '180'" in text
    assert "opertions: is unknown; did you mean operations?" in text


def test_a_block_that_is_no_table_is_told_with_the_other_mistakes() -> None:
    with pytest.raises(ValueError, match="agent_sandbox cannot be used") as raised:
        agent_sandbox(
            exec="/bin/sh",  # type: ignore[arg-type]
            create={"ttl_s": 0},
        )

    assert "exec: wants" in str(raised.value)
    assert "create.ttl_s: wants" in str(raised.value)


def test_a_library_that_is_missing_is_told_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    for name in [*sys.modules]:
        if name.startswith("livery.adapters.docker_engine"):
            monkeypatch.delitem(sys.modules, name)

    with pytest.raises(plug_ins.ExtraMissing, match=r"livery\[nemo-gym\]"):
        livery_docker()


def test_without_nemo_gym_the_error_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, gym.MODULE, None)

    with pytest.raises(gym.NemoGymMissing, match=r"0\.4\.0 or newer"):
        gym.load_gym()


def test_every_entry_point_can_be_loaded_without_nemo_gym() -> None:
    script = (
        "import importlib.metadata, json, sys\n"
        "sys.modules['nemo_gym'] = None\n"
        f"found = importlib.metadata.entry_points(group={GROUP!r})\n"
        "ours = [one for one in found if one.dist.name == 'livery']\n"
        "print(json.dumps({one.name: callable(one.load()) for one in ours}))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert "livery_docker" in told
    assert all(told.values())


def test_livery_check_finds_two_distributions_with_one_name(
    livery: Livery, installed: Install
) -> None:
    assert name_clashes() == ()
    entry = {f"{GROUP}/livery_docker": "nowhere:nothing"}

    installed("other-one", **entry)

    (told,) = name_clashes()
    assert "'livery_docker' is published by livery" in told
    assert "other-one" in told
    assert told.endswith("pip uninstall other-one.")
    ended = livery("check")
    said = " ".join(ended.out.replace("│", " ").split())
    assert ended.status == 1
    assert "pip uninstall other-one" in said


def test_two_of_others_are_told_too(installed: Install) -> None:
    for name in ("first-one", "second-one"):
        installed(name, **{f"{GROUP}/theirs": "nowhere:nothing"})

    (told,) = name_clashes()

    assert "first-one" in told
    assert "second-one" in told
    assert told.endswith("uninstall all but one.")


def test_no_name_of_ours_is_one_of_nemo_gyms_own() -> None:
    built_in = {
        *("apptainer", "daytona", "docker", "e2b", "ecs_fargate", "enroot"),
        *("local", "opensandbox", "openshell"),
    }
    found = importlib.metadata.entry_points(group=GROUP)

    assert not built_in & {one.name for one in found if one.dist is not None}


@pytest.mark.peer("nemo_gym")
@pytest.mark.parametrize("path", sorted(CONFIGS.iterdir()), ids=lambda path: path.name)
def test_a_shipped_configuration_binds_sandbox_and_can_be_used_as_it_is(
    path: Path,
) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    ((name, given),) = content.pop("sandbox").items()

    assert content == {}
    assert getattr(providers, name)(**given).name == name == path.stem


@pytest.mark.peer("nemo_gym")
def test_words_without_effect_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    livery_docker(operations={"close_wait_deleted": False, "poll_interval_s": 3})

    assert "close_wait_deleted is false, and a close waits all the same" in caplog.text
    assert "poll_interval_s has no effect" in caplog.text
