# SPDX-License-Identifier: Apache-2.0
"""The folder that a run leaves: what it was, a line an episode, a summary.

run.json        what the run is: written once, before anything runs
results.jsonl   one line per finished episode, appended whole and synced
artifacts/      what the episodes left
summary.json    the tables, at the end; summary.md is the same for the eye
.lock           held by the process that uses the folder
"""

from .faults import ResultsFolderRefused
from .folder import (
    ARTIFACTS,
    RESULTS,
    ResultsFolder,
    check_new,
    make_results_folder,
    open_results_folder,
    read_run,
)
from .result_lines import check_result_lines
from .rows import Row, RowDamaged, read_rows, to_record
from .run_card import RunCard, SourceCard

__all__ = [
    "ARTIFACTS",
    "RESULTS",
    "ResultsFolder",
    "ResultsFolderRefused",
    "Row",
    "RowDamaged",
    "RunCard",
    "SourceCard",
    "check_new",
    "check_result_lines",
    "make_results_folder",
    "open_results_folder",
    "read_rows",
    "read_run",
    "to_record",
]
