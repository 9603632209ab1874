# SPDX-License-Identifier: Apache-2.0
"""The event loop of the servers: uvloop where it is installed, asyncio's own elsewhere.

The extra `server` brings it. Nothing depends on it but how much is done in a second.
"""

import importlib.util
from collections.abc import Mapping


def loop_options() -> Mapping[str, bool]:
    """Return what `anyio.run` is to be told of the event loop, as `backend_options`."""
    return {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
