# SPDX-License-Identifier: Apache-2.0
"""The ids of a line are those of the code that logs it."""

import anyio
import anyio.to_thread
import pytest

from livery.ports.provided.log_context import LogContext, log_context, logged_as


def test_what_is_said_further_in_adds_to_what_was_said_further_out() -> None:
    with logged_as(episode="r1/1"):
        with logged_as(session="s1", claim=7):
            assert log_context() == LogContext(episode="r1/1", session="s1", claim="7")
        assert log_context() == LogContext(episode="r1/1")

    assert log_context() == LogContext()


def test_a_failure_inside_takes_the_ids_back() -> None:
    with pytest.raises(ValueError, match="inside"), logged_as(claim="c1"):
        raise ValueError("inside")

    assert log_context() == LogContext()


@pytest.mark.anyio
async def test_tasks_and_threads_started_inside_know_the_ids() -> None:
    seen: list[LogContext] = []

    async def look() -> None:
        with logged_as(session="s1"):
            seen.append(await anyio.to_thread.run_sync(log_context))

    with logged_as(episode="e1"):
        async with anyio.create_task_group() as group:
            group.start_soon(look)
        seen.append(log_context())

    assert seen == [LogContext(episode="e1", session="s1"), LogContext(episode="e1")]
