# SPDX-License-Identifier: Apache-2.0
"""The contract suite of `Sandbox`, for the author of any provider.

Run every case of `CASES` over a `SandboxContext`; leave one out only where
`Case.lacking` gives the reason. A fresh sandbox per case is best; one sandbox
for all of them works too.
"""

from . import sandbox_ends, sandbox_exec, sandbox_files, sandbox_load, sandbox_transfers
from .cases import Case, check_cases
from .sandbox_context import SandboxContext

__all__ = ["CASES", "SandboxContext"]

CASES: tuple[Case[SandboxContext], ...] = check_cases(
    sandbox_exec.CASES
    + sandbox_ends.CASES
    + sandbox_files.CASES
    + sandbox_transfers.CASES
    + sandbox_load.CASES
)
