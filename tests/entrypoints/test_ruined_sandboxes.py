# SPDX-License-Identifier: Apache-2.0
"""Agents that break their own sandbox are measured, after one start."""

from pathlib import Path

import pytest

from .command_lines import Livery, rewards, rows_of, task, task_file

KILL_ALL = """\
for p in /proc/[0-9]*; do
    p=${p#/proc/}; [ "$p" = 1 ] || [ "$p" = $$ ] || kill -9 "$p"
done 2>/dev/null
"""
AGENTS = {
    "removes Python": ("rm -f /usr/bin/python3*", 1.0),
    "removes all programs": ("rm -rf /bin /usr", 0.0),
    "ends its supervisor by the book": ('kill -15 "$PPID"; sleep 60', 1.0),
    "kills all but itself": (KILL_ALL, 0.0),
    "kills all but itself and the programs": (
        f"rm -f /usr/bin/python3*; {KILL_ALL} rm -rf /bin /usr",
        0.0,
    ),
}
"""What each does after it has done its task, and what that is worth."""


@pytest.mark.peer("docker")
@pytest.mark.case("FC-171", "FC-247")
def test_an_agent_that_breaks_its_sandbox_is_measured_after_one_start(
    livery: Livery, tmp_path: Path, test_image: str
) -> None:
    rows: list[object] = []
    for name, (script, _) in AGENTS.items():
        row = task(name)
        row["task_input"]["responses_create_params"]["input"] = script
        rows.append(row)
    tasks = task_file(tmp_path, *rows)
    (tmp_path / "shared").mkdir(mode=0o777)

    ended = livery(
        *("run", tasks, "--out", "o", "--sandbox", "docker", "--image", test_image),
        *("--concurrency", 2, "--mount", "shared:/shared:rw", "--", "sh", "-c"),
        'echo x >>/shared/starts; echo 42 >answer; eval "$LIVERY_PROMPT"',
    )

    assert ended.status == 0, ended.err
    assert len(rows_of(tmp_path / "o")) == len(AGENTS)
    assert (tmp_path / "shared" / "starts").read_text() == "x\n" * len(AGENTS)
    assert "0 masked, 0 broken" in ended.out
    found = rewards(tmp_path / "o")
    # How far a kill of everything gets before it hits its own ancestors is chance.
    assert found.pop("kills all but itself") in (0.0, 1.0)
    worth = {name: reward for name, (_, reward) in AGENTS.items() if name in found}
    assert found == worth
    assert "No claim is open" in livery("claims", "list").out
