# SPDX-License-Identifier: Apache-2.0
"""Docker's bridges whose address moves, by what Linux tells of its devices."""

from pathlib import Path

from livery.entrypoints.command_line.bridges import moving_bridges


def device(
    folder: Path, name: str, assigned: str | None, *, bridge: bool = True
) -> None:
    made = folder / "devices" / name
    made.mkdir(parents=True)
    (folder / name).symlink_to(made)
    if bridge:
        (made / "bridge").mkdir()
    if assigned is not None:
        (made / "addr_assign_type").write_text(f"{assigned}\n")


def test_a_bridge_of_docker_whose_address_nobody_set_moves(tmp_path: Path) -> None:
    device(tmp_path, "docker0", "1")
    device(tmp_path, "br-5e0c", "1")
    device(tmp_path, "br-fixed", "3")

    assert moving_bridges(tmp_path) == ("br-5e0c", "docker0")


def test_what_is_set_what_is_not_dockers_and_what_is_no_bridge_are_left_out(
    tmp_path: Path,
) -> None:
    device(tmp_path, "docker0", "3")
    device(tmp_path, "virbr0", "1")
    device(tmp_path, "docker0-dummy", "1", bridge=False)
    device(tmp_path, "br-gone", None)

    assert moving_bridges(tmp_path) == ()


def test_where_there_are_no_devices_to_look_at_nothing_is_told(tmp_path: Path) -> None:
    assert moving_bridges(tmp_path / "away") == ()
