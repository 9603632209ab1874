# SPDX-License-Identifier: Apache-2.0
"""The code of docs/authors/providers.md runs, one block after the other."""

import re
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_code_of_the_providers_page_runs() -> None:
    names: dict[str, Any] = {"__name__": "providers_page"}
    found = blocks("authors/providers.md", "python")

    for code in found:
        exec(compile(code, "docs/authors/providers.md", "exec"), names)

    assert len(found) == 4
    assert names["options"].url == "http://farm"
    (entry,) = map(tomllib.loads, blocks("authors/providers.md", "toml"))
    assert entry["project"]["entry-points"]["livery.sandbox_providers"]
