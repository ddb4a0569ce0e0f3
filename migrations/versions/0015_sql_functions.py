"""What SQL users call and read: enqueue, complete and assert_lease, and the view messages; and who may run what.

Revision ID: 0015
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# Functions that run as their owner: their names mean what they meant here, and the plans of single rows go by index.
AS_OWNER = """LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off"""

# Who runs the service as a lesser role may write topics: what anybody could run, and now nobody can unless it is
# granted, such a role keeps.
ONCE_PUBLIC = (
    "create_topic_sequence(integer)",
    "drop_topic_sequence(integer)",
    "create_event_partitions(integer)",
    "drop_event_partitions(integer)",
    "create_day_partitions(text, integer)",
    "drop_day_partitions(text, integer)",
)
OPTIONS = """content_type text DEFAULT NULL, metadata jsonb DEFAULT NULL, tag text DEFAULT NULL, node text DEFAULT NULL,
        priority integer DEFAULT NULL, delay_ms bigint DEFAULT NULL, run_at timestamptz DEFAULT NULL,
        ttl_ms bigint DEFAULT NULL, max_deliveries integer DEFAULT NULL, key text DEFAULT NULL"""
OPTION_TYPES = "text, jsonb, text, text, integer, bigint, timestamptz, bigint, integer, text"
FOR_USERS = (
    f"enqueue(text, bytea, {OPTION_TYPES})",
    f"enqueue(text, text, {OPTION_TYPES})",
    f"enqueue(text, jsonb, {OPTION_TYPES})",
    "complete(text)",
    "assert_lease(text)",
)

UP = [
    # The id of a message: app/api/messages/ids.py.
    """
    CREATE FUNCTION holdfast.message_id(topic_id integer, seq bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT (lpad(to_hex($1), 8, '0') || '0000800' || to_hex($2 >> 62)
                || to_hex((-9223372036854775808) | ($2 & 4611686018427387903)))::uuid
    $$
    """,
    f"""
    CREATE FUNCTION holdfast.enqueue(topic text, payload bytea, {OPTIONS}) RETURNS uuid {AS_OWNER} AS $$
    DECLARE
        topic_id integer;
        seq bigint;
    BEGIN
        IF EXISTS (SELECT 1 FROM holdfast.topics t WHERE t.name = enqueue.topic AND t.schema_version IS NOT NULL) THEN
            RAISE EXCEPTION 'topic "%" has a schema, which this can''t look at', enqueue.topic
                USING ERRCODE = 'feature_not_supported',
                HINT = 'Insert into holdfast.inbox: the service looks at it there.';
        END IF;
        INSERT INTO holdfast.inbox (topic, payload, content_type, metadata, tag, node, priority, delay_ms, run_at,
                                    ttl_ms, max_deliveries, key)
        VALUES (enqueue.topic, enqueue.payload, enqueue.content_type, enqueue.metadata::text, enqueue.tag,
                enqueue.node, enqueue.priority, enqueue.delay_ms, enqueue.run_at, enqueue.ttl_ms,
                enqueue.max_deliveries, enqueue.key);
        topic_id := (SELECT t.id FROM holdfast.topics t WHERE t.name = enqueue.topic);
        IF enqueue.key IS NULL THEN
            seq := currval('holdfast.seq_' || topic_id);
        ELSE
            seq := (SELECT j.seq FROM holdfast.jobs j
                    WHERE j.topic = enqueue.topic AND j.tenant = '' AND j.key = enqueue.key AND j.original_topic IS NULL
                      AND j.state IN ('ready', 'scheduled', 'blocked'));
        END IF;
        RETURN holdfast.message_id(topic_id, seq);
    END $$
    """,
    *(
        f"""
    CREATE FUNCTION holdfast.enqueue(topic text, payload {kind}, {OPTIONS}) RETURNS uuid
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
    AS $$ SELECT holdfast.enqueue($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) $$
    """
        for kind in ("text", "jsonb")
    ),
    # As app/queue/sql/ack.sql, in the caller's transaction.
    f"""
    CREATE FUNCTION holdfast.complete(token text) RETURNS void {AS_OWNER} AS $$
    DECLARE
        parts text[] := regexp_match(token, '^(.+):([0-9]{{1,18}})\\:lease_([0-9a-f]{{32}})$');
        job holdfast.jobs;
    BEGIN
        IF parts IS NULL THEN
            RAISE EXCEPTION 'this is no token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        DELETE FROM holdfast.jobs j
        WHERE j.topic = parts[1] AND j.seq = parts[2]::bigint AND j.state::text = 'leased'
          AND j.lease_id = parts[3]::uuid AND j.visible_at >= clock_timestamp()
        RETURNING j.* INTO job;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, original_seq, deliveries,
                                      max_deliveries, priority, tenant, node, tag, producer, last_error, original_topic,
                                      metadata, payload, key, content_type, first_topic_id, first_seq)
        SELECT clock_timestamp(), job.topic, job.topic_id, job.seq, 'completed', job.created_at, job.original_seq,
               job.deliveries, job.max_deliveries, job.priority, job.tenant, job.node, job.tag, job.producer,
               job.last_error, job.original_topic, job.metadata, job.payload, job.key, job.content_type,
               job.first_topic_id, job.first_seq
        FROM holdfast.topics t WHERE t.name = job.topic AND t.id = job.topic_id AND t.replayable;
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node)
        VALUES (job.topic, job.topic_id, job.seq, 'acked', job.deliveries, job.lease_id, job.node);
        INSERT INTO holdfast.tallies (topic_id, leased, bytes) VALUES (job.topic_id, -1, -octet_length(job.payload));
    END $$
    """,
    # FOR KEY SHARE: nobody claims or settles the job until the caller's transaction ends; its lease may be extended.
    f"""
    CREATE FUNCTION holdfast.assert_lease(token text) RETURNS void {AS_OWNER} AS $$
    DECLARE
        parts text[] := regexp_match(token, '^(.+):([0-9]{{1,18}})\\:lease_([0-9a-f]{{32}})$');
    BEGIN
        IF parts IS NULL THEN
            RAISE EXCEPTION 'this is no token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        PERFORM 1 FROM holdfast.jobs j
        WHERE j.topic = parts[1] AND j.seq = parts[2]::bigint AND j.state::text = 'leased'
          AND j.lease_id = parts[3]::uuid AND j.visible_at >= clock_timestamp()
        FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    END $$
    """,
    """
    CREATE VIEW holdfast.messages AS
    SELECT holdfast.message_id(coalesce(j.first_topic_id, j.topic_id), coalesce(j.first_seq, j.seq)) AS id,
           j.topic, j.payload, j.metadata::jsonb AS metadata, j.key, s.status,
           j.deliveries - (s.status = 'processing')::integer AS retry_count,
           coalesce(j.max_deliveries, t.max_retries, t.max_deliveries, d.max_retries) AS max_retries, j.last_error,
           CASE WHEN s.status = 'processing' THEN j.visible_at END AS visibility_timeout, j.expires_at,
           j.original_topic, j.dlq_moved_at, j.created_at, j.updated_at
    FROM holdfast.jobs j
    JOIN holdfast.topics t ON t.name = j.topic
    CROSS JOIN holdfast.defaults d
    CROSS JOIN LATERAL (
        SELECT CASE WHEN j.state::text IN ('failed', 'expired') THEN j.state::text
                    WHEN j.state::text = 'leased' AND j.visible_at >= statement_timestamp() THEN 'processing'
                    WHEN j.expires_at <= statement_timestamp() THEN 'expired'
                    ELSE 'pending' END AS status
    ) s
    """,
    *(f"REVOKE EXECUTE ON FUNCTION holdfast.{one} FROM PUBLIC" for one in (*ONCE_PUBLIC, *FOR_USERS)),
    f"""
    DO $$
    DECLARE
        r record;
        f text;
    BEGIN
        FOR r IN
            SELECT DISTINCT g.grantee::regrole::text AS name
            FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) g
            WHERE c.oid = 'holdfast.topics'::regclass AND g.privilege_type = 'INSERT' AND g.grantee <> 0
        LOOP
            FOREACH f IN ARRAY ARRAY[{", ".join(f"'{one}'" for one in (*ONCE_PUBLIC, *FOR_USERS))}] LOOP
                EXECUTE format('GRANT EXECUTE ON FUNCTION holdfast.%s TO %s', f, r.name);
            END LOOP;
            EXECUTE format('GRANT SELECT, UPDATE ON holdfast.defaults TO %s', r.name);
        END LOOP;
    END $$
    """,
]
DOWN = [
    *(f"GRANT EXECUTE ON FUNCTION holdfast.{one} TO PUBLIC" for one in ONCE_PUBLIC),
    "DROP VIEW holdfast.messages",
    *(f"DROP FUNCTION holdfast.{one}" for one in FOR_USERS),
    "DROP FUNCTION holdfast.message_id",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
