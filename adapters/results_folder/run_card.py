# SPDX-License-Identifier: Apache-2.0
"""What a run is: enough to go on with it, and to know what its results are of."""

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
import cattrs

from ...domain.digests import Json

FORMAT: Final = 1


@attrs.frozen(kw_only=True)
class SourceCard:
    """Which tasks the run is of."""

    name: str
    """As it was written on the command line, a path made absolute."""
    taskset: str
    tasks: int
    """How many the run takes."""
    digest: str
    """sha256 of the tasks that the run takes, in their order."""


@attrs.frozen(kw_only=True)
class RunCard:
    """The content of `run.json`."""

    run: str
    livery: str
    """The version that began the run."""
    created_at: str
    source: SourceCard
    harness: str
    sandbox: str
    repeats: int
    limit: int | None
    state: str
    """The state folder whose journal knows the run's episodes and claims."""
    settings: Mapping[str, Any]
    """The blocks that were used; secrets are references."""

    def written(self) -> str:
        """Return the file's text."""
        content: Json = {"format": FORMAT, **attrs.asdict(self)}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_card(text: str) -> RunCard:
    """Return the card.

    Raises:
        ValueError: It is none that this version reads; the text says why.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise ValueError("it holds a number of too many digits") from error
    if not isinstance(content, dict) or "format" not in content:
        raise ValueError("it does not say that it is a run of Livery")
    format = content.pop("format")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if format != FORMAT:
        raise ValueError(f"it has format {format!r}, and this version reads {FORMAT}")
    made = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in (str, int):
        made.register_structure_hook(kind, _exactly)
    try:
        return made.structure(content, RunCard)
    except cattrs.BaseValidationError as error:
        raise ValueError("; ".join(cattrs.transform_error(error))) from error


def _exactly(value: object, kind: type) -> object:
    if type(value) is not kind:
        raise ValueError(f"wants {kind.__name__}, found {value!r:.60}")
    return value
