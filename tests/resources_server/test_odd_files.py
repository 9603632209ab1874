# SPDX-License-Identifier: Apache-2.0
"""Paths and files that an agent makes up: refused in words, and never a mask."""

from pathlib import Path

import pytest

from livery.ports.provided.call_apps import FILES_BYTES_MAX
from livery.ports.provided.workspace_files import FILE_BYTES_MAX
from livery.ports.required.sandbox import SandboxFailed

from .folders import FolderProvider
from .serving import BoxWorld, serving
from .test_calls import token_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "path",
    ["a." * 200, "d./" * 3000 + "x", "d./" * 1360 + "x", "é" * 128],
    ids=["a name", "a path", "a path with its folder", "a name in bytes"],
)
@pytest.mark.parametrize("provider", ["local", "folders"])
async def test_a_path_that_is_too_long_is_the_agents(
    provider: str, path: str, tmp_path: Path
) -> None:
    folders = FolderProvider(root=tmp_path / "boxes")
    async with serving(
        tmp_path / "state",
        BoxWorld(),
        folders if provider == "folders" else None,
        sandbox_provider=None if provider == "folders" else provider,
    ) as server:
        cookie = await server.seeded()

        saved = await server.post("/box_export", {"name": path}, cookie)
        read = await server.post("/box_attach", {"files": [path]}, cookie)
        verdict = (await server.verify(cookie)).json()

    for reply in (saved, read):
        assert (reply.status_code, reply.json()["kind"]) == (422, "call_refused")
        assert "longer than" in reply.json()["detail"]
    assert verdict["mask_sample"] is False


async def test_a_file_in_the_way_of_a_deep_path_is_seen(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        (Path(provider.only().workdir) / "d").write_text("a file")
        provider.faults.put = SandboxFailed("folders", "s", "put", "it says no more")

        reply = await server.post("/box_export", {"name": "d/." * 1300 + "/x"}, cookie)
        verdict = (await server.verify(cookie)).json()

    assert (reply.status_code, reply.json()["kind"]) == (422, "call_refused")
    assert "is in the way" in reply.json()["detail"]
    assert verdict["mask_sample"] is False


async def test_the_files_of_one_call_are_bounded_together(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    number = FILES_BYTES_MAX // FILE_BYTES_MAX
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        cookie = await server.seeded()
        with (Path(provider.only().workdir) / "big").open("wb") as file:
            file.truncate(FILE_BYTES_MAX)

        names = ["./" * times + "big" for times in range(number + 1)]
        all_that_fit = await server.post("/box_attach", {"files": names[1:]}, cookie)
        too_much = await server.post("/box_attach", {"files": names}, cookie)

    assert all_that_fit.status_code == 200
    assert (too_much.status_code, too_much.json()["kind"]) == (422, "call_refused")
    assert f"{FILES_BYTES_MAX} bytes together" in too_much.json()["detail"]


@pytest.mark.case("FC-069")
async def test_a_path_that_is_no_text_is_no_other_file(tmp_path: Path) -> None:
    provider = FolderProvider(root=tmp_path / "boxes")
    async with serving(tmp_path / "state", BoxWorld(), provider) as server:
        await server.seeded()
        shown = {"authorization": f"Bearer {token_of(server)}"}

        written = await server.client.put("/files/%FF", content=b"x", headers=shown)
        read = await server.client.get("/files/%FE", headers=shown)
        text = await server.client.put("/files/%C3%A9", content=b"x", headers=shown)
        work = Path(provider.only().workdir)

        assert sorted(path.name for path in work.iterdir()) == ["GUIDE.md", "é"]

    assert (written.status_code, read.status_code) == (422, 422)
    assert "not UTF-8" in written.json()["detail"]
    assert text.json() == {"saved": ["é"]}
