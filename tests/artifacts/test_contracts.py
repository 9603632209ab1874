# SPDX-License-Identifier: Apache-2.0
"""Both artifact stores keep the port's promises."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from livery.adapters.artifacts import FolderArtifactStore, MemoryArtifactStore
from livery.adapters.artifacts.file_names import to_file_name
from livery.ports.contracts.artifact_store import CASES, ArtifactStoreContext
from livery.ports.contracts.cases import Case
from livery.ports.required.artifact_store import Shelf

from ..contracts.parameters import parameters

pytestmark = pytest.mark.anyio

ALL = parameters(CASES, capabilities=frozenset(), hooks=frozenset({"open_again"}))


def on_disk(root: Path) -> ArtifactStoreContext:
    @asynccontextmanager
    async def open_again() -> AsyncGenerator[FolderArtifactStore]:
        yield FolderArtifactStore(root)

    def loose_files(shelf: Shelf) -> tuple[str, ...]:
        folder = root / to_file_name("shelf", shelf)
        found = {path.name for path in folder.iterdir()} - {".lock", ".shelf.json"}
        # An artifact's own file is "it" or "old", or what replaced it.
        return tuple(found - {"it", "it+2", "old"}) if len(found) == 1 else tuple(found)

    return ArtifactStoreContext(
        store=FolderArtifactStore(root), open_again=open_again, loose_files=loose_files
    )


@pytest.mark.parametrize("case", ALL)
async def test_artifacts_in_memory(case: Case[ArtifactStoreContext]) -> None:
    store = MemoryArtifactStore()

    # Its place is the object itself.
    await case.run(
        ArtifactStoreContext(
            store=store, open_again=lambda: nullcontext(store), is_on_disk=False
        )
    )


@pytest.mark.parametrize("case", ALL)
async def test_artifacts_in_a_folder(
    case: Case[ArtifactStoreContext], tmp_path: Path
) -> None:
    await case.run(on_disk(tmp_path / "artifacts"))
