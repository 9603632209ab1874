# SPDX-License-Identifier: Apache-2.0
"""The schema, as the steps from each format to the next.

A step that was published is never changed: a database may have taken it. `{s}` is the
schema. The function `write` does a whole batch in one statement, which is a transaction
of its own: no writer that is stopped in between holds up the others.
"""

from typing import Final, LiteralString

_TABLES: Final[tuple[LiteralString, ...]] = (
    "CREATE SCHEMA IF NOT EXISTS {s}",
    "CREATE TABLE {s}.installation (format integer NOT NULL, owner text, mark text)",
    "INSERT INTO {s}.installation (format) VALUES (0)",
    """CREATE TABLE {s}.streams (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        category text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        version integer NOT NULL,
        is_open boolean NOT NULL,
        UNIQUE (category, key)
    )""",
    "CREATE INDEX open_streams ON {s}.streams (category, id) WHERE is_open",
    """CREATE TABLE {s}.events (
        stream bigint NOT NULL,
        version integer NOT NULL,
        kind text NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (stream, version)
    )""",
    """CREATE TABLE {s}.leases (
        fence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        holder text NOT NULL UNIQUE,
        seconds double precision NOT NULL,
        renewed_at timestamptz NOT NULL
    )""",
)

_WRITE: Final[LiteralString] = """
CREATE FUNCTION {s}.write(
    its_fence bigint, channel text,
    categories text[], keys text[], expected integer[], opens boolean[],
    counts integer[], kinds text[], bodies text[]
) RETURNS integer[] LANGUAGE plpgsql AS $write$
DECLARE
    answers integer[] := ARRAY[]::integer[];
    its_id bigint;
    found_version integer;
    new_version integer;
    first integer := 1;
BEGIN
    IF its_fence IS NOT NULL THEN
        -- Held until the commit: who takes the lease away waits for it, or came first.
        PERFORM 1 FROM {s}.leases WHERE fence = its_fence FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    FOR i IN 1 .. cardinality(keys) LOOP
        LOOP
            SELECT id, version INTO its_id, found_version FROM {s}.streams
                WHERE category = categories[i] AND key = keys[i] FOR UPDATE;
            EXIT WHEN FOUND;
            found_version := 0;
            EXIT WHEN expected[i] <> 0 OR counts[i] = 0;
            INSERT INTO {s}.streams (category, key, version, is_open)
                VALUES (categories[i], keys[i], 0, true)
                ON CONFLICT DO NOTHING RETURNING id INTO its_id;
            EXIT WHEN FOUND;
        END LOOP;
        new_version := found_version + counts[i];
        IF found_version <> expected[i] THEN
            answers := answers || -1 - found_version;
        ELSIF opens[i] IS NULL THEN
            DELETE FROM {s}.events WHERE stream = its_id;
            DELETE FROM {s}.streams WHERE id = its_id;
            new_version := 0;
            answers := answers || 0;
        ELSE
            answers := answers || new_version;
        END IF;
        IF found_version = expected[i] AND counts[i] > 0 THEN
            INSERT INTO {s}.events (stream, version, kind, body)
                SELECT its_id, found_version + number, kind, body FROM unnest(
                    kinds[first : first + counts[i] - 1],
                    bodies[first : first + counts[i] - 1]
                ) WITH ORDINALITY AS added (kind, body, number);
            UPDATE {s}.streams SET version = new_version, is_open = opens[i]
                WHERE id = its_id;
        END IF;
        IF found_version = expected[i] AND new_version <> found_version THEN
            PERFORM pg_notify(channel, CASE
                WHEN octet_length(categories[i]) + octet_length(keys[i]) > 7000 THEN ''
                ELSE new_version || E'\\n' || categories[i] || E'\\n' || keys[i]
            END);
        END IF;
        first := first + counts[i];
    END LOOP;
    RETURN answers;
END
$write$
"""

MIGRATIONS: Final[tuple[tuple[LiteralString, ...], ...]] = ((*_TABLES, _WRITE),)
"""The steps to format 1, 2 and so on."""
