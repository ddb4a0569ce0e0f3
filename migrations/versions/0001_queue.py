"""Topics, jobs and the ledger of leases.

Revision ID: 0001
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UP = [
    "CREATE SCHEMA IF NOT EXISTS holdfast",
    "CREATE TYPE holdfast.topic_type AS ENUM ('log', 'queue')",
    "CREATE TYPE holdfast.durability AS ENUM ('ephemeral', 'memory', 'disk', 'fsync')",
    "CREATE TYPE holdfast.exhaustion AS ENUM ('redeliver', 'fail', 'dead_letter')",
    "CREATE TYPE holdfast.discard AS ENUM ('old', 'reject')",
    "CREATE TYPE holdfast.job_state AS ENUM ('scheduled', 'ready', 'blocked', 'leased', 'failed', 'expired')",
    """
    CREATE TYPE holdfast.job_event AS ENUM
        ('enqueued', 'claimed', 'extended', 'released', 'acked', 'dead_lettered', 'failed', 'expired', 'deleted')
    """,
    # version counts the changes of a row, so that a cache never puts an older row over a newer one.
    """
    CREATE TABLE holdfast.topics (
        name text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$'),
        id integer GENERATED ALWAYS AS IDENTITY UNIQUE,
        type holdfast.topic_type NOT NULL,
        durability holdfast.durability NOT NULL DEFAULT 'disk',
        lease_ms integer NOT NULL DEFAULT 30000 CHECK (lease_ms BETWEEN 100 AND 86400000),
        claim_jitter_ms integer NOT NULL DEFAULT 0 CHECK (claim_jitter_ms BETWEEN 0 AND 5000),
        max_deliveries integer NOT NULL DEFAULT 0 CHECK (max_deliveries BETWEEN 0 AND 10000),
        on_exhausted holdfast.exhaustion NOT NULL DEFAULT 'redeliver',
        dead_letter text COLLATE "C" CHECK (dead_letter <> name),
        ttl_ms bigint NOT NULL DEFAULT 0 CHECK (ttl_ms BETWEEN 0 AND 315360000000),
        cap_records bigint NOT NULL DEFAULT 0 CHECK (cap_records >= 0),
        cap_bytes bigint NOT NULL DEFAULT 0 CHECK (cap_bytes >= 0),
        discard holdfast.discard NOT NULL DEFAULT 'old',
        idempotency_window_ms bigint NOT NULL DEFAULT 120000 CHECK (idempotency_window_ms BETWEEN 0 AND 604800000),
        priority integer,
        auto_priority boolean NOT NULL DEFAULT true,
        auto_create boolean NOT NULL DEFAULT true,
        dedupe_node boolean NOT NULL DEFAULT true,
        leases_durable boolean NOT NULL DEFAULT false,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        version bigint NOT NULL DEFAULT 1
    )
    """,
    """
    CREATE TABLE holdfast.topic_stats (
        topic_id integer PRIMARY KEY,
        dead_lettered bigint NOT NULL DEFAULT 0
    )
    """,
    # Columns stand in order of alignment: eight bytes, four, two, one, then what has no fixed length.
    """
    CREATE TABLE holdfast.jobs (
        seq bigint NOT NULL,
        position bigint NOT NULL,
        visible_at timestamptz NOT NULL,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        expires_at timestamptz,
        original_seq bigint,
        dlq_moved_at timestamptz,
        topic_id integer NOT NULL,
        deliveries integer NOT NULL DEFAULT 0 CHECK (deliveries >= 0),
        max_deliveries integer CHECK (max_deliveries BETWEEN 0 AND 10000),
        original_deliveries integer,
        state holdfast.job_state NOT NULL,
        priority smallint NOT NULL DEFAULT 0,
        lease_id uuid,
        topic text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL DEFAULT '',
        node text,
        tag text,
        producer text,
        last_error text,
        original_topic text COLLATE "C",
        metadata json,
        payload bytea NOT NULL,
        PRIMARY KEY (topic, seq),
        CHECK ((state = 'leased') = (lease_id IS NOT NULL)),
        CHECK ((state = 'leased') = (node IS NOT NULL))
    ) WITH (
        fillfactor = 85,
        autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.1,
        autovacuum_analyze_scale_factor = 0.05,
        autovacuum_analyze_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    "ALTER TABLE holdfast.jobs ALTER COLUMN payload SET STORAGE EXTERNAL",
    """
    CREATE INDEX jobs_ready ON holdfast.jobs (topic, tenant, priority DESC, position) WHERE state = 'ready'
    """,
    """
    CREATE INDEX jobs_due ON holdfast.jobs (topic, tenant, priority DESC, visible_at)
        WHERE state IN ('leased', 'scheduled')
    """,
    """
    CREATE INDEX jobs_expiring ON holdfast.jobs (topic, expires_at)
        WHERE expires_at IS NOT NULL AND state IN ('ready', 'scheduled', 'blocked', 'leased')
    """,
    """
    CREATE INDEX jobs_finished ON holdfast.jobs (topic, updated_at) WHERE state IN ('failed', 'expired')
    """,
    """
    CREATE TABLE holdfast.lanes (
        topic text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL DEFAULT '',
        priority smallint NOT NULL DEFAULT 0,
        PRIMARY KEY (topic, tenant, priority)
    )
    """,
    # No index: a ledger is written on every verb, and read by ranges of days and transactions.
    """
    CREATE TABLE holdfast.lease_events (
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
        seq bigint NOT NULL,
        until timestamptz,
        topic_id integer NOT NULL,
        deliveries integer NOT NULL,
        event holdfast.job_event NOT NULL,
        lease_id uuid,
        topic text COLLATE "C" NOT NULL,
        node text,
        detail text
    ) PARTITION BY RANGE (at)
    """,
    """
    CREATE FUNCTION holdfast.create_topic_sequence(topic_id integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        EXECUTE format('CREATE SEQUENCE holdfast.%I AS bigint CACHE 1', 'seq_' || topic_id);
    END $$
    """,
    """
    CREATE FUNCTION holdfast.drop_topic_sequence(topic_id integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        EXECUTE format('DROP SEQUENCE IF EXISTS holdfast.%I', 'seq_' || topic_id);
    END $$
    """,
    # A partition a day, in UTC. Waits 200 ms at most for its lock: a long reader of the ledger must not stop
    # every verb behind it. Creating one takes SHARE UPDATE EXCLUSIVE on the parent only, by ATTACH.
    """
    CREATE FUNCTION holdfast.create_event_partitions(ahead integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        made integer := 0;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.lease_events', 0));
        FOR day IN 0..ahead LOOP
            name := 'lease_events_' || to_char(today + day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('holdfast.' || name) IS NOT NULL;
            EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.lease_events INCLUDING DEFAULTS)', name);
            EXECUTE format(
                'ALTER TABLE holdfast.lease_events ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)', name,
                (today + day)::timestamp AT TIME ZONE 'UTC', (today + day + 1)::timestamp AT TIME ZONE 'UTC');
            made := made + 1;
        END LOOP;
        RETURN made;
    END $$
    """,
    """
    CREATE FUNCTION holdfast.drop_event_partitions(keep_days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        gone integer := 0;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.lease_events', 0));
        FOR name IN
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'holdfast.lease_events'::regclass
              AND c.relname < 'lease_events_' || to_char(today - keep_days, 'YYYYMMDD')
            ORDER BY c.relname
        LOOP
            EXECUTE format('DROP TABLE holdfast.%I', name);
            gone := gone + 1;
        END LOOP;
        RETURN gone;
    END $$
    """,
    "SELECT holdfast.create_event_partitions(3)",
]

# Alembic's own table lives in the schema, and must outlive it.
DOWN = [
    "ALTER TABLE holdfast.alembic_version SET SCHEMA public",
    "DROP SCHEMA holdfast CASCADE",
    "CREATE SCHEMA holdfast",
    "ALTER TABLE public.alembic_version SET SCHEMA holdfast",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
