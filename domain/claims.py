# SPDX-License-Identifier: Apache-2.0
"""Claims."""

from typing import NewType

ClaimId = NewType("ClaimId", str)
OwnerId = NewType("OwnerId", str)
