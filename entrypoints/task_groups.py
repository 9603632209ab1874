# SPDX-License-Identifier: Apache-2.0
"""Tasks beside a block, whose own error stays as it is."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


@asynccontextmanager
async def ended_with_block() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """Open a group whose tasks are cancelled when the block is left."""
    raised: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:
            raised = error  # Raised below: from in here it would come in a group.
        finally:
            group.cancel_scope.cancel()
    if raised is not None:
        raise raised
