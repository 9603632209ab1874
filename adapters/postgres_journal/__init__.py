# SPDX-License-Identifier: Apache-2.0
"""The journal in a PostgreSQL database, for workers on any number of hosts."""

from .database import Database
from .journal import PostgresJournal, open_postgres_journal
from .leases import PostgresHolders

__all__ = ["Database", "PostgresHolders", "PostgresJournal", "open_postgres_journal"]
