-- Views for SQL users. docs/sql.md lists the columns that are stable.

-- Jobs with their current state: the stored state is still "leased" after a lease has expired.
CREATE VIEW holdfast.job_states AS
SELECT j.topic, j.seq, holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
       j.tenant, j.key, coalesce(j.grp, j.left_grp) AS grp, j.priority, j.tag, j.created_at, j.updated_at, j.visible_at, j.expires_at,
       j.deliveries, j.crashes, j.max_deliveries, j.node, j.leased_at, j.progress, j.last_error,
       j.original_topic, j.original_seq, j.original_deliveries, j.dlq_moved_at,
       j.content_type, j.metadata, j.payload
FROM holdfast.jobs j;

CREATE VIEW holdfast.dead_letters AS
SELECT s.* FROM holdfast.job_states s WHERE s.dlq_moved_at IS NOT NULL;

-- Jobs in the format of the messages dialect.
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
) s;

-- The partitions of tables by day: whether a day is archived to files, and whether it is over.
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
LEFT JOIN holdfast.archived_days a ON a.of_table = d.of_table AND a.day = d.day;
