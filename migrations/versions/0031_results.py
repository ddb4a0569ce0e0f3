"""What workers hand in with an ack, by day like the ledger; and how far the holder of a lease says it is.

Revision ID: 0031
"""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

AS_OWNER = """LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off"""
NAMED = "'^(.+):([0-9]{1,18})\\:lease_([0-9a-f]{32})$'"
ARCHIVED = """
        INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, original_seq, deliveries,
                                      max_deliveries, priority, tenant, node, tag, producer, last_error, original_topic,
                                      metadata, payload, key, content_type, first_topic_id, first_seq, grp)
        SELECT clock_timestamp(), job.topic, job.topic_id, job.seq, 'completed', job.created_at, job.original_seq,
               job.deliveries, job.max_deliveries, job.priority, job.tenant, job.node, job.tag, job.producer,
               job.last_error, job.original_topic, job.metadata, job.payload, job.key, job.content_type,
               job.first_topic_id, job.first_seq, job.grp
        FROM holdfast.topics t WHERE t.name = job.topic AND t.id = job.topic_id AND t.replayable;
"""
TALLIED = """
        INSERT INTO holdfast.tallies (topic_id, leased, bytes) VALUES (job.topic_id, -1, -octet_length(job.payload));
"""
DELETED = """
        DELETE FROM holdfast.jobs j
        WHERE j.topic = parts[1] AND j.seq = parts[2]::bigint AND j.state::text = 'leased'
          AND j.lease_id = parts[3]::uuid AND j.visible_at >= clock_timestamp()
        RETURNING j.* INTO job;
"""

