# SPDX-License-Identifier: Apache-2.0
"""Several workers' parts of one page: all are told, each under its worker's name."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from livery.entrypoints.metrics_families import put_together, written, written_part
from livery.entrypoints.worker_parts import WorkerParts
from livery.ports.provided.measures import Measures

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 30.0


@asynccontextmanager
async def telling(*parts: tuple[WorkerParts, Path]) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        for part, path in parts:
            await group.start(part.tell_at, path)
        yield
        group.cancel_scope.cancel()


async def test_whoever_is_asked_tells_the_parts_of_all(tmp_path: Path) -> None:
    one, two = WorkerParts(lambda: b"one's"), WorkerParts(lambda: b"two's")
    async with telling((one, tmp_path / "1"), (two, tmp_path / "2")):
        found = [await one.told(), await two.told()]

    assert found == [{"1": b"one's", "2": b"two's"}] * 2


async def test_a_worker_follows_at_the_socket_that_a_killed_one_left(
    tmp_path: Path,
) -> None:
    path = tmp_path / "2"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    one, two = WorkerParts(lambda: b"one's"), WorkerParts(lambda: b"two's")
    async with telling((one, tmp_path / "1")):
        dead = await one.told()
        async with telling((two, path)):
            followed = await one.told()

    assert dead == {"1": b"one's", "2": None}
    assert followed["2"] == b"two's"


async def test_a_worker_that_does_not_answer_is_told_as_silent(tmp_path: Path) -> None:
    one = WorkerParts(lambda: b"one's")
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(tmp_path / "2"))
        frozen.listen(1)
        async with telling((one, tmp_path / "1")):
            with anyio.fail_after(WAIT_SECONDS):
                found = await one.told()

    assert found == {"1": b"one's", "2": None}


async def test_only_its_own_part_is_told_once_the_folder_has_gone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    one = WorkerParts(lambda: b"one's")
    async with telling((one, folder / "1")):
        (folder / "1").unlink()
        folder.rmdir()
        found = await one.told()

    assert found == {"1": b"one's"}


async def test_the_last_to_leave_takes_the_folder_along(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    one, two = WorkerParts(lambda: b""), WorkerParts(lambda: b"")
    async with telling((one, folder / "1")):
        async with telling((two, folder / "2")):
            pass
        left = [path.name for path in folder.iterdir()]

    assert left == ["1"]
    assert not folder.exists()


async def test_every_number_of_a_part_stands_in_the_page_under_its_worker() -> None:
    measures = Measures()
    measures.failures["docker"] = 3
    measures.creations.note("docker", 0.3)
    part = written_part(measures)

    page = (written(None) + put_together({"1": part, "2": part, "3": None})).decode()

    families = list(text_string_to_metric_families(page))
    alone = [
        (sample.name, {**sample.labels, "worker": worker}, sample.value)
        for worker in ("1", "2")
        for family in text_string_to_metric_families(part.decode())
        for sample in family.samples
    ]
    told = [
        (sample.name, sample.labels, sample.value)
        for family in families
        for sample in family.samples
    ]
    up = [sample for sample in told if sample[0] == "livery_worker_up"]
    assert len(families) == len({family.name for family in families})
    assert [value for _, _, value in up] == [1, 1, 0]
    assert all(sample in told for sample in alone)
    assert len(told) == len(alone) + len(up) + 1, "and whether the journal is there"
