"""Jobs by what is in their payloads; cancels of many as operations; views that somebody has saved.

Locks: operations ACCESS EXCLUSIVE.

Revision ID: 0049
"""

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

UP = [
    # Whether a payload is JSON that has all of this: the path to wanted[n] is the keys behind ends[n - 1] up to
    # ends[n]. A value is compared with the text of what is there: of a string what it says, of a number its own digits.
    # An object or a list is no match, and neither is what can't be read.
    """
    CREATE FUNCTION holdfast.has_data(
        payload bytea, content_type text, keys text[], ends integer[], wanted text[]
    ) RETURNS boolean
    LANGUAGE plpgsql STABLE COST 1000 AS $$
    DECLARE
        document json;
        there json;
        kind text;
    BEGIN
        IF lower(btrim(split_part(content_type, ';', 1))) !~ '^application/json$|\\+json$' THEN
            RETURN false;
        END IF;
        document := convert_from(payload, 'UTF8')::json;
        FOR n IN 1 .. cardinality(wanted) LOOP
            there := document #> keys[coalesce(ends[n - 1], 0) + 1 : ends[n]];
            kind := coalesce(json_typeof(there), 'object');
            IF kind IN ('object', 'array') OR coalesce(there #>> '{}', 'null') <> wanted[n] THEN
                RETURN false;
            END IF;
        END LOOP;
        RETURN true;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN false;
    END $$
    """,
    # A cancel has `cancels` in the place of `filter`: a process of the version before, which knows requeues alone, must
    # not take one for a requeue.
    """
    ALTER TABLE holdfast.operations ALTER COLUMN filter DROP NOT NULL, ADD COLUMN cancels json,
        ADD COLUMN gone bigint NOT NULL DEFAULT 0 CHECK (gone >= 0),
        ADD COLUMN marked bigint NOT NULL DEFAULT 0 CHECK (marked >= 0),
        ADD CONSTRAINT operations_kind CHECK ((filter IS NULL) <> (cancels IS NULL))
    """,
    """
    CREATE TABLE holdfast.saved_views (
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        owner text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 512),
        address text COLLATE "C" NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 4096),
        PRIMARY KEY (owner, name)
    )
    """,
]

DOWN = [
    "DROP TABLE holdfast.saved_views",
    "DELETE FROM holdfast.operations WHERE cancels IS NOT NULL",
    """
    ALTER TABLE holdfast.operations DROP CONSTRAINT operations_kind, DROP COLUMN cancels, DROP COLUMN gone,
        DROP COLUMN marked, ALTER COLUMN filter SET NOT NULL
    """,
    "DROP FUNCTION holdfast.has_data",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
