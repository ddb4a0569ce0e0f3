"""The archive of replayable topics, by day like the ledger; and how far a replay has come.

Revision ID: 0012
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# The days of any table by days, in UTC. Each waits 200 ms at most for its lock: a long reader must not stop every verb
# behind it. Creating one takes SHARE UPDATE EXCLUSIVE on the parent only, by ATTACH, which also makes its indexes.
CREATE_DAYS = """
    CREATE FUNCTION holdfast.create_day_partitions(parent text, ahead integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        made integer := 0;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
        FOR day IN 0..ahead LOOP
            name := parent || '_' || to_char(today + day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(format('holdfast.%I', name)) IS NOT NULL;
            EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING DEFAULTS INCLUDING STORAGE)',
                           name, parent);
            EXECUTE format(
                'ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)', parent, name,
                (today + day)::timestamp AT TIME ZONE 'UTC', (today + day + 1)::timestamp AT TIME ZONE 'UTC');
            made := made + 1;
        END LOOP;
        RETURN made;
    END $$
"""
# Drops partitions only, whatever table is named.
DROP_DAYS = """
    CREATE FUNCTION holdfast.drop_day_partitions(parent text, keep_days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        gone integer := 0;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
        FOR name IN
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass(format('holdfast.%I', parent))
              AND c.relname < parent || '_' || to_char(today - keep_days, 'YYYYMMDD')
            ORDER BY c.relname
        LOOP
            EXECUTE format('DROP TABLE holdfast.%I', name);
            gone := gone + 1;
        END LOOP;
        RETURN gone;
    END $$
"""

UP = [
    CREATE_DAYS,
    DROP_DAYS,
    # Those of the ledger alone, which processes of the version before call.
    """
    CREATE OR REPLACE FUNCTION holdfast.create_event_partitions(ahead integer) RETURNS integer
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT holdfast.create_day_partitions('lease_events', ahead) $$
    """,
    """
    CREATE OR REPLACE FUNCTION holdfast.drop_event_partitions(keep_days integer) RETURNS integer
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT holdfast.drop_day_partitions('lease_events', keep_days) $$
    """,
    "CREATE TYPE holdfast.outcome AS ENUM ('completed')",
    # Columns stand in order of alignment, as in jobs.
    """
    CREATE TABLE holdfast.archive (
        finished_at timestamptz NOT NULL,
        seq bigint NOT NULL,
        created_at timestamptz NOT NULL,
        original_seq bigint,
        first_seq bigint,
        topic_id integer NOT NULL,
        first_topic_id integer,
        deliveries integer NOT NULL,
        max_deliveries integer,
        outcome holdfast.outcome NOT NULL,
        priority smallint NOT NULL,
        topic text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        key text COLLATE "C",
        node text,
        tag text,
        producer text,
        content_type text,
        last_error text,
        original_topic text COLLATE "C",
        metadata json,
        payload bytea NOT NULL
    ) PARTITION BY RANGE (finished_at)
    """,
    "ALTER TABLE holdfast.archive ALTER COLUMN payload SET STORAGE EXTERNAL",
    # One order for the log (backwards), the replay (forwards) and what is too old.
    "CREATE INDEX archive_finished ON holdfast.archive (topic, topic_id, finished_at, seq)",
    # Whether a newer one of a key was completed; a row without a key does not pay for it.
    """
    CREATE INDEX archive_keyed ON holdfast.archive (topic, topic_id, tenant, key, finished_at, seq)
        WHERE key IS NOT NULL
    """,
    "SELECT holdfast.create_day_partitions('archive', 3)",
    # A row for what was asked for (asked_from: '-infinity' for the whole window) holds the replay's bounds, and the
    # place in the archive up to which it has come.
    """
    CREATE TABLE holdfast.replays (
        asked_from timestamptz NOT NULL,
        from_time timestamptz NOT NULL,
        until_time timestamptz NOT NULL,
        after_time timestamptz NOT NULL,
        after_seq bigint NOT NULL,
        enqueued bigint NOT NULL DEFAULT 0 CHECK (enqueued >= 0),
        skipped bigint NOT NULL DEFAULT 0 CHECK (skipped >= 0),
        updated_at timestamptz NOT NULL,
        topic_id integer NOT NULL,
        done boolean NOT NULL DEFAULT false,
        topic text COLLATE "C" NOT NULL,
        PRIMARY KEY (topic, topic_id, asked_from)
    ) WITH (fillfactor = 50)
    """,
]

DOWN = [
    "DROP TABLE holdfast.replays, holdfast.archive",
    "DROP TYPE holdfast.outcome",
    # As migration 0001 made them.
    CREATE_DAYS.replace(
        "CREATE FUNCTION holdfast.create_day_partitions(parent text, ahead integer)",
        "CREATE OR REPLACE FUNCTION holdfast.create_event_partitions(ahead integer)",
    ).replace("    DECLARE\n", "    DECLARE\n        parent text := 'lease_events';\n"),
    DROP_DAYS.replace(
        "CREATE FUNCTION holdfast.drop_day_partitions(parent text, keep_days integer)",
        "CREATE OR REPLACE FUNCTION holdfast.drop_event_partitions(keep_days integer)",
    ).replace("    DECLARE\n", "    DECLARE\n        parent text := 'lease_events';\n"),
    "DROP FUNCTION holdfast.create_day_partitions, holdfast.drop_day_partitions",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
