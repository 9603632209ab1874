# SPDX-License-Identifier: Apache-2.0
"""Every clock and every source of ids keeps the port's promises."""

import anyio
import pytest

from livery.adapters.system_clock import RandomIds, SystemClock
from livery.adapters.virtual_clock import SeededIds, VirtualClock, leaping_loop
from livery.ports.contracts.cases import Case
from livery.ports.contracts.clock import CASES, ClockContext

from ..contracts.parameters import parameters

ALL = parameters(CASES, capabilities=frozenset(), hooks=frozenset())


@pytest.mark.anyio
@pytest.mark.parametrize("case", ALL)
async def test_the_system_s_clock(case: Case[ClockContext]) -> None:
    clock = SystemClock()
    await case.run(ClockContext(clock=clock, ids=RandomIds(), let_pass=clock.sleep))


@pytest.mark.anyio
@pytest.mark.parametrize("case", ALL)
async def test_a_virtual_clock_that_is_told(case: Case[ClockContext]) -> None:
    clock = VirtualClock()
    await case.run(ClockContext(clock=clock, ids=SeededIds(), let_pass=clock.advance))


@pytest.mark.parametrize("case", ALL)
def test_a_virtual_clock_that_leaps(case: Case[ClockContext]) -> None:
    clock = VirtualClock()
    context = ClockContext(clock=clock, ids=SeededIds(7), let_pass=anyio.sleep)
    loop = {"loop_factory": leaping_loop(clock)}
    anyio.run(case.run, context, backend_options=loop)
