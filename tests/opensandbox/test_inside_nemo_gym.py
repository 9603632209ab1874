# SPDX-License-Identifier: Apache-2.0
"""Real NeMo Gym over sandboxes of an OpenSandbox server, found by entry point."""

import os
from pathlib import Path
from typing import Any

import pytest

from .. import peers
from ..docker_engine import raw_engine
from .real_server import API_KEY, RealServer
from .stand_in_server import API_KEY as STAND_IN_KEY
from .stand_in_server import StandInServer

pytestmark = [pytest.mark.anyio, pytest.mark.peer("nemo_gym")]

pytest.importorskip("nemo_gym", reason="NeMo Gym is not here")

from nemo_gym.sandbox import (  # noqa: E402
    AsyncSandbox,
    SandboxSpec,
    SandboxStatus,
    create_provider,
)

KEY_VARIABLE = "LIVERY_TEST_OPENSANDBOX_KEY"


def config(state: Path, **connection: Any) -> dict[str, Any]:
    connection = {"api_key": {"env": KEY_VARIABLE}, **connection}
    return {"livery_opensandbox": {"state": str(state), "connection": connection}}


async def see_everything(
    made: dict[str, Any], borrowing: dict[str, Any], spec: SandboxSpec, folder: Path
) -> None:
    """See a sandbox used in every way, from create to close."""
    source, target = folder / "here", folder / "back"
    source.write_bytes(os.urandom(300_000))
    inside = f"{spec.workdir}/deep"
    async with AsyncSandbox(made, spec) as sandbox:
        await sandbox.start()
        ran = await sandbox.exec('echo "$A"; echo err >&2; exit 3')
        slow = await sandbox.exec("echo begun; sleep 4321", timeout_s=1)
        await sandbox.upload(source, f"{inside}/binary")
        await sandbox.download(f"{inside}/binary", target)
        descriptor = await sandbox.serialize()
        borrowed = await AsyncSandbox.connect(
            descriptor, provider=create_provider(borrowing)
        )
        lent = await borrowed.exec("pwd")
        await borrowed.disconnect()

        assert (ran.stdout, ran.stderr) == ("from the spec\n", "err\n")
        assert (ran.return_code, ran.error_type) == (3, None)
        assert (slow.return_code, slow.error_type) == (125, "timeout")
        assert slow.stdout == "begun\n"
        assert target.read_bytes() == source.read_bytes()
        assert lent.stdout == f"{spec.workdir}\n"
        assert await sandbox.status() is SandboxStatus.RUNNING
    assert await sandbox.status() is SandboxStatus.STOPPED


async def test_over_the_server_in_this_process(
    stand_in: StandInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, STAND_IN_KEY)
    words = {"address": stand_in.address, "python": stand_in.python}
    spec = SandboxSpec(
        image="stand-in:1",
        workdir="/tmp/workspace",
        ttl_s=600,
        env={"A": "from the spec"},
    )

    await see_everything(
        config(tmp_path / "state", **words),
        config(tmp_path / "other", **words),
        spec,
        tmp_path,
    )

    assert stand_in.sandboxes == {}


@pytest.mark.peer("docker")
@pytest.mark.peer("opensandbox")
async def test_over_the_real_server(
    real: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, API_KEY)
    state = tmp_path / "state"
    spec = SandboxSpec(
        image=peers.image(), workdir="/workspace", ttl_s=600, env={"A": "from the spec"}
    )

    await see_everything(
        config(state, address=real.address),
        config(tmp_path / "other", address=real.address),
        spec,
        tmp_path,
    )

    owner = (state / "owner").read_text().strip()
    assert raw_engine.labelled(f"livery.owner={owner}") == ()