# As app/queue/sql/ack_results.sql, in the caller's transaction; a second call under the lease as completed.sql.
COMPLETE = f"""
    CREATE FUNCTION holdfast.complete(token text, result json DEFAULT NULL) RETURNS void {AS_OWNER} AS $$
    DECLARE
        parts text[] := regexp_match(token, {NAMED});
        handed_in json := CASE WHEN json_typeof(result) <> 'null' THEN result END;
        job holdfast.jobs;
        kept_ms bigint;
        completed timestamptz;
        expires timestamptz;
    BEGIN
        IF parts IS NULL THEN
            RAISE EXCEPTION 'this is no token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF octet_length(handed_in::text) > 1048576 OR holdfast.json_depth(handed_in::text) > 128 THEN
            RAISE EXCEPTION 'a result has 1 MiB at most, nested 128 deep at most'
                USING ERRCODE = 'program_limit_exceeded';
        END IF;
        PERFORM handed_in::jsonb;  -- raises for what can be stored, and not be shown
        {DELETED}
        IF NOT FOUND THEN
            IF handed_in IS NOT NULL AND EXISTS (
                SELECT 1 FROM holdfast.results r JOIN holdfast.topics t ON t.name = r.topic AND t.id = r.topic_id
                WHERE r.topic = parts[1] AND r.seq = parts[2]::bigint AND r.lease_id = parts[3]::uuid
                  AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())
            ) THEN
                RETURN;
            END IF;
            RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        {ARCHIVED}
        IF handed_in IS NOT NULL THEN
            SELECT t.result_ttl_ms INTO kept_ms FROM holdfast.topics t WHERE t.name = job.topic AND t.id = job.topic_id;
            completed := clock_timestamp();
            expires := CASE WHEN kept_ms > 0 THEN completed + kept_ms * interval '1 ms' END;
            INSERT INTO holdfast.results (completed_at, expires_at, topic, topic_id, seq, first_topic_id, first_seq,
                                          lease_id, deliveries, node, result)
            VALUES (completed, expires, job.topic, job.topic_id, job.seq, job.first_topic_id, job.first_seq,
                    job.lease_id, job.deliveries, job.node, handed_in);
        END IF;
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until)
        VALUES (job.topic, job.topic_id, job.seq, 'acked', job.deliveries, job.lease_id, job.node, expires);
        {TALLIED}
    END $$
"""
# As migration 0022 left it.
COMPLETE_BEFORE = f"""
    CREATE FUNCTION holdfast.complete(token text) RETURNS void {AS_OWNER} AS $$
    DECLARE
        parts text[] := regexp_match(token, {NAMED});
        job holdfast.jobs;
    BEGIN
        IF parts IS NULL THEN
            RAISE EXCEPTION 'this is no token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        {DELETED}
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        {ARCHIVED}
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node)
        VALUES (job.topic, job.topic_id, job.seq, 'acked', job.deliveries, job.lease_id, job.node);
        {TALLIED}
    END $$
"""


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
    # Columns stand in order of alignment, as in jobs. expires_at NULL: for ever.
    """
    CREATE TABLE holdfast.results (
        completed_at timestamptz NOT NULL,
        expires_at timestamptz,
        seq bigint NOT NULL,
        first_seq bigint,
        topic_id integer NOT NULL,
        first_topic_id integer,
        deliveries integer NOT NULL,
        lease_id uuid NOT NULL,
        topic text COLLATE "C" NOT NULL,
        node text,
        result json NOT NULL
    ) PARTITION BY RANGE (completed_at)
    """,
    "ALTER TABLE holdfast.results ALTER COLUMN result SET STORAGE EXTERNAL",
    "CREATE INDEX results_job ON holdfast.results (topic, topic_id, seq)",
    # Of dead letters, by the job that each was at first: its id as a message.
    """
    CREATE INDEX results_first ON holdfast.results (first_topic_id, first_seq) WHERE first_topic_id IS NOT NULL
    """,
    "SELECT holdfast.create_day_partitions('results', 3)",
    # A day goes once nothing in it is to be shown: neither of a topic that is there, nor for ever. Of the last two days
    # none goes: an ack that began before midnight may not have been committed.
    """
    CREATE FUNCTION holdfast.drop_result_partitions() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        gone integer := 0;
        needed boolean;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.results', 0));
        FOR name IN
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'holdfast.results'::regclass
              AND c.relname < 'results_' || to_char(today - 1, 'YYYYMMDD')
            ORDER BY c.relname
        LOOP
            EXECUTE format(
                'SELECT EXISTS (SELECT 1 FROM holdfast.%I r WHERE (r.expires_at IS NULL OR r.expires_at > now())
                                AND EXISTS (SELECT 1 FROM holdfast.topics t WHERE t.id = r.topic_id))', name)
                INTO needed;
            CONTINUE WHEN needed;
            EXECUTE format('DROP TABLE holdfast.%I', name);
            gone := gone + 1;
        END LOOP;
        RETURN gone;
    END $$
    """,
    _granted_as("drop_result_partitions()", "drop_day_partitions(text, integer)"),
    """
    ALTER TABLE holdfast.topics ADD COLUMN result_ttl_ms bigint NOT NULL DEFAULT 86400000
        CHECK (result_ttl_ms BETWEEN 0 AND 315360000000)
    """,
    # What the holder of progress_lease said last; of another lease it is worth nothing, so nobody has to clear it.
    """
    ALTER TABLE holdfast.jobs
        ADD COLUMN progress smallint,
        ADD COLUMN progress_note text,
        ADD COLUMN progress_at timestamptz,
        ADD COLUMN progress_lease uuid
    """,
    # A job's newest events, however many there are of it.
    """
    CREATE FUNCTION holdfast.last_events(of_topic_id integer, of_seq bigint, most integer)
    RETURNS SETOF holdfast.lease_events LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
    BEGIN
        RETURN QUERY
        SELECT e.* FROM holdfast.lease_events e
        WHERE e.topic_id = of_topic_id AND e.seq = of_seq AND e.at >= '-infinity'
        ORDER BY e.at DESC, e.tx DESC LIMIT most;
    END $$
    """,
    COMPLETE,
    _granted_as("complete(text, json)", "complete(text)"),
    "DROP FUNCTION holdfast.complete(text)",
]

DOWN = [
    COMPLETE_BEFORE,
    _granted_as("complete(text)", "complete(text, json)"),
    "DROP FUNCTION holdfast.complete(text, json)",
    "DROP FUNCTION holdfast.last_events",
    """
    ALTER TABLE holdfast.jobs
        DROP COLUMN progress, DROP COLUMN progress_note, DROP COLUMN progress_at, DROP COLUMN progress_lease
    """,
    "ALTER TABLE holdfast.topics DROP COLUMN result_ttl_ms",
    "DROP FUNCTION holdfast.drop_result_partitions",
    "DROP TABLE holdfast.results",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
