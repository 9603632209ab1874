# SPDX-License-Identifier: Apache-2.0
"""The Docker provider keeps the promises of the sandbox ports.

Both suites run on an image with a Python, through the worker, and on one
without, with an engine exec for each command.
"""

import pytest

from livery.adapters.docker_engine import DockerSandboxProvider
from livery.ports.contracts import sandbox, sandbox_provider
from livery.ports.contracts.cases import Case
from livery.ports.contracts.sandbox import SandboxContext
from livery.ports.contracts.sandbox_provider import ProviderContext
from livery.ports.required.sandbox_provider import SandboxSpec

from ..contracts.parameters import parameters
from . import engines

pytestmark = [pytest.mark.anyio, pytest.mark.peer("docker")]

HOOKS = frozenset({"full_folder", "forbidden_folder", "other_user"})
ROOTS_HOOKS = HOOKS - {"forbidden_folder"}
PLAIN_EXECS_MANY = 60
"""Each is an engine exec of its own; the worker has its five hundred."""

sandbox_cases = pytest.mark.parametrize(
    "case",
    parameters(sandbox.CASES, capabilities=engines.CAPABILITIES, hooks=HOOKS),
)
provider_cases = pytest.mark.parametrize(
    "case",
    parameters(
        sandbox_provider.CASES,
        capabilities=engines.CAPABILITIES,
        hooks=engines.PROVIDER_HOOKS,
    ),
)


async def _run(
    case: Case[SandboxContext],
    provider: DockerSandboxProvider,
    owners: engines.Owners,
    *,
    image: str,
    user: str | None,
    execs_many: int = 500,
) -> None:
    label = owners.label()
    spec = SandboxSpec(image=image, user=user, provider_options=engines.SMALL_OPTIONS)
    made = await provider.create(label, spec)
    try:
        await case.run(
            SandboxContext(
                sandbox=made,
                capabilities=engines.CAPABILITIES,
                execs_many=execs_many,
                full_folder=engines.SMALL_FOLDER,
                forbidden_folder="/etc",
                other_user=engines.OTHER_USER,
            )
        )
    finally:
        await provider.destroy(label)


@sandbox_cases
async def test_sandbox(
    case: Case[SandboxContext],
    provider: DockerSandboxProvider,
    owners: engines.Owners,
    test_image: str,
) -> None:
    user = engines.USER if "forbidden_folder" in case.hooks else None
    await _run(case, provider, owners, image=test_image, user=user)


@sandbox_cases
async def test_sandbox_without_python(
    case: Case[SandboxContext],
    provider: DockerSandboxProvider,
    owners: engines.Owners,
    plain_image: str,
) -> None:
    user = engines.USER if "forbidden_folder" in case.hooks else None
    await _run(
        case,
        provider,
        owners,
        image=plain_image,
        user=user,
        execs_many=PLAIN_EXECS_MANY,
    )


@provider_cases
async def test_provider(
    case: Case[ProviderContext],
    provider: DockerSandboxProvider,
    owners: engines.Owners,
    test_image: str,
) -> None:
    await case.run(engines.provider_context(provider, owners, test_image))


@provider_cases
async def test_provider_without_python(
    case: Case[ProviderContext],
    provider: DockerSandboxProvider,
    owners: engines.Owners,
    plain_image: str,
) -> None:
    await case.run(engines.provider_context(provider, owners, plain_image))
