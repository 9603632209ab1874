# SPDX-License-Identifier: Apache-2.0
"""Why a folder cannot be the results folder that was asked for."""

from typing import ClassVar

import attrs

from ...ports.required.faults import Fault


@attrs.frozen
class ResultsFolderRefused(Fault):
    """The folder was left as it was."""

    kind: ClassVar[str] = "results_folder_refused"
    message: ClassVar[str] = "{where} {reason}. {advice}"

    where: str
    reason: str
    advice: str
