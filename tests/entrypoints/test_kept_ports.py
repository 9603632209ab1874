# SPDX-License-Identifier: Apache-2.0
"""A free port is chosen once for a state folder; the next server is there again."""

import socket
import stat
from pathlib import Path

import pytest

from livery.entrypoints.http_serving.serving import AddressTaken
from livery.entrypoints.kept_ports import KEPT_MAX, listen_as_before
from livery.entrypoints.state_folder import (
    StateFolder,
    StateFolderUnusable,
    open_state_folder,
)

HOST = "127.0.0.1"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return open_state_folder(tmp_path / "state")


def taken(state: StateFolder, name: str = "tools") -> int:
    with listen_as_before(state, name, HOST, 0) as listening:
        return port_of(listening)


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def test_the_next_server_has_the_port_of_the_one_before(state: StateFolder) -> None:
    first = taken(state)

    again = taken(state)

    assert again == first
    assert taken(state, "others") != first
    kept = state.path / "tools-ports"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text() == f"{first}\n"


def test_servers_at_once_have_a_port_each_and_have_it_again(
    state: StateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with listen_as_before(state, "tools", HOST, 0) as one:
        quiet = list(caplog.records)
        second = taken(state)
        second_again = taken(state)
        first = port_of(one)

    assert second == second_again != first
    assert taken(state) == first
    assert quiet == []
    assert len(caplog.records) == 2
    assert f"Port {first}, which tools had before, is taken: port {second}" in (
        caplog.text
    )


def test_a_port_of_the_settings_is_that_port(state: StateFolder) -> None:
    with (
        listen_as_before(state, "tools", HOST, 0) as one,
        pytest.raises(AddressTaken),
    ):
        listen_as_before(state, "tools", HOST, port_of(one))


def test_lines_that_are_no_ports_are_passed_over(state: StateFolder) -> None:
    (state.path / "tools-ports").write_text("4512x\n99999999\n0\n\n²\n")

    first = taken(state)

    assert taken(state) == first


def test_no_more_than_so_many_are_kept(state: StateFolder) -> None:
    with socket.create_server((HOST, 0)) as other:
        path = state.path / "tools-ports"
        path.write_text(f"{port_of(other)}\n" * KEPT_MAX)
        before = path.read_text()

        taken(state)

        assert path.read_text() == before


def test_a_file_that_cannot_be_read_is_told(state: StateFolder) -> None:
    (state.path / "tools-ports").mkdir()

    with pytest.raises(StateFolderUnusable, match="tools-ports: Is a directory"):
        taken(state)
