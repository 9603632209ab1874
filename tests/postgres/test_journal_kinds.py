# SPDX-License-Identifier: Apache-2.0
"""The journal that the settings name: whose it is, and how its password comes to it."""

from pathlib import Path

import pytest

from livery.entrypoints.journal_kinds import JournalOfAnother, open_journal
from livery.entrypoints.journal_settings import JournalSettings
from livery.entrypoints.secret_references import Secret
from livery.entrypoints.state_folder import open_state_folder
from livery.ports.provided.secret_values import SecretValues

from ..journals.lives import append
from .server import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.peer("postgres")]


def settings_of(postgres: Postgres, folder: Path) -> JournalSettings:
    secret = folder / "password"
    secret.write_text(postgres.password)
    database = postgres.database()
    return JournalSettings(
        kind="postgres",
        url=database.url,
        schema=database.schema,
        password=Secret(file=str(secret)),
    )


async def test_hosts_of_one_installation_share_a_journal_and_no_other_does(
    postgres: Postgres, tmp_path: Path
) -> None:
    settings, secrets = settings_of(postgres, tmp_path), SecretValues()
    first = open_state_folder(tmp_path / "first")
    second = tmp_path / "second"
    second.mkdir()
    for name in ("owner", "secret"):
        (second / name).write_bytes((first.path / name).read_bytes())
    async with (
        open_journal(first, settings, secrets) as (journal, holders),
        open_journal(open_state_folder(second), settings, secrets) as (_, others),
    ):
        await append(journal, "one")
        sees = await others.alive(holders.own)
        with pytest.raises(JournalOfAnother) as refused:
            async with open_journal(
                open_state_folder(tmp_path / "third"), settings, secrets
            ):
                raise AssertionError("it was opened")

    assert sees
    assert refused.value.owner == first.owner
    assert first.secret not in str(refused.value)
    assert postgres.password not in secrets.masked(f"so {postgres.password} it is")
