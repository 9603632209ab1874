# SPDX-License-Identifier: Apache-2.0
"""Opening the journal that the settings name, with the processes that write to it.

In a SQLite file they are told apart by locked files of the state folder, in PostgreSQL
by leases. A journal is of one installation: hosts that share it have the same owner id
and the same secret, or none could go on with what another began.
"""

import hashlib
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar, Final

import attrs

from ..adapters.holders.locked_files import open_locked_file_holders
from ..adapters.journals import open_sqlite_journal
from ..ports.provided.secret_values import SecretValues
from ..ports.required.faults import Fault
from ..ports.required.holders import Holders
from ..ports.required.journal import Journal
from .journal_settings import JournalSettings
from .plug_ins import ExtraMissing
from .state_folder import StateFolder, StateFolderUnusable

HOLDERS: Final = "holders"
LEFT: Final = 1
"""The status of a process that ends since it lost its lease."""
_MARK: Final = b"livery journal "


@attrs.frozen
class JournalOfAnother(Fault):
    """Another installation writes to the journal."""

    kind: ClassVar[str] = "journal_of_another"
    message: ClassVar[str] = (
        "The journal at {where} is of {owner}, and {state} is another installation."
        " Copy the files `owner` and `secret` from the state folder of a host that"
        " uses it, or name another schema ([journal] schema)."
    )

    where: str
    owner: str
    state: str


def end_as_it_stands() -> None:
    """End this process as if it was killed, which is how others took it.

    What it has in hand is theirs: giving it back in order would take it from them.
    """
    os._exit(LEFT)


@asynccontextmanager
async def open_journal(
    state: StateFolder,
    settings: JournalSettings,
    secrets: SecretValues,
    on_lost: Callable[[], None] = end_as_it_stands,
) -> AsyncGenerator[tuple[Journal, Holders]]:
    """Open the journal; `on_lost` is called when others took this process for dead.

    Raises:
        JournalUnusable, JournalTooNew, JournalOfAnother, StateFolderUnusable,
        SecretMissing, ExtraMissing: As they say.
    """
    if settings.kind == "postgres":
        async with _open_postgres(state, settings, secrets, on_lost) as opened:
            yield opened
        return
    async with AsyncExitStack() as stack:
        try:
            holders = stack.enter_context(
                open_locked_file_holders(state.path / HOLDERS)
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise StateFolderUnusable(str(state.path), reason) from error
        journal = await stack.enter_async_context(open_sqlite_journal(state.journal))
        yield journal, holders


@asynccontextmanager
async def _open_postgres(
    state: StateFolder,
    settings: JournalSettings,
    secrets: SecretValues,
    on_lost: Callable[[], None],
) -> AsyncGenerator[tuple[Journal, Holders]]:
    try:
        from ..adapters.postgres_journal import Database, open_postgres_journal
    except ImportError as missing:
        library = str(missing.name or "psycopg")
        raise ExtraMissing("journal", "postgres", library, "postgres") from missing
    password = settings.password
    database = Database(
        url=settings.url or "",
        password="" if password is None else password.revealed(secrets),
        schema=settings.schema,
    )
    async with open_postgres_journal(
        database, lease_seconds=settings.lease_seconds, on_lost=on_lost
    ) as journal:
        mark = hashlib.sha256(_MARK + state.secret.encode()).hexdigest()
        owner, theirs = await journal.belongs_to(state.owner, mark)
        if (owner, theirs) != (state.owner, mark):
            raise JournalOfAnother(journal.where, owner, str(state.path))
        yield journal, journal.holders
