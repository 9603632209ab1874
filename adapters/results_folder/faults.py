# SPDX-License-Identifier: Apache-2.0
"""Why a folder cannot be the results folder that was asked for, or its file be used."""

from pathlib import Path
from typing import ClassVar

import attrs

from ...ports.required.faults import Fault
from ...ports.required.result_log import ResultLogUnusable


@attrs.frozen
class ResultsFolderRefused(Fault):
    """The folder was left as it was."""

    kind: ClassVar[str] = "results_folder_refused"
    message: ClassVar[str] = "{where} {reason}. {advice}"

    where: str
    reason: str
    advice: str


def unusable(path: Path, error: OSError | RuntimeError) -> ResultLogUnusable:
    """Return the failure that says what is wrong with the file of results."""
    reason = getattr(error, "strerror", None) or str(error)
    return ResultLogUnusable(where=str(path), reason=reason)
