# SPDX-License-Identifier: Apache-2.0
"""The OpenSandbox provider keeps the promises of the sandbox ports.

Both suites run over the server in this process, and over the real one.
"""

import pytest

from livery.adapters.opensandbox import CAPABILITIES, OpenSandboxProvider
from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import SandboxSpec

from ..contracts.parameters import parameters
from ..docker_engine import engines
from . import providers
from .real_server import RealServer
from .stand_in_server import StandInServer

pytestmark = pytest.mark.anyio

HOOKS = frozenset({"forbidden_folder", "other_user"})
STAND_IN_HOOKS = HOOKS | {"full_folder"}
EXECS_MANY = 200

provider_cases = pytest.mark.parametrize(
    "case",
    parameters(
        sandbox_provider.CASES,
        capabilities=CAPABILITIES,
        hooks=providers.PROVIDER_HOOKS,
    ),
)


async def _run(
    case: Case[SandboxContext],
    provider: OpenSandboxProvider,
    owners: engines.Owners,
    spec: SandboxSpec,
) -> None:
    label = owners.label()
    made = await provider.create(label, spec)
    try:
        await case.run(
            SandboxContext(
                sandbox=made,
                capabilities=CAPABILITIES,
                execs_many=EXECS_MANY,
                full_folder=engines.SMALL_FOLDER,
                forbidden_folder="/etc",
                other_user=engines.OTHER_USER,
            )
        )
    finally:
        await made.disconnect()
        await provider.destroy(label)


@pytest.mark.parametrize(
    "case",
    parameters(sandbox.CASES, capabilities=CAPABILITIES, hooks=STAND_IN_HOOKS),
)
async def test_sandbox_of_the_stand_in(
    case: Case[SandboxContext],
    provider: OpenSandboxProvider,
    owners: engines.Owners,
) -> None:
    user = engines.USER if "forbidden_folder" in case.hooks else None
    spec = providers.stand_in_spec(user=user)
    await _run(case, provider, owners, spec)


@provider_cases
async def test_provider_of_the_stand_in(
    case: Case[ProviderContext],
    provider: OpenSandboxProvider,
    stand_in: StandInServer,
    owners: engines.Owners,
) -> None:
    await case.run(providers.stand_in_context(provider, stand_in, owners))


@pytest.mark.peer("opensandbox")
@pytest.mark.parametrize(
    "case", parameters(sandbox.CASES, capabilities=CAPABILITIES, hooks=HOOKS)
)
async def test_sandbox_of_the_real_server(
    case: Case[SandboxContext],
    real_provider: OpenSandboxProvider,
    owners: engines.Owners,
    test_image: str,
) -> None:
    user = engines.USER if "forbidden_folder" in case.hooks else None
    spec = SandboxSpec(image=test_image, user=user)
    await _run(case, real_provider, owners, spec)


@pytest.mark.peer("opensandbox")
@provider_cases
async def test_provider_of_the_real_server(
    case: Case[ProviderContext],
    real_provider: OpenSandboxProvider,
    real: RealServer,
    owners: engines.Owners,
) -> None:
    await case.run(providers.real_context(real_provider, real, owners))
