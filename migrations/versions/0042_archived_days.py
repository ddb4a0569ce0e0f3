"""Days that are kept as files: which, since when, and how many rows with which checksum. A day may be kept until it is.

Revision ID: 0042
"""

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def _granted_as(function: str, other: str) -> str:
    """Whoever may run one function may run the other, and nobody else."""
    return f"""
    DO $$
    DECLARE
        name text;
    BEGIN
        REVOKE EXECUTE ON FUNCTION holdfast.{function} FROM PUBLIC;
        FOR name IN
            SELECT g.grantee::regrole::text FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) g
            WHERE p.oid = 'holdfast.{other}'::regprocedure AND g.grantee NOT IN (0, p.proowner)
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION holdfast.{function} TO %s', name);
        END LOOP;
    END $$
    """


UP = [
    # A row is written once the day's files were read back and hold what the table holds. It outlives the day.
    """
    CREATE TABLE holdfast.archived_days (
        of_table text COLLATE "C" NOT NULL CHECK (of_table IN ('lease_events', 'results', 'archive')),
        day date NOT NULL,
        rows bigint NOT NULL CHECK (rows >= 0),
        checksum numeric NOT NULL,
        location text NOT NULL,
        verified_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (of_table, day)
    )
    """,
    """
    CREATE VIEW holdfast.day_partitions AS
    SELECT d.of_table, d.day, d.partition, a.verified_at IS NOT NULL AS archived,
           d.day < (statement_timestamp() AT TIME ZONE 'UTC')::date AS over
    FROM (
        SELECT p.relname::text AS of_table, c.relname::text AS partition,
               to_date(right(c.relname, 8), 'YYYYMMDD') AS day
        FROM pg_catalog.pg_inherits i
        JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
        JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
        WHERE i.inhparent IN ('holdfast.lease_events'::regclass, 'holdfast.results'::regclass,
                              'holdfast.archive'::regclass)
    ) d
    LEFT JOIN holdfast.archived_days a ON a.of_table = d.of_table AND a.day = d.day
    """,
    # As drop_day_partitions(text, integer), which processes of the version before call; `held` are those that stay for
    # want of a row in archived_days.
    """
    CREATE FUNCTION holdfast.drop_day_partitions(parent text, keep_days integer, only_archived boolean,
                                                 OUT gone integer, OUT held integer)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        old record;
    BEGIN
        gone := 0;
        held := 0;
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
        FOR old IN
            SELECT d.partition, d.archived FROM holdfast.day_partitions d
            WHERE d.of_table = parent AND d.day < today - keep_days ORDER BY d.day
        LOOP
            IF only_archived AND NOT old.archived THEN
                held := held + 1;
                CONTINUE;
            END IF;
            EXECUTE format('DROP TABLE holdfast.%I', old.partition);
            gone := gone + 1;
        END LOOP;
    END $$
    """,
    _granted_as("drop_day_partitions(text, integer, boolean)", "drop_day_partitions(text, integer)"),
    # As drop_result_partitions(), the same way.
    """
    CREATE FUNCTION holdfast.drop_result_partitions(only_archived boolean, OUT gone integer, OUT held integer)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        needed boolean;
        old record;
    BEGIN
        gone := 0;
        held := 0;
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.results', 0));
        FOR old IN
            SELECT d.partition, d.archived FROM holdfast.day_partitions d
            WHERE d.of_table = 'results' AND d.day < today - 1 ORDER BY d.day
        LOOP
            EXECUTE format(
                'SELECT EXISTS (SELECT 1 FROM holdfast.%I r WHERE (r.expires_at IS NULL OR r.expires_at > now())
                                AND EXISTS (SELECT 1 FROM holdfast.topics t WHERE t.id = r.topic_id))', old.partition)
                INTO needed;
            CONTINUE WHEN needed;
            IF only_archived AND NOT old.archived THEN
                held := held + 1;
                CONTINUE;
            END IF;
            EXECUTE format('DROP TABLE holdfast.%I', old.partition);
            gone := gone + 1;
        END LOOP;
    END $$
    """,
    _granted_as("drop_result_partitions(boolean)", "drop_result_partitions()"),
]

DOWN = [
    "DROP FUNCTION holdfast.drop_result_partitions(boolean)",
    "DROP FUNCTION holdfast.drop_day_partitions(text, integer, boolean)",
    "DROP VIEW holdfast.day_partitions",
    "DROP TABLE holdfast.archived_days",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
