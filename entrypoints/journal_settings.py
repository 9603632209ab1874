# SPDX-License-Identifier: Apache-2.0
"""What `livery.toml` says of the journal: where it is, and who writes to it."""

import re
from typing import Annotated, Final, Literal

import attrs

from .secret_references import Secret
from .setting_words import Name, Range, Shape, doc

LEASE_SECONDS: Final = 15.0
LEASE_SECONDS_LEAST: Final = 1.0
LEASE_SECONDS_MAX: Final = 3600.0
Kind = Literal["sqlite", "postgres"]
Schema = Annotated[
    str,
    Shape(
        pattern=r"(?!pg_)[0-9A-Za-z_.\-]{1,63}",
        told="a name of at most 63 letters (a to z), digits and _.- that does not begin"
        " with pg_",
    ),
]
"""What PostgreSQL takes as the name of a schema and of a channel alike."""
_PASSWORD: Final = re.compile(
    r"password\s*="
    # As libpq looks for it, to which `?` and `#` end nothing here. A port may stand
    # there as well, and be followed by an address of mail.
    r"|://(?!\[)[^@/:]*:(?!\d+[,/?])[^@]*@"
)


@attrs.frozen(kw_only=True)
class JournalSettings:
    """The journal, which is a file of this host or a database of several."""

    kind: Kind = attrs.field(
        default="sqlite",
        metadata=doc(
            "sqlite: a file in the state folder, for the processes of one host."
            " postgres: a database, for any number of hosts."
        ),
    )
    url: Name | None = attrs.field(
        default=None,
        metadata=doc(
            "Where the database is: postgresql://user@host:port/database. none: as"
            " PostgreSQL's own variables say (PGHOST and so on)."
        ),
    )
    password: Secret | None = attrs.field(
        default=None,
        metadata=doc("The user's password. none: there is none, or ~/.pgpass has it."),
    )
    schema: Schema = attrs.field(
        default="livery",
        metadata=doc(
            "The schema that holds the journal; it is made where there is none."
        ),
    )
    lease_seconds: Annotated[
        float, Range(least=LEASE_SECONDS_LEAST, most=LEASE_SECONDS_MAX)
    ] = attrs.field(
        default=LEASE_SECONDS,
        metadata=doc(
            "How long a process may go unheard before others take over what it has. It"
            " writes nothing from then on. The error is lease_lost."
        ),
    )

    def __attrs_post_init__(self) -> None:
        """Raise `ValueError` where a password stands in the file."""
        if _PASSWORD.search(self.url or ""):
            raise ValueError(
                'has a password in its url; name it by password = {env = "NAME"}'
            )
