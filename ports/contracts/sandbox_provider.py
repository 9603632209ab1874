# SPDX-License-Identifier: Apache-2.0
"""The contract suite of `SandboxProvider`, for the author of any provider.

Run every case of `CASES` over a `ProviderContext`; leave one out only where
`Case.lacking` gives the reason. After each case nothing with the context's
owner may be left.
"""

from . import provider_abilities, provider_claims, provider_ends
from .cases import Case, check_cases
from .provider_context import Observe, ProviderContext

__all__ = ["CASES", "Observe", "ProviderContext"]

CASES: tuple[Case[ProviderContext], ...] = check_cases(
    provider_claims.CASES + provider_ends.CASES + provider_abilities.CASES
)
